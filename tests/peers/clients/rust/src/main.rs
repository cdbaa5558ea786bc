//! A producer and a member of a group with rdkafka, idempotent: see ../../../programs.py for what it prints.
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::ClientContext;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

struct Notes;

/// Its settings of TLS and SASL, where the environment names any: see programs.py.
fn secured() -> ClientConfig {
    let mut found = ClientConfig::new();
    let given = |name: &str| std::env::var(name).ok();
    if let Some(ca) = given("CLIENT_CA") {
        let protocol = if given("CLIENT_USER").is_some() { "SASL_SSL" } else { "SSL" };
        found.set("security.protocol", protocol).set("ssl.ca.location", ca);
    }
    if let Some(pem) = given("CLIENT_PEM") {
        found.set("ssl.certificate.location", &pem).set("ssl.key.location", pem);
    }
    if let (Some(user), Some(password)) = (given("CLIENT_USER"), given("CLIENT_PASSWORD")) {
        found.set("sasl.mechanism", "SCRAM-SHA-256");
        found.set("sasl.username", user).set("sasl.password", password);
    }
    found
}

impl ClientContext for Notes {
    // what librdkafka tells of as an event, and goes on from by itself, is no error but where it calls it fatal
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            println!("error fatal: {error}: {reason}");
        }
    }
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}
}

impl ProducerContext for Notes {
    type DeliveryOpaque = Box<u64>;
    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<u64>) {
        match result {
            Ok(message) => println!("ack {} {} {}", message.partition(), message.offset(), number),
            Err((error, _)) => println!("error produce: {error}"),
        }
    }
}

fn produce(bootstrap: &str, topic: &str, partitions: u64, stop: Arc<AtomicBool>) {
    let producer: ThreadedProducer<Notes> = secured()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .create_with_context(Notes)
        .expect("a producer");
    let mut sent: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        let value = sent.to_string();
        let record = BaseRecord::<(), str, Box<u64>>::with_opaque_to(topic, Box::new(sent))
            .partition((sent % partitions) as i32)
            .payload(&value);
        if let Err((error, _)) = producer.send(record) {
            println!("error send: {error}");
        }
        sent += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    if let Err(error) = producer.flush(Duration::from_secs(60)) {
        println!("error flush: {error}");
    }
    println!("flushed {sent}");
}

fn consume(bootstrap: &str, topic: &str, group: &str, stop: Arc<AtomicBool>) {
    let consumer: BaseConsumer<rdkafka::consumer::DefaultConsumerContext> = secured()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("log_level", "0")
        .create()
        .expect("a consumer");
    consumer.subscribe(&[topic]).expect("a subscription");
    while !stop.load(Ordering::Relaxed) {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let value = String::from_utf8_lossy(message.payload().unwrap_or(b""));
                println!("got {} {} {}", message.partition(), message.offset(), value);
            }
            // brokers that are down come as events here; librdkafka says itself that an application does nothing
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown,
            )))
            | None => {}
            Some(Err(error)) => println!("error poll: {error}"),
        }
    }
    match consumer.commit_consumer_state(CommitMode::Sync) {
        Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
        Err(error) => println!("error commit: {error}"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (bootstrap, topic, group) = (arguments[1].clone(), arguments[2].clone(), arguments[3].clone());
    let partitions: u64 = arguments[4].parse().expect("a number of partitions");
    let (stop_writing, stop_reading) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (place, theme, stop) = (bootstrap.clone(), topic.clone(), stop_writing.clone());
    let writer = std::thread::spawn(move || produce(&place, &theme, partitions, stop));
    let stop = stop_reading.clone();
    let reader = std::thread::spawn(move || consume(&bootstrap, &topic, &group, stop));
    let mut lines = std::io::stdin().lock().lines();
    lines.next();
    stop_writing.store(true, Ordering::Relaxed);
    writer.join().expect("the writer ends");
    lines.next();
    stop_reading.store(true, Ordering::Relaxed);
    reader.join().expect("the reader ends");
    println!("closed");
}

// A producer and a member of a group with kafkajs, at its defaults: see ../../programs.py for what it prints.
const { readFileSync } = require("node:fs");
const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId, count] = process.argv.slice(2);
const partitions = Number(count);
const { CLIENT_CA: ca, CLIENT_PEM: pem, CLIENT_USER: username, CLIENT_PASSWORD: password } = process.env;
const read = (path) => path && readFileSync(path);
const secured = {
  ...(ca && { ssl: { ca: read(ca), cert: read(pem), key: read(pem) } }),
  ...(username && { sasl: { mechanism: "scram-sha-256", username, password } }),
};
const kafka = new Kafka({ clientId: "client", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, ...secured });
const say = (line) => process.stdout.write(line + "\n");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let stopping = false;

async function produce() {
  const producer = kafka.producer();
  await producer.connect();
  const waiting = [];
  let sent = 0;
  for (; !stopping; sent++) {
    const number = sent;
    const messages = [{ value: String(number), partition: number % partitions }];
    const answer = producer.send({ topic, messages }).then(
      ([said]) => say(`ack ${said.partition} ${said.baseOffset} ${number}`),
      (error) => say(`error produce: ${error}`),
    );
    waiting.push(answer);
    await pause(10); // each send is a request of its own
  }
  await Promise.all(waiting);
  say(`flushed ${sent}`);
  await producer.disconnect();
}

async function main() {
  const consumer = kafka.consumer({ groupId });
  // kafkajs tells of what ends its consumer; it starts it again by itself where it says so
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    say(`${payload.restart ? "note" : "error"} crash: ${payload.error}`);
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => say(`got ${partition} ${message.offset} ${message.value}`),
  });
  const produced = produce();
  const lines = readline.createInterface({ input: process.stdin });
  lines.once("line", () => {
    stopping = true;
    produced.catch((error) => say(`error producer: ${error}`));
    lines.once("line", async () => {
      await consumer.disconnect();
      say("closed");
      process.exit(0);
    });
  });
}

main().catch((error) => {
  say(`error main: ${error}`);
  process.exit(1);
});

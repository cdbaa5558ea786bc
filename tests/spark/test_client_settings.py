"""The client's settings among the options: what they become, and what is said of those that are wrong."""

from __future__ import annotations

import pickle

import pytest

from headrace.client.security import PLAINTEXT, security_of
from headrace.spark.client_settings import FETCH, PRODUCE, ClusterSettings, open_stores, security_options
from headrace.spark.options import SinkOptions, sink_options, source_options

BROKERS = {"kafka.bootstrap.servers": "h:1"}
READ = BROKERS | {"subscribe": "t"}


def test_what_is_not_said() -> None:
    read, write = source_options(READ, streaming=True), sink_options(BROKERS)
    assert read.cluster == write.cluster == ClusterSettings("h:1")
    assert (read.fetch, write.produce) == (FETCH, PRODUCE)


def test_what_is_said() -> None:
    read = source_options(
        READ
        | {
            "kafka.client.id": "me",
            "kafka.default.api.timeout.ms": "1500",
            "kafka.request.timeout.ms": "700",
            "kafka.security.protocol": "plaintext",
            "kafka.fetch.min.bytes": "7",
            "kafka.fetch.max.wait.ms": "0",
            "kafka.fetch.max.bytes": "1000",
            "kafka.max.partition.fetch.bytes": "100",
            "kafka.client.rack": "r1",
        },
        streaming=False,
    )
    assert read.cluster.client_id == "me" and read.cluster.client().timeout_s == 1.5
    assert read.cluster.client().request_timeout_s == 0.7
    assert read.fetch.min_bytes == 7 and read.fetch.max_wait_ms == 0
    assert (read.fetch.max_bytes, read.fetch.partition_max_bytes, read.fetch.rack) == (1000, 100, "r1")
    write = sink_options(
        BROKERS
        | {
            "kafka.acks": "1",
            "kafka.batch.size": "2000",
            "kafka.request.timeout.ms": "3",
            "kafka.delivery.timeout.ms": "4",
            "kafka.transaction.timeout.ms": "5",
        }
    )
    assert (write.produce.acks, write.produce.batch_bytes) == (1, 2000)
    assert (write.cluster.request_timeout_ms, write.produce.delivery_timeout_ms) == (3, 4)
    assert write.produce.transaction_timeout_ms == 5


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("kafka.fetch.max.bytes", "0", "a whole number from 1 to 2147483647, not '0'"),
        ("kafka.fetch.min.bytes", "-1", "a whole number from 0"),
        ("kafka.fetch.max.wait.ms", "2147483648", "to 2147483647"),
        ("kafka.default.api.timeout.ms", "1s", "not '1s'"),
        ("kafka.security.protocol", "TLS", "be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"),
        ("kafka.security.protocol", "SASL_SSL", r"wrong: GSSAPI \(Kerberos\) is an extra|GSSAPI needs"),
        ("kafka.ssl.enabled.protocols", "TLSv1", "'kafka.ssl.enabled.protocols' is wrong: it must be one of TLSv1.2"),
    ],
)
def test_what_is_wrong_with_a_read(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as said:
        source_options(READ | {name: text}, streaming=True)
    assert repr(name) in str(said.value) or text == "SASL_SSL"


@pytest.mark.parametrize(("name", "text"), [("kafka.acks", "2"), ("kafka.batch.size", "0")])
def test_what_is_wrong_with_a_write(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{name}' must be .*, not '{text}'"):
        sink_options(BROKERS | {name: text})


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRETS = ("hunter2", "store-pass", "key-pass", "PEM-KEY", "trust-pass")
SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f'{SCRAM} required username="ann" password="hunter2";',
    "kafka.ssl.truststore.location": "/etc/ca.p12",
    "kafka.ssl.truststore.type": "PKCS12",
    "kafka.ssl.truststore.password": "trust-pass",
    "kafka.ssl.keystore.location": "/etc/ann.p12",
    "kafka.ssl.keystore.password": "store-pass",
    "kafka.ssl.key.password": "key-pass",
}


def test_security_goes_into_tasks_and_shows_no_secret() -> None:
    read = source_options(READ | SECURED, streaming=True)
    write = sink_options(BROKERS | SECURED)
    assert read.cluster == write.cluster
    security = read.cluster.security
    assert security == security_of({name.removeprefix("kafka."): text for name, text in SECURED.items()})
    assert pickle.loads(pickle.dumps(read)) == read and pickle.loads(pickle.dumps(write)) == write
    assert read.cluster.client().security == security
    for shown in (repr(read), repr(write), repr(security), str(read.cluster)):
        assert not [secret for secret in SECRETS if secret in shown]
    assert {SinkOptions(write.cluster): 1}[sink_options(BROKERS | SECURED)] == 1


def test_names_come_from_spark_in_any_case_of_letters() -> None:
    loud = {name.upper(): text for name, text in SECURED.items()}
    assert source_options(READ | loud, streaming=True) == source_options(READ | SECURED, streaming=True)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"kafka.sasl.jaas.config": "hunter2"}, "'kafka.sasl.jaas.config' is wrong"),
        ({"kafka.sasl.jaas.config": f'{SCRAM} required username="hunter2";'}, "needs the options username and"),
        ({"kafka.sasl.mechanism": "OTHER"}, "'kafka.sasl.mechanism' is wrong: the mechanism OTHER is not served"),
        ({"kafka.ssl.engine.factory.class": "x"}, "does not support the client setting 'kafka.ssl.engine"),
        ({"kafka.ssl.truststore.pasword": "hunter2"}, "did you mean 'kafka.ssl.truststore.password'"),
        ({"kafka.sasl.login.class": "hunter2"}, "does not support the client setting"),
    ],
)
def test_what_is_wrong_with_security_is_one_sentence_without_secrets(changed: dict[str, str], complaint: str) -> None:
    for call in (lambda o: source_options(READ | o, streaming=True), lambda o: sink_options(BROKERS | o)):
        with pytest.raises(ValueError, match=complaint) as said:
            call(SECURED | changed)
        assert "\n" not in str(said.value) and str(said.value)[-1] in ".?"
        assert not [secret for secret in SECRETS if secret in str(said.value)]


def test_stores_that_cannot_be_opened_are_said_before_a_query_starts() -> None:
    with pytest.raises(ValueError, match=r"'kafka.ssl.keystore.location' is wrong: /etc/ann.p12: No such file") as said:
        open_stores(source_options(READ | SECURED, streaming=True).cluster)
    assert not [secret for secret in SECRETS if secret in str(said.value)]
    open_stores(source_options(READ, streaming=True).cluster)


def test_what_only_java_has_a_use_for_is_passed_over() -> None:
    assert source_options(READ | {"kafka.ssl.provider": "x"}, streaming=True) == source_options(READ, streaming=True)


def test_the_options_that_say_a_security() -> None:
    security = source_options(READ | SECURED, streaming=True).cluster.security
    assert security_options(security) == SECURED
    assert security_options(PLAINTEXT) == {}

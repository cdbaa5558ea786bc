"""Each of Kafka's own tools that takes --command-config, over SASL_SSL with SCRAM and over mutual TLS, against our
broker with an authorizer. The tools are as they come, in one Java machine.

Not among them: kafka-replica-verification takes no such file, and share groups are not served.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker.sasl import add_users_at
from peers.certificates import Authority, write_trust_pkcs12
from peers.kafka import kafka_tool
from peers.kafka_tools import TOKEN, TOOLS, KafkaTools, class_of

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.security.jaas import SCRAM_MODULE
from headrace.testing.running import broker as running_broker

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

WITHOUT_FILE = {"dump-log", "replica-verification"}
"""Tools that read files, or that have no option for a client's settings."""
NOT_SERVED = {"console-share-consumer"}
RECORDS = 20
PASSWORD, STORE_PASSWORD = "pencil", "pass-of-the-stores"
WAYS = ("SASL_SSL", "mutual TLS")


@dataclass
class Place:
    """Our broker by one way, and what tools need to get in."""

    tools: KafkaTools
    name: str
    bootstrap: str
    file: str
    folder: Path

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Runs one that takes both options in front."""
        where = ("--bootstrap-server", self.bootstrap, "--command-config", self.file)
        return self.tools(tool, *where, *arguments, stdin=stdin)

    def behind(self, tool: str, *arguments: str) -> str:
        """Runs one whose verb stands in front of both options."""
        return self.tools(tool, *arguments, "--bootstrap-server", self.bootstrap, "--command-config", self.file)

    def alone(self, tool: str, *arguments: str) -> str:
        """Runs one in a Java machine of its own, which writes what it has left when that machine ends."""
        where = ("--bootstrap-server", self.bootstrap, "--command-config", self.file)
        return kafka_tool(class_of(tool), *where, *arguments).stdout

    def json(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    folder = tmp_path_factory.mktemp("secured-tools")
    authority = Authority.new()
    trust = write_trust_pkcs12(folder / "trust.p12", [authority], STORE_PASSWORD)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://localhost:0,MUTUAL://localhost:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write_pem(folder / "server.pem")),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": STORE_PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:ann",
        "delegation.token.secret.key": "a secret of the cluster's",
        "group.initial.rebalance.delay.ms": "0",
    }
    believes = (
        f"ssl.truststore.type=PKCS12\nssl.truststore.location={trust}\nssl.truststore.password={STORE_PASSWORD}\n"
    )
    key = authority.client("ann").write_pkcs12(folder / "ann.p12", STORE_PASSWORD)
    files = {
        "SASL_SSL": f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n{believes}"
        f'sasl.jaas.config={SCRAM_MODULE} required username="ann" password="{PASSWORD}";\n',
        "mutual TLS": f"security.protocol=SSL\nssl.keystore.type=PKCS12\nssl.keystore.location={key}\n"
        f"ssl.keystore.password={STORE_PASSWORD}\n{believes}",
    }
    with running_broker(settings) as running, KafkaTools(folder) as tools:
        ports = running.call(lambda inside: {each.name: each.port for each in inside.listeners})
        add_users_at(ports["PLAINTEXT"], ann=PASSWORD)
        made = {}
        for way, listener in zip(WAYS, ("CLIENTS", "MUTUAL"), strict=True):
            name = listener.lower()
            (folder / name).mkdir()
            file = folder / name / "client.properties"
            file.write_text(files[way])
            place = made[way] = Place(tools, name, f"localhost:{ports[listener]}", str(file), folder / name)
            place("topics", "--create", "--topic", name, "--partitions", "2")
            place("console-producer", "--topic", name, stdin="".join(f"{each}\n" for each in range(RECORDS)))
        yield made


@pytest.fixture(params=WAYS)
def place(places: dict[str, Place], request: pytest.FixtureRequest) -> Place:
    return places[request.param]


Says = Callable[[Place], object]
"""Runs a tool, and looks at what it said."""
CASES: dict[tuple[str, ...], Says] = {}
"""By the tools that are asked."""
THIN = ("acls", "console-producer", "delegation-tokens", "broker-api-versions")
"""What does not wait for the soak: each opens another kind of client."""


def case(*tools: str) -> Callable[[Says], Says]:
    def keep(says: Says) -> Says:
        CASES[tools] = says
        return says

    return keep


@case("topics")
def _(at: Place) -> None:
    at("topics", "--create", "--topic", f"{at.name}-made", "--config", "retention.ms=1234")
    at("topics", "--alter", "--topic", f"{at.name}-made", "--partitions", "3")
    described = at("topics", "--describe", "--topic", f"{at.name}-made")
    assert "PartitionCount: 3" in described and "retention.ms=1234" in described
    at("topics", "--delete", "--topic", f"{at.name}-made")
    assert f"{at.name}-made" not in at("topics", "--list").split()


@case("configs")
def _(at: Place) -> None:
    def altered(*about: str, config: str, shown: str, deleted: str) -> None:
        at("configs", "--alter", *about, "--add-config", config)
        assert shown in at("configs", "--describe", *about)
        at("configs", "--alter", *about, "--delete-config", deleted)
        assert shown not in at("configs", "--describe", *about)

    user = ("--entity-type", "users", "--entity-name", f"{at.name}-bob")
    altered(
        *user, config="SCRAM-SHA-256=[iterations=8192,password=pen]", shown="iterations=8192", deleted="SCRAM-SHA-256"
    )
    rate, shown = "producer_byte_rate=1024", "producer_byte_rate=1024.0"
    for about in (
        user,
        ("--entity-type", "clients", "--entity-name", f"{at.name}-c"),
        (*user, "--entity-type", "clients", "--entity-name", "c"),
        (*user, "--entity-type", "clients", "--entity-default"),
    ):
        altered(*about, config=rate, shown=shown, deleted="producer_byte_rate")
    ip = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
    altered(*ip, config="connection_creation_rate=7", shown="rate=7.0", deleted="connection_creation_rate")
    topic = ("--entity-type", "topics", "--entity-name", at.name)
    altered(*topic, config="retention.ms=999", shown="retention.ms=999", deleted="retention.ms")
    broker = ("--entity-type", "brokers", "--entity-default")
    altered(*broker, config="log.retention.ms=777777", shown="log.retention.ms=777777", deleted="log.retention.ms")
    group = ("--entity-type", "groups", "--entity-name", f"{at.name}-g")
    altered(
        *group,
        config="consumer.session.timeout.ms=46000",
        shown="consumer.session.timeout.ms=46000",
        deleted="consumer.session.timeout.ms",
    )
    every = at("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "ssl.truststore.password=null" in every and STORE_PASSWORD not in every


@case("acls")
def _(at: Place) -> None:
    at("acls", "--add", "--allow-principal", "User:cy", "--operation", "Read", "--topic", f"{at.name}-acl")
    at(
        "acls", "--add", "--deny-principal", "User:*", "--operation", "All", "--group", f"{at.name}-",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    listed = at("acls", "--list")
    assert f"name={at.name}-acl, patternType=LITERAL" in listed
    assert f"name={at.name}-, patternType=PREFIXED" in listed
    for kind, name, pattern in (("--topic", f"{at.name}-acl", "literal"), ("--group", f"{at.name}-", "prefixed")):
        at("acls", "--remove", "--force", kind, name, "--resource-pattern-type", pattern)
    assert f"name={at.name}-" not in at("acls", "--list")


@case("console-producer")
def _(at: Place) -> None:
    topic = f"{at.name}-console"
    at("topics", "--create", "--topic", topic)
    at("console-producer", "--topic", topic, stdin="one\ntwo\n")
    assert at("get-offsets", "--topic", topic).split() == [f"{topic}:0:2"]


@case("console-consumer")
def _(at: Place) -> None:
    # It counts its messages in the class: it ends by time where it has run before.
    read = at(
        "console-consumer", "--topic", at.name, "--from-beginning", "--timeout-ms", "3000", "--group",
        f"{at.name}-console",
    )  # fmt: skip
    numbers = {line for line in read.split() if line.isdigit()}
    assert numbers >= {str(each) for each in range(RECORDS)}


@case("producer-perf-test", "consumer-perf-test")
def _(at: Place) -> None:
    topic = f"{at.name}-perf"
    at("topics", "--create", "--topic", topic)
    said = at(
        "producer-perf-test", "--topic", topic, "--num-records", "5000", "--record-size", "512", "--throughput", "-1"
    )
    assert "5000 records sent" in said
    read = at("consumer-perf-test", "--topic", topic, "--num-records", "5000", "--hide-header")
    assert any(line.split(",")[4].strip() == "5000" for line in read.splitlines() if line.count(",") > 5), read


@case("verifiable-producer", "verifiable-consumer")
def _(at: Place) -> None:
    topic = f"{at.name}-verifiable"
    at("topics", "--create", "--topic", topic)
    said = at.alone("verifiable-producer", "--topic", topic, "--max-messages", "50", "--acks", "-1")
    assert said.count("producer_send_success") == 50
    read = at.alone(
        "verifiable-consumer", "--topic", topic, "--group-id", topic, "--max-messages", "50",
        "--reset-policy", "earliest",
    )  # fmt: skip
    assert "records_consumed" in read and '"success":true' in read


@case("get-offsets")
def _(at: Place) -> None:
    ends = at("get-offsets", "--topic", at.name).split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == RECORDS


@case("consumer-groups", "groups")
def _(at: Place) -> None:
    group, topic = f"{at.name}-group", f"{at.name}-grouped"
    at("topics", "--create", "--topic", topic)
    at("console-producer", "--topic", topic, stdin="one\ntwo\n")
    to = ("--group", group, "--topic", topic, "--execute", "--reset-offsets")
    at("consumer-groups", *to, "--to-latest")
    assert group in at("consumer-groups", "--list").split()
    described = at("consumer-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+2\s+2\s+0", described), described
    at("consumer-groups", *to, "--to-earliest")
    described = at("consumer-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+0\s+2\s+2", described), described
    assert group in at("groups", "--list")
    at("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    at("consumer-groups", "--delete", "--group", group)
    assert group not in at("consumer-groups", "--list").split()


@case("delete-records")
def _(at: Place) -> None:
    topic = f"{at.name}-shortened"
    at("topics", "--create", "--topic", topic)
    at("console-producer", "--topic", topic, stdin="one\ntwo\nthree\n")
    wanted = f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 2}}], "version": 1}}'
    assert "low_watermark: 2" in at("delete-records", "--offset-json-file", at.json("delete.json", wanted))
    assert at("get-offsets", "--topic", topic, "--time", "-2").split() == [f"{topic}:0:2"]


@case("leader-election")
def _(at: Place) -> None:
    said = at("leader-election", "--election-type", "preferred", "--topic", at.name, "--partition", "0")
    assert f"{at.name}-0" in said


@case("reassign-partitions")
def _(at: Place) -> None:
    topics = at.json("topics.json", f'{{"topics": [{{"topic": "{at.name}"}}], "version": 1}}')
    proposed = at("reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1")
    plan = at.json("plan.json", proposed.splitlines()[-1])
    assert "Successfully started" in at("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert "is completed" in at("reassign-partitions", "--verify", "--reassignment-json-file", plan)
    assert "No partition reassignments found." in at("reassign-partitions", "--list")


@case("log-dirs")
def _(at: Place) -> None:
    assert f'"{at.name}-1"' in at("log-dirs", "--describe", "--topic-list", at.name)


@case("broker-api-versions")
def _(at: Place) -> None:
    said = at("broker-api-versions")
    assert said.startswith(at.bootstrap) and "SaslHandshake(17): 0 to 1" in said


@case("cluster")
def _(at: Place) -> None:
    assert "Cluster ID: " in at.behind("cluster", "cluster-id")
    assert str(at.bootstrap.rpartition(":")[2]) in at.behind("cluster", "list-endpoints")


@case("features")
def _(at: Place) -> None:
    assert "Feature: metadata.version" in at("features", "describe")


@case("metadata-quorum")
def _(at: Place) -> None:
    assert re.search(r"LeaderId: +1\b", at("metadata-quorum", "describe", "--status"))
    assert "Leader" in at("metadata-quorum", "describe", "--replication")


@case("transactions")
def _(at: Place) -> None:
    assert "TransactionalId" in at("transactions", "list")
    assert "ProducerId" in at("transactions", "describe-producers", "--topic", at.name, "--partition", "0")
    assert "CoordinatorEpoch" in at("transactions", "find-hanging", "--broker-id", "1")


@case("e2e-latency")
def _(at: Place) -> None:
    topic = f"{at.name}-latency"
    at("topics", "--create", "--topic", topic)
    said = at("e2e-latency", "--topic", topic, "--num-records", "50", "--producer-acks", "all", "--record-size", "100")
    assert "Percentiles" in said


@case("delegation-tokens")
def _(at: Place) -> None:
    made = at("delegation-tokens", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = TOKEN.search(made)
    assert found, made
    token, hmac = found.groups()
    assert token in at("delegation-tokens", "--describe", "--owner-principal", "User:ann")
    assert "Completed renew" in at("delegation-tokens", "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed expire" in at("delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token not in at("delegation-tokens", "--describe")


@case("streams-application-reset")
def _(at: Place) -> None:
    application = f"{at.name}-streams"
    internal = f"{application}-KSTREAM-REDUCE-STATE-STORE-0000000003-changelog"
    at("topics", "--create", "--topic", internal)
    said = at(
        "streams-application-reset", "--application-id", application, "--input-topics", at.name, "--to-earliest",
        "--force",
    )  # fmt: skip
    assert f"Following input topics offsets will be reset to (for consumer group {application})" in said, said
    assert internal not in at("topics", "--list").split()


@case("client-metrics")
def _(at: Place) -> None:
    """Kept in the metadata; no client is asked for its metrics yet."""
    at("client-metrics", "--alter", "--name", f"{at.name}-metrics", "--interval", "60000")
    assert "interval.ms=60000" in at("client-metrics", "--describe", "--name", f"{at.name}-metrics")
    at("client-metrics", "--delete", "--name", f"{at.name}-metrics")


@case("share-groups")
def _(at: Place) -> None:
    assert at("share-groups", "--list").split() == []


@case("streams-groups")
def _(at: Place) -> None:
    assert at("streams-groups", "--list").split() == []


@pytest.mark.parametrize(
    "tools",
    [pytest.param(each, id=each[0], marks=() if each[0] in THIN else pytest.mark.soak) for each in CASES],
)
def test_tool(place: Place, tools: tuple[str, ...]) -> None:
    CASES[tools](place)


def test_every_tool_has_its_case() -> None:
    assert {tool for tools in CASES for tool in tools} == {*TOOLS, "configs"} - WITHOUT_FILE - NOT_SERVED


def test_nobody_gets_in_without(places: dict[str, Place]) -> None:
    """The same tool and listener, but with a wrong password, or without a certificate."""
    for place, wrong, said in (
        (places["SASL_SSL"], (PASSWORD, "wrong"), "SaslAuthenticationException"),
        (places["mutual TLS"], ("ssl.keystore", "ssl.no"), "SslAuthenticationException"),
    ):
        quick = "\ndefault.api.timeout.ms=8000\nrequest.timeout.ms=8000\n"
        file = place.json("wrong.properties", Path(place.file).read_text().replace(*wrong) + quick)
        where = ("--bootstrap-server", place.bootstrap, "--command-config", file)
        done = place.tools.run("topics", *where, "--list")
        assert done.status != 0 and said in done.text, done.text

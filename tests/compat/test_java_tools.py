"""Kafka's own Java tools against our broker, unmodified."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import kafka_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools."
Fresh = Callable[[str], str]


def tool(ours: HeadracePeer, name: str, *arguments: str, stdin: str | None = None) -> str:
    done = kafka_tool(TOOLS + name, "--bootstrap-server", ours.bootstrap, *arguments, stdin=stdin)
    return done.stdout


def test_kafka_topics(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("tool-topics")
    made = tool(
        ours, "TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=1234"
    )
    assert f"Created topic {topic}." in made
    assert topic in tool(ours, "TopicCommand", "--list").split()
    tool(ours, "TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    described = tool(ours, "TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 5" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=1234" in described
    assert described.count("Isr: 1") == 5
    tool(ours, "TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool(ours, "TopicCommand", "--list").split()


def test_kafka_configs(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("tool-configs")
    tool(ours, "TopicCommand", "--create", "--topic", topic)

    def configs(*arguments: str) -> str:
        return kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", ours.bootstrap, *arguments).stdout

    about_topic = ("--entity-type", "topics", "--entity-name", topic)
    configs("--alter", *about_topic, "--add-config", "retention.ms=999,cleanup.policy=[compact,delete]")
    described = configs("--describe", *about_topic)
    assert "retention.ms=999" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", *about_topic, "--delete-config", "retention.ms")
    assert "retention.ms=999" not in configs("--describe", *about_topic)
    every_broker = ("--entity-type", "brokers", "--entity-default")
    configs("--alter", *every_broker, "--add-config", "log.retention.ms=777777")
    assert "log.retention.ms=777777" in configs("--describe", *every_broker)
    assert "advertised.listeners" in configs("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    configs("--alter", *every_broker, "--delete-config", "log.retention.ms")


def test_kafka_configs_of_users(ours: HeadracePeer, fresh: Fresh) -> None:
    user = fresh("tool-user")

    def configs(*arguments: str) -> str:
        about = ("--entity-type", "users", "--entity-name", user)
        return kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", ours.bootstrap, *arguments, *about).stdout

    configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=pencil]")
    configs("--alter", "--add-config", "SCRAM-SHA-512=[password=pen]")  # one a request, as with Kafka
    described = configs("--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described and "SCRAM-SHA-512=iterations=4096" in described
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in configs("--describe")


def test_console_producer_consumer_offsets_and_groups(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = fresh("tool-console"), fresh("tool-group")
    tool(ours, "TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    lines = "".join(f"{number}:value-{number}\n" for number in range(20))
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool(ours, "ConsoleProducer", "--topic", topic, *keyed, stdin=lines)
    got = tool(
        ours, "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "20",
        "--group", group, "--timeout-ms", "30000",
    )  # fmt: skip
    assert sorted(got.split()) == sorted(f"value-{number}" for number in range(20))
    ends = tool(ours, "GetOffsetShell", "--topic", topic)
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.split()) == 20
    assert group in tool(ours, "consumer.group.ConsumerGroupCommand", "--list").split()
    described = tool(ours, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 20
    assert all(row[5] == "0" for row in rows)
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    tool(ours, "consumer.group.ConsumerGroupCommand", *reset)
    described = tool(ours, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[5]) for row in rows) == 20
    tool(ours, "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in tool(ours, "consumer.group.ConsumerGroupCommand", "--list").split()


def test_perf_tools(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("tool-perf")
    tool(ours, "TopicCommand", "--create", "--topic", topic)
    produced = tool(
        ours, "ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "1024",
        "--throughput", "-1", "--command-property", "acks=all", "batch.size=131072",
    )  # fmt: skip
    assert "20000 records sent" in produced
    consumed = tool(ours, "ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--hide-header")
    assert int(consumed.strip().splitlines()[-1].split(",")[4]) >= 20000
    said = kafka_tool(TOOLS + "EndToEndLatency", ours.bootstrap, topic, "200", "all", "100").stdout
    assert "Percentiles" in said


def test_verifiable_producer_and_consumer(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("tool-verifiable")
    tool(ours, "TopicCommand", "--create", "--topic", topic)
    produced = tool(ours, "VerifiableProducer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in produced.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    consumed = tool(
        ours, "VerifiableConsumer", "--topic", topic, "--group-id", fresh("verifiable"), "--max-messages", "500",
        "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    assert any(event["name"] == "offsets_committed" and event["success"] for event in events)


def test_tools_that_ask_about_the_cluster(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("tool-cluster")
    tool(ours, "TopicCommand", "--create", "--topic", topic)
    assert re.search(r"LeaderId: +1\b", tool(ours, "MetadataQuorumCommand", "describe", "--status"))
    assert "Cluster ID" in kafka_tool(TOOLS + "ClusterTool", "cluster-id", "--bootstrap-server", ours.bootstrap).stdout
    assert "metadata.version" in tool(ours, "FeatureCommand", "describe")
    versions = tool(ours, "BrokerApiVersionsCommand")
    assert "Produce(0): 0 to " in versions
    assert "UNSUPPORTED" not in versions.split("Fetch(1)")[0]
    dirs = tool(ours, "LogDirsCommand", "--describe", "--topic-list", topic)
    assert f'"{topic}-0"' in dirs

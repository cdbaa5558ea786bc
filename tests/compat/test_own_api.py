"""An API of our own in ApiVersions disturbs no client: each, as it comes, writes and reads beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker.raw import Raw
from confluent_kafka.admin import AdminClient, NewTopic
from peers import programs
from peers.failing_over import PATIENCE_S, Program
from peers.headrace import HeadracePeer
from peers.kafka import kafka_tool

from headrace.wire.apis import ApiKey
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

Fresh = Callable[[str], str]
OWN = ApiKey.HEADRACE_GROUP_END_TXN
PARTITIONS = 2


def _marks(name: str) -> list[pytest.MarkDecorator]:
    """What is built with another language's tools is for those who have them."""
    if name in programs.TOOLS:
        return [pytest.mark.soak]
    return [pytest.mark.jvm, pytest.mark.slow] if name == "java" else [pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in programs.NAMES])
def test_a_client_takes_no_notice(ours: HeadracePeer, fresh: Fresh, name: str) -> None:
    """A producer and a member of a group in each language, as `peers.programs` has them."""
    why = programs.missing(name)
    if why:
        pytest.skip(why)
    with Raw(ours.port) as raw:
        assert OWN in {each.api_key for each in raw.ask(ApiVersionsRequest("headrace", "1"), 3).api_keys}
    topic = fresh(name.replace("_", "-"))
    admin = AdminClient({"bootstrap.servers": ours.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
    with Program(name, ours.bootstrap, topic, PARTITIONS, ours.directory / f"{topic}.err") as client:
        client.goes_on()
        client.finish()
    client.check(once=True)
    assert client.notes == []


@pytest.mark.jvm
@pytest.mark.slow
def test_kafkas_tool_lists_it_as_unknown(ours: HeadracePeer) -> None:
    """It sets aside what it has no name for, and says so; its clients and brokers read ApiVersions with the same class
    (the mixed clusters of `test_mixed_brokers` have it on every connection between nodes)."""
    tool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    told = kafka_tool(tool, "--bootstrap-server", ours.bootstrap).stdout
    assert f"UNKNOWN({OWN.value}): 0" in told
    assert "UNSUPPORTED" not in told.split("Fetch(1)")[0]

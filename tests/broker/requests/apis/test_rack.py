"""`broker.rack`: what is registered, and what clients are told of it."""

from __future__ import annotations

from pathlib import Path

from broker.raw import Raw

from headrace.testing import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest

BROKER = 4


def told(served: TestBroker) -> list[str | None]:
    """The rack, as the image has it and as each answer that carries racks tells it."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=["broker.rack"])
    with Raw(served.port) as raw:
        return [
            served.call(lambda broker: broker.image.brokers[1].rack),
            raw.ask(MetadataRequest(topics=[]), 1).brokers[0].rack,
            raw.ask(MetadataRequest(topics=[]), 13).brokers[0].rack,
            raw.ask(DescribeClusterRequest(), 2).brokers[0].rack,
            raw.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0].value,
        ]


def test_a_rack_is_registered_and_told(tmp_path: Path) -> None:
    """Registered at each start: another rack is told from the next start on, none when the file names none."""
    for rack in ("hall-1", "hall-2", None):
        settings = {} if rack is None else {"broker.rack": rack}
        with running_broker(settings, data=tmp_path) as served:
            assert told(served) == [rack] * 5
            with served.client() as client:
                client.topics()
                assert client.nodes[1].rack == rack

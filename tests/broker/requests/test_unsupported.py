"""What handlers' headers call unsupported: a client that asks for it gets an error, which says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw
from compat.kafka_says.quotas import alter

from headrace.broker.requests import apis
from headrace.metadata import levels
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k33_alter_configs import AlterableConfig as WholeConfig
from headrace.wire.messages.k33_alter_configs import AlterConfigsRequest
from headrace.wire.messages.k33_alter_configs import AlterConfigsResource as WholeResource
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

BROKER = 4
LISTENERS = "PLAINTEXT://127.0.0.1:1"
SHARE_GROUP = 2
UNSAFE_DOWNGRADE = 3

Answer = tuple[int, str | None]


def whole_listeners(raw: Raw) -> Answer:
    resource = WholeResource(resource_type=BROKER, resource_name="1", configs=[WholeConfig("listeners", LISTENERS)])
    (answer,) = raw.ask(AlterConfigsRequest(resources=[resource]), 2).responses
    return answer.error_code, answer.error_message


def single_listeners(raw: Raw) -> Answer:
    setting = AlterableConfig(name="listeners", config_operation=0, value=LISTENERS)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[setting])
    (answer,) = raw.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return answer.error_code, answer.error_message


def lower_metadata_version(raw: Raw) -> Answer:
    announced = raw.ask(ApiVersionsRequest("t", "1"), 3)
    (level,) = [each.max_version_level for each in announced.finalized_features if each.name == levels.METADATA_VERSION]
    update = FeatureUpdateKey(
        feature=levels.METADATA_VERSION, max_version_level=level - 1, upgrade_type=UNSAFE_DOWNGRADE
    )
    answer = raw.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
    return answer.error_code, answer.error_message


def share_coordinator(raw: Raw) -> Answer:
    asked = FindCoordinatorRequest(key_type=SHARE_GROUP, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
    (answer,) = raw.ask(asked, 6).coordinators
    return answer.error_code, answer.error_message


def two_phase_producer(raw: Raw) -> Answer:
    """A frame of version 5 that says it is of version 6; the broker closes the connection, as Kafka does."""
    frame = bytearray(raw.frame(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 5))
    frame[6:8] = (6).to_bytes(2, "big")
    raw.socket.sendall(frame)
    assert raw.is_closed()
    return ErrorCode.UNSUPPORTED_VERSION, "closed"


def host_by_name(raw: Raw) -> Answer:
    entries: list[Any] = [([("ip", "localhost")], [("connection_creation_rate", 8.0)])]
    ((code, _),) = alter(raw, entries)
    return code, None


REFUSED: dict[ApiKey, tuple[Callable[[Raw], Answer], ErrorCode]] = {
    ApiKey.FIND_COORDINATOR: (share_coordinator, ErrorCode.INVALID_REQUEST),
    ApiKey.INIT_PRODUCER_ID: (two_phase_producer, ErrorCode.UNSUPPORTED_VERSION),
    ApiKey.ALTER_CONFIGS: (whole_listeners, ErrorCode.INVALID_REQUEST),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (single_listeners, ErrorCode.INVALID_REQUEST),
    ApiKey.ALTER_CLIENT_QUOTAS: (host_by_name, ErrorCode.INVALID_REQUEST),
    ApiKey.UPDATE_FEATURES: (lower_metadata_version, ErrorCode.INVALID_UPDATE_VERSION),
}


@pytest.fixture(scope="module")
def fresh() -> Iterator[TestBroker]:
    with running_broker() as broker:
        yield broker


def test_every_header_that_names_something_unsupported_has_a_request_here() -> None:
    folder = Path(apis.__file__).parent
    named = {
        key
        for key, api in APIS.items()
        if (file := folder / f"{api.module}.py").exists()
        and re.search(r"^Unsupported: ", file.read_text("utf-8"), re.MULTILINE)
    }
    assert named == set(REFUSED)


@pytest.mark.parametrize("key", sorted(REFUSED), ids=lambda key: ApiKey(key).name)
def test_what_a_header_calls_unsupported_is_refused(fresh: TestBroker, key: ApiKey) -> None:
    ask, expected = REFUSED[key]
    with Raw(fresh.port) as raw:
        code, message = ask(raw)
        assert ErrorCode(code) == expected, message

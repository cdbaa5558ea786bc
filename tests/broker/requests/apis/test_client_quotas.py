"""AlterClientQuotas and DescribeClientQuotas over the wire; what Kafka says to the same is in `compat/test_quotas`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw
from compat.kafka_says.quotas import ALTERATIONS, FILTERS, alter, describe

from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest


@pytest.fixture
def fresh() -> Iterator[TestBroker]:
    with running_broker() as broker:
        yield broker


def test_they_are_announced(fresh: TestBroker) -> None:
    with Raw(fresh.port) as raw:
        keys = {api.api_key: api.max_version for api in raw.ask(ApiVersionsRequest("t", "1"), 3).api_keys}
    assert keys[48] == keys[49] == 1


@pytest.mark.parametrize("version", [0, 1])
def test_what_was_set_is_found_by_every_kind_of_filter(fresh: TestBroker, version: int) -> None:
    with Raw(fresh.port) as raw:
        both = [("client-id", "c"), ("user", "u")]
        entries: list[Any] = [
            ([("user", "u")], [("producer_byte_rate", 5.0)]),
            ([("user", None)], [("consumer_byte_rate", 6.0)]),
            (both, [("request_percentage", 0.5), ("consumer_byte_rate", 7.0)]),
            ([("ip", None)], [("connection_creation_rate", 8.0)]),
        ]
        assert [code for code, _ in alter(raw, entries, version=version)] == [0, 0, 0, 0]

        def found(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
            code, entities = describe(raw, components, strict, version)
            assert code == 0 and entities is not None
            return entities

        of_user = ([("user", "u")], [("producer_byte_rate", 5.0)])
        of_default = ([("user", None)], [("consumer_byte_rate", 6.0)])
        of_both = (both, [("consumer_byte_rate", 7.0), ("request_percentage", 0.5)])
        of_ip = ([("ip", None)], [("connection_creation_rate", 8.0)])
        assert found() == [of_both, of_ip, of_user, of_default]
        assert found(strict=True) == []
        assert found(("user", 2, None)) == [of_both, of_user, of_default]
        assert found(("user", 2, None), strict=True) == [of_user, of_default]
        assert found(("user", 0, "u")) == [of_both, of_user]
        assert found(("user", 1, None)) == [of_default]
        assert found(("user", 0, "u"), ("client-id", 2, None), strict=True) == [of_both]
        assert found(("ip", 1, None), strict=True) == [of_ip]
        assert found(("ip", 0, "1.2.3.4")) == []


def test_what_is_only_validated_is_not_kept(fresh: TestBroker) -> None:
    with Raw(fresh.port) as raw:
        entries: list[Any] = [([("user", "u")], [("producer_byte_rate", 5.0)])]
        assert alter(raw, entries, validate_only=True) == [(0, [("user", "u")])]
        assert describe(raw, ()) == (0, [])


def test_quotas_outlive_the_broker(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as broker, Raw(broker.port) as raw:
        assert alter(raw, [([("user", "u")], [("producer_byte_rate", 5.0)])])[0][0] == 0
    with running_broker(data=tmp_path) as broker, Raw(broker.port) as raw:
        assert describe(raw, ()) == (0, [([("user", "u")], [("producer_byte_rate", 5.0)])])


def test_nothing_that_can_be_asked_is_a_defect(fresh: TestBroker) -> None:
    with Raw(fresh.port) as raw:
        for entries in ALTERATIONS:
            for code, _ in alter(raw, entries):
                assert code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
        for components, strict in FILTERS:
            assert describe(raw, components, strict)[0] in (0, ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)

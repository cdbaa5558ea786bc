"""The nearest quota counts, alone, in a bucket of those that share it."""

from __future__ import annotations

import pytest

from headrace.metadata import client_quotas as names
from headrace.security.quotas.lookup import BucketName, Limit, QuotaTable
from headrace.wire.messages.metadata_records import ClientQuotaRecord

STEPS: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
    ({names.USER: "u", names.CLIENT_ID: "c"}, ("u", "c")),
    ({names.USER: "u", names.CLIENT_ID: None}, ("u", "c")),
    ({names.USER: "u"}, ("u", None)),
    ({names.USER: None, names.CLIENT_ID: "c"}, ("u", "c")),
    ({names.USER: None, names.CLIENT_ID: None}, ("u", "c")),
    ({names.USER: None}, ("u", None)),
    ({names.CLIENT_ID: "c"}, (None, "c")),
    ({names.CLIENT_ID: None}, (None, "c")),
]


def table(*quotas: tuple[dict[str, str | None], str, float]) -> QuotaTable:
    return QuotaTable(
        {(names.entity_of(of), key): ClientQuotaRecord(key=key, value=value) for of, key, value in quotas}
    )


@pytest.mark.parametrize("first", range(len(STEPS)))
def test_of_those_that_are_left_the_first_counts(first: int) -> None:
    found = table(*((of, names.FETCH, float(n)) for n, (of, _) in enumerate(STEPS) if n >= first))
    assert found.find(names.FETCH, "u", "c") == Limit(BucketName(names.FETCH, *STEPS[first][1]), float(first))
    assert found.find(names.PRODUCE, "u", "c") is None


def test_who_has_no_quota_has_none() -> None:
    found = table(({names.USER: "u"}, names.REQUEST, 5.0), ({names.CLIENT_ID: "c"}, names.REQUEST, 7.0))
    assert found.find(names.REQUEST, "v", "d") is None
    assert found.find(names.REQUEST, "v", "c") == Limit(BucketName(names.REQUEST, None, "c"), 7.0)
    assert found.limits_clients and not found.limits_addresses


def test_a_client_without_an_id_is_none_of_those_that_have_one() -> None:
    found = table(
        ({names.USER: "u"}, names.PRODUCE, 1.0), ({names.USER: "u", names.CLIENT_ID: None}, names.PRODUCE, 2.0)
    )
    assert found.find(names.PRODUCE, "u", "") == Limit(BucketName(names.PRODUCE, "u", ""), 2.0)


def test_addresses_have_a_rate_of_their_own_or_the_default() -> None:
    found = table(({names.IP: "10.0.0.1"}, names.CONNECTION, 3.0), ({names.IP: None}, names.CONNECTION, 9.0))
    assert found.connection_rate("10.0.0.1") == 3.0
    assert found.connection_rate("10.0.0.2") == 9.0
    assert found.limits_addresses and not found.limits_clients
    assert table().connection_rate("10.0.0.1") is None


def test_an_address_may_be_written_in_many_ways() -> None:
    found = table(
        ({names.IP: "0:0:0:0:0:0:0:1"}, names.CONNECTION, 3.0), ({names.IP: "::ffff:1.2.3.4"}, names.CONNECTION, 4.0)
    )
    assert found.connection_rate("::1") == 3.0
    assert found.connection_rate("1.2.3.4") == found.connection_rate("::ffff:1.2.3.4") == 4.0
    assert found.connection_rate("1.2.3.5") is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_limits_nothing(value: float) -> None:
    found = table(({names.USER: "u"}, names.PRODUCE, value), ({names.USER: None}, names.PRODUCE, 5.0))
    assert found.find(names.PRODUCE, "u", "c") == Limit(BucketName(names.PRODUCE, "u", None), 5.0)


def test_a_key_of_a_later_release_limits_nothing() -> None:
    found = table(({names.USER: "u"}, "share_rate", 3.0), ({"share-group": "g"}, names.PRODUCE, 3.0))
    assert found.find(names.PRODUCE, "u", "c") is None

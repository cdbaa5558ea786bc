"""The controller's decisions on ACLs: what is written, once each, all or none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller import acls as under_test
from headrace.controller.acls import decide_create_acls, decide_delete_acls
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, ApiError, ControllerContext
from headrace.metadata.acls import EVERY_ACL, AclBinding, AclFilter, binding_of
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

READ = AclBinding(2, "t", 3, "User:a", "*", 3, 3)
WRITE = READ._replace(operation=4)
BAD = READ._replace(name="")
MATCH = 2
NAMES = st.sampled_from(["*", "a", "ab", "abc", "b"])
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*"])
HOSTS = st.sampled_from(["*", "1.2.3.4"])


def context(ids: Sequence[int] = ()) -> ControllerContext:
    numbers = itertools.chain(ids, itertools.count(100))
    rules = SettingsRules(BrokerConfig.load({}))
    return ControllerContext(1, 1, 1, rules, lambda: next(numbers).to_bytes(16, "big"))


def after(image: ClusterImage, records: Sequence[object]) -> ClusterImage:
    delta = ImageDelta(image)
    delta.apply_all(records)
    return delta.image(offset=image.offset + len(records), epoch=1, timestamp_ms=0)


def holds(image: ClusterImage) -> set[AclBinding]:
    return {binding_of(record) for record in image.kept.acls.values()}


def test_each_is_stored_once_under_an_id_of_its_own() -> None:
    decision = decide_create_acls(ClusterImage(), [READ, BAD, WRITE, READ], context())
    assert [each.code for each in decision.reply] == [0, ErrorCode.INVALID_REQUEST, 0, 0]
    image = after(ClusterImage(), decision.records)
    assert holds(image) == {READ, WRITE}
    again = decide_create_acls(image, [WRITE, READ], context())
    assert [each.code for each in again.reply] == [0, 0]
    assert again.records == []


def test_an_id_that_is_taken_is_drawn_again() -> None:
    image = after(ClusterImage(), decide_create_acls(ClusterImage(), [READ], context([7])).records)
    more = [READ._replace(name=name) for name in "xy"]
    decision = decide_create_acls(image, more, context([7, 8, 8, 7, 9]))
    assert [int.from_bytes(record.id, "big") for record in decision.records] == [8, 9]


def test_what_is_deleted_goes_in_one_order_in_every_process() -> None:
    """The order of a set of names is each process's own, and these records are replicated."""
    names = [("abcd", 4), ("a", 4), ("*", 3), ("abc", 4), ("abcde", 3), ("ab", 4), ("other", 3)]
    acls = [READ._replace(name=name, pattern_type=pattern) for name, pattern in names]
    image = after(ClusterImage(), decide_create_acls(ClusterImage(), acls, context(range(7))).records)
    found = decide_delete_acls(image, [AclFilter(2, "abcde", MATCH, None, None, 1, 1)])
    gone = [names[int.from_bytes(record.id, "big")][0] for record in found.records]
    assert gone == ["abcde", "*", "a", "ab", "abc", "abcd"]


def test_too_many_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MAX_RECORDS_PER_REQUEST", 2)
    monkeypatch.setattr(under_test, "ACLS_MAX", 2)
    three = [READ._replace(name=name) for name in "abc"]
    refused = decide_create_acls(ClusterImage(), [*three, BAD], context())
    assert refused.records == ()
    assert {each.code for each in refused.reply} == {ErrorCode.POLICY_VIOLATION}
    image = ClusterImage()
    for acl in three:
        image = after(image, decide_create_acls(image, [acl], context([ord(acl.name)])).records)
    gone = decide_delete_acls(image, [EVERY_ACL._replace(name="a"), EVERY_ACL])
    assert gone.records == ()
    assert [each.code for each in gone.reply if isinstance(each, ApiError)] == [ErrorCode.INVALID_REQUEST] * 2


def test_what_filters_find_goes_once_and_is_named_by_each() -> None:
    image = after(ClusterImage(), decide_create_acls(ClusterImage(), [WRITE, READ], context()).records)
    wanted = [EVERY_ACL._replace(operation=3), EVERY_ACL._replace(permission=0), EVERY_ACL]
    decision = decide_delete_acls(image, wanted)
    first, second, third = decision.reply
    assert first == [READ]
    assert isinstance(second, ApiError) and second.code is ErrorCode.INVALID_REQUEST
    assert third == [READ, WRITE]
    assert [type(record) for record in decision.records] == [RemoveAccessControlEntryRecord] * 2
    assert holds(after(image, decision.records)) == set()
    assert decide_delete_acls(ClusterImage(), wanted[:1]).reply == [[]]


def test_one_that_another_release_stored_twice_goes_twice() -> None:
    """Two records may say the same: whoever removes it, removes both."""
    twice = [AccessControlEntryRecord(bytes([n]) * 16, *READ) for n in (1, 2)]
    decision = decide_delete_acls(after(ClusterImage(), twice), [EVERY_ACL])
    assert {record.id for record in decision.records} == {b"\x01" * 16, b"\x02" * 16}


def test_many_filters_do_not_look_at_all_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [READ._replace(name=f"t{n}", principal=f"User:{n}", host=str(n)) for n in range(300)]
    image = after(ClusterImage(), decide_create_acls(ClusterImage(), some, context()).records)
    looked = 0
    finds = AclFilter.finds

    def counted(wanted: AclFilter, acl: AclBinding) -> bool:
        nonlocal looked
        looked += 1
        return finds(wanted, acl)

    monkeypatch.setattr(AclFilter, "finds", counted)
    for filters in (
        [EVERY_ACL._replace(name=acl.name) for acl in some],
        [EVERY_ACL._replace(principal=acl.principal) for acl in some],
        [EVERY_ACL._replace(host=acl.host) for acl in some],
    ):
        looked = 0
        assert decide_delete_acls(image, filters).reply == [[acl] for acl in some]
        assert looked == 300
    looked = 0
    assert len(some) * 33 < MAX_RECORDS_PER_REQUEST < len(some) * 34
    for times, code in ((33, 0), (34, ErrorCode.INVALID_REQUEST)):
        named = decide_delete_acls(image, [EVERY_ACL] * times).reply  # by each filter, however few ACLs they are
        assert {each.code if isinstance(each, ApiError) else 0 for each in named} == {code}
    looked = 0
    by_match = [EVERY_ACL._replace(pattern_type=MATCH, name=f"t{n}") for n in range(300)]
    assert decide_delete_acls(image, [*by_match, EVERY_ACL, EVERY_ACL]).reply[:300] == [[acl] for acl in some]
    assert looked == 600


@given(
    st.lists(
        st.builds(AclBinding, st.just(2), NAMES, st.sampled_from([3, 4]), PRINCIPALS, HOSTS, st.just(3), st.just(3)),
        max_size=30,
    ),
    st.builds(
        AclFilter,
        st.just(2),
        st.none() | NAMES,
        st.sampled_from([1, 2, 3, 4]),
        st.none() | PRINCIPALS,
        st.none() | HOSTS,
        st.just(3),
        st.just(3),
    ),
)
def test_a_filter_finds_what_it_would_among_all(stored: list[AclBinding], wanted: AclFilter) -> None:
    image = after(ClusterImage(), decide_create_acls(ClusterImage(), stored, context()).records)
    assert (
        decide_delete_acls(image, [wanted, wanted]).reply
        == [sorted(acl for acl in set(stored) if wanted.finds(acl))] * 2
    )

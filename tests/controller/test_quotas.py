"""The controller sets and removes quotas, each entity as a whole or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.quotas import CHANGES_MAX, QuotaAlteration, decide_alter_quotas
from headrace.metadata import client_quotas as names
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.wire.errors import ErrorCode

OK, BAD = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


def applied(image: ClusterImage, records: Any) -> ClusterImage:
    replay = Replay(image)
    for record in records:
        replay.apply(record)
    replay.advance(offset=image.offset + len(records), epoch=1, timestamp_ms=0)
    return replay.finish()


def alter(
    image: ClusterImage, *alterations: QuotaAlteration, validate_only: bool = False
) -> tuple[ClusterImage, list[ErrorCode]]:
    decision = decide_alter_quotas(image, alterations, validate_only=validate_only)
    image = applied(image, decision.records)
    while decision.then is not None:
        decision = decision.then(image)
        image = applied(image, decision.records)
    return image, [answer.code for answer in decision.reply]


def user(name: str | None, *changes: tuple[str, float | None]) -> QuotaAlteration:
    return QuotaAlteration(((names.USER, name),), changes)


def held(image: ClusterImage) -> dict[tuple[names.Entity, str], float]:
    return {key: record.value for key, record in image.kept.quotas.items()}


def test_quotas_are_set_altered_and_removed() -> None:
    image, answers = alter(ClusterImage(), user("ann", (names.PRODUCE, 10.0), (names.REQUEST, 0.5)), user(None))
    assert answers == [OK, OK]
    ann = names.entity_of({names.USER: "ann"})
    assert held(image) == {(ann, names.PRODUCE): 10.0, (ann, names.REQUEST): 0.5}
    image, _ = alter(image, user("ann", (names.PRODUCE, 20.0), (names.REQUEST, None), (names.FETCH, None)))
    assert held(image) == {(ann, names.PRODUCE): 20.0}
    assert not decide_alter_quotas(image, [user("ann", (names.PRODUCE, 20.0))]).records, "nothing changes"
    image, _ = alter(image, user("ann", (names.PRODUCE, None)))
    assert held(image) == {}


def test_what_is_only_validated_is_not_written() -> None:
    image, answers = alter(
        ClusterImage(), user("ann", (names.PRODUCE, 10.0)), user("bob", (names.PRODUCE, 0.0)), validate_only=True
    )
    assert answers == [OK, BAD]
    assert held(image) == {}


def test_an_entity_has_a_bounded_number_of_changes() -> None:
    """All of one entity are checked together."""
    many = [(f"n{number}", None) for number in range(CHANGES_MAX + 1)]
    _, answers = alter(ClusterImage(), user("ann", *many[1:]), user("bob", *many), user("joe", (names.PRODUCE, 1.0)))
    assert answers == [OK, BAD, OK]


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ((names.USER, ""),),
        (("group", "g"),),
        ((names.USER, "a"), (names.USER, "b")),
        ((names.USER, "a"), (names.IP, "1.2.3.4")),
        ((names.CLIENT_ID, None), (names.IP, None)),
        ((names.IP, "no such host!"),),
        ((names.IP, "256.1.1.1"),),
    ],
)
def test_an_entity_that_cannot_be(parts: tuple[tuple[str, str | None], ...]) -> None:
    key = names.CONNECTION if names.IP in dict(parts) else names.PRODUCE
    image, answers = alter(ClusterImage(), QuotaAlteration(parts, [(key, 1.0)]))
    assert answers == [BAD]
    assert held(image) == {}


@pytest.mark.parametrize(
    "changes",
    [
        [(names.PRODUCE, 0.0)],
        [(names.PRODUCE, -1.0)],
        [(names.FETCH, 1.5)],
        [(names.FETCH, 1e30)],
        [(names.REQUEST, float("nan"))],
        [(names.CONNECTION, 1.0)],
        [("nonsense", 1.0)],
        [(names.PRODUCE, 1.0), (names.PRODUCE, 2.0)],
        [(names.PRODUCE, 1.0), ("nonsense", 2.0), (names.FETCH, 5.0)],
    ],
)
def test_quotas_that_cannot_be(changes: list[tuple[str, float | None]]) -> None:
    image, answers = alter(ClusterImage(), user("ann", *changes), user("bob", (names.PRODUCE, 1.0)))
    assert answers == [BAD, OK]
    assert [entity for entity, _ in held(image)] == [names.entity_of({names.USER: "bob"})]


def test_an_entity_that_is_named_twice_keeps_what_it_has() -> None:
    image, answers = alter(
        ClusterImage(), user("ann", (names.PRODUCE, 1.0)), user("bob"), user("ann", (names.FETCH, 2.0))
    )
    assert answers == [BAD, OK, BAD]
    assert held(image) == {}


def test_addresses_have_one_key_and_no_fractions() -> None:
    def rate(name: str | None, value: float, key: str = names.CONNECTION) -> QuotaAlteration:
        return QuotaAlteration(((names.IP, name),), [(key, value)])

    image, answers = alter(
        ClusterImage(),
        rate("1.2.3.4", 5.0),
        rate(None, 7.0),
        rate("::1", 2.5),
        rate("::2", 5e9),
        rate("1.1.1.1", 1.0, names.PRODUCE),
    )
    assert answers == [OK, OK, BAD, BAD, BAD]
    assert sorted(held(image).values()) == [5.0, 7.0]


NAMES = st.sampled_from(["a", "b", None])
CHANGES = st.dictionaries(
    st.sampled_from([*names.CLIENT_KEYS, "nonsense"]), st.one_of(st.none(), st.integers(-1, 5).map(float)), max_size=3
)
ENTITIES = st.dictionaries(st.sampled_from([names.USER, names.CLIENT_ID, names.IP]), NAMES, min_size=1, max_size=2)


@given(st.lists(st.tuples(ENTITIES, CHANGES), max_size=30))
def test_any_history_leaves_what_was_accepted(history: list[tuple[dict[str, str | None], dict[str, Any]]]) -> None:
    image, model = ClusterImage(), {}
    for entity, changes in history:
        image, (answer,) = alter(image, QuotaAlteration(tuple(entity.items()), list(changes.items())))
        if answer == OK:
            for key, value in changes.items():
                model[names.entity_of(entity), key] = value
    assert held(image) == {key: value for key, value in model.items() if value is not None}


def test_thousands_are_decided_in_pieces() -> None:
    wanted = [user(f"u{n}", (names.PRODUCE, 1.0)) for n in range(2000)]
    decision = decide_alter_quotas(ClusterImage(), wanted)
    assert len(decision.records) <= 500
    image, answers = alter(ClusterImage(), *wanted)
    assert answers == [OK] * 2000
    assert len(held(image)) == 2000

"""Quotas to ask for, and filters to find them, of our broker and of Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.raw import Raw

from headrace.wire.messages import k48_describe_client_quotas as k48
from headrace.wire.messages import k49_alter_client_quotas as k49

Parts = list[tuple[str, str | None]]
Changes = list[tuple[str, float | None]]
Entries = list[tuple[Parts, Changes]]
Described = list[tuple[Parts, list[tuple[str, float]]]]

U: Parts = [("user", "u")]
BOTH: Parts = [("client-id", "c/d e"), ("user", "u")]


def _ip(name: str | None, value: float = 2.0) -> Entries:
    return [([("ip", name)], [("connection_creation_rate", value)])]


ALTERATIONS: list[Entries] = [
    [(U, [("producer_byte_rate", 1000.0)])],
    [(U, [("producer_byte_rate", 0.0)])],
    [(U, [("producer_byte_rate", -1.0)])],
    [(U, [("producer_byte_rate", 1.5)])],
    [(U, [("producer_byte_rate", 1e30)])],
    [(U, [("request_percentage", 0.0)])],
    [(U, [("request_percentage", 0.5)])],
    [(U, [("request_percentage", float("inf"))])],
    [(U, [("controller_mutation_rate", 0.0)])],
    [(U, [("controller_mutation_rate", 0.25)])],
    [(U, [("nonsense", 1.0)])],
    [(U, [("nonsense", None)])],
    [(U, [("connection_creation_rate", 1.0)])],
    [(U, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)])],
    [(U, [("producer_byte_rate", 1.0), ("nonsense", 2.0), ("consumer_byte_rate", 5.0)])],
    [(U, [])],
    [([], [("producer_byte_rate", 2.0)])],
    [([("user", "")], [("producer_byte_rate", 2.0)])],
    [([("user", None)], [("producer_byte_rate", 2.0)])],
    [([("client-id", None), ("user", None)], [("producer_byte_rate", 2.0)])],
    [([("ip", "1.2.3.4"), ("user", "a")], [("producer_byte_rate", 2.0)])],
    [([("group", "a")], [("producer_byte_rate", 2.0)])],
    [([("ip", "1.2.3.4")], [("producer_byte_rate", 2.0)])],
    _ip("1.2.3.4"),
    _ip("1.2.3.4", 0.0),
    _ip("1.2.3.4", 2.5),
    _ip("1.2.3.4", 5e9),
    _ip(None),
    _ip("no such host!"),
    _ip("::1"),
    _ip("256.1.1.1"),
    _ip(""),
    [(BOTH[:1], [("consumer_byte_rate", 2.0)]), (BOTH, [("consumer_byte_rate", 2.0)])],
    [(BOTH, [("consumer_byte_rate", 4.0), ("request_percentage", 7.0)])],
    [([("user", "gone")], [("consumer_byte_rate", None)])],
    [(BOTH, [("consumer_byte_rate", None)])],
]
"""One after the other. What Kafka takes and we refuse is not among them: no number at all, an entity that names a type
twice or that is named twice in a request, and names of hosts."""

Component = tuple[str, int, str | None]
_ANY_USER: Component = ("user", 2, None)
FILTERS: list[tuple[list[Component], bool]] = [
    ([], False),
    ([], True),
    ([_ANY_USER], False),
    ([_ANY_USER], True),
    ([("user", 0, "u")], False),
    ([("user", 0, "u")], True),
    ([("user", 1, None)], False),
    ([("user", 1, None)], True),
    ([("user", 1, None), ("client-id", 1, None)], True),
    ([("user", 0, "u"), ("client-id", 2, None)], True),
    ([("client-id", 2, None)], False),
    ([("ip", 2, None)], False),
    ([("ip", 0, "1.2.3.4")], True),
    ([("ip", 2, None), _ANY_USER], False),
    ([("group", 2, None)], False),
    ([("", 2, None)], False),
    ([_ANY_USER, _ANY_USER], False),
    ([("user", 0, None)], False),
    ([("user", 1, "x")], False),
    ([("user", 2, "x")], False),
    ([("user", 7, None)], False),
    ([("user", 0, "none")], False),
]


def _parts(entity: Sequence[Any]) -> Parts:
    return sorted((part.entity_type, part.entity_name) for part in entity)


def alter(raw: Raw, entries: Entries, *, validate_only: bool = False, version: int = 1) -> list[tuple[int, Parts]]:
    """The code of each entity, in the order of their names."""
    asked = [
        k49.EntryData(
            [k49.EntityData(kind, name) for kind, name in parts],
            [k49.OpData(key, 0.0 if value is None else value, value is None) for key, value in changes],
        )
        for parts, changes in entries
    ]
    answer = raw.ask(k49.AlterClientQuotasRequest(asked, validate_only), version)
    told = [(each.error_code, _parts(each.entity)) for each in answer.entries]
    return sorted(told, key=lambda each: repr(each[1]))


def describe(
    raw: Raw, components: Sequence[Component], strict: bool = False, version: int = 1
) -> tuple[int, Described | None]:
    """The error code, and the quotas that were found in the order of their names; None where there are none at all."""
    asked = [k48.ComponentData(kind, match, name) for kind, match, name in components]
    answer = raw.ask(k48.DescribeClientQuotasRequest(asked, strict), version)
    if answer.entries is None:
        return answer.error_code, None
    found = [
        (
            _parts(each.entity),
            sorted((value.key, value.value) for value in each.values),
        )
        for each in answer.entries
    ]
    return answer.error_code, sorted(found, key=lambda each: repr(each[0]))

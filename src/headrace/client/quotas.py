"""Quotas of clients: how much users, client ids and addresses may ask of each broker.

An entity is a name by kind, `{"user": "ann", "client-id": None}`, where None is the default: what holds for those of
that kind that have none of their own. Every broker takes these and has the controller decide. Source: KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.client.conversation import Steps
from headrace.client.operations import operation
from headrace.client.routing import Router

KINDS: Final = ("user", "client-id", "ip")
KEYS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "bytes a second of produce requests",
    "consumer_byte_rate": "bytes a second of fetched records",
    "request_percentage": "percent of one thread's time",
    "controller_mutation_rate": "partitions a second that are created or deleted",
    "connection_creation_rate": "connections a second, of an address",
}
"""What there are quotas of, each on every broker by itself."""
EXACT: Final = 0
DEFAULT: Final = 1
ANYTHING: Final = 2
"""How a name is matched, in codes of the wire."""

Entity = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of one entity, by key."""

    entity: Entity
    values: Mapping[str, float]


@operation
def find_quotas(
    router: Router, wanted: Entity, any_of: Iterable[str] = (), *, strict: bool = False
) -> Steps[list[Quotas]]:
    """The quotas of entities that have these names, and any name of the kinds in `any_of`; `strict`: and no other kind.

    Without either, all. Raises `BrokerError`.
    """
    from headrace.wire.messages import k48_describe_client_quotas as k48

    components = [
        k48.ComponentData(kind, DEFAULT if name is None else EXACT, name) for kind, name in wanted.items()
    ] + [k48.ComponentData(kind, ANYTHING, None) for kind in any_of]
    response = yield from router.checked(
        k48.DescribeClientQuotasRequest(components, strict),
        k48.DescribeClientQuotasResponse,
        lambda r: (r.error_code, r.error_message or None),
        "quotas",
    )
    found = [
        Quotas(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=_place)


def _place(quotas: Quotas) -> list[tuple[bool, str]]:
    """By user, then by client id, then by address; what has no name there comes first."""
    return [(kind in quotas.entity, quotas.entity.get(kind) or "") for kind in KINDS]


@operation
def alter_quotas(
    router: Router,
    entity: Entity,
    values: Mapping[str, float],
    remove: Iterable[str] = (),
    *,
    validate_only: bool = False,
) -> Steps[None]:
    """Set quotas of an entity and remove others; those that are not named stay. Raises `BrokerError`."""
    from headrace.wire.messages import k49_alter_client_quotas as k49

    ops = [k49.OpData(key, value, False) for key, value in values.items()]
    ops += [k49.OpData(key, 0.0, True) for key in remove]
    entry = k49.EntryData([k49.EntityData(kind, name) for kind, name in entity.items()], ops)
    yield from router.checked(
        k49.AlterClientQuotasRequest([entry], validate_only),
        k49.AlterClientQuotasResponse,
        lambda r: (r.entries[0].error_code, r.entries[0].error_message),
        f"quotas of {entity_text(entity)}",
    )


def entity_text(entity: Entity) -> str:
    """An entity for people: `user ann, client id app`."""
    words = {"user": "user", "client-id": "client id", "ip": "address"}

    def part(kind: str, name: str | None) -> str:
        word = words.get(kind, kind)
        return f"every {word} without its own" if name is None else f"{word} {name}"

    order = sorted(entity.items(), key=lambda each: KINDS.index(each[0]) if each[0] in KINDS else len(KINDS))
    return ", ".join(part(kind, name) for kind, name in order)

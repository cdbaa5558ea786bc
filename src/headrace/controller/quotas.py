"""Sets and removes client quotas. Source: KIP-546, KIP-599, KIP-612."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from operator import attrgetter
from typing import Any, Final

from headrace.controller.access import Access
from headrace.controller.context import ApiError, ControllerContext
from headrace.controller.pieces import Alterations
from headrace.machine import Decision
from headrace.metadata import client_quotas as quotas
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import ClientQuotaRecord, EntityData

CHANGES_MAX: Final = 1_000
"""The limit of changes of one entity: all are checked together. There are five quotas, and unknown keys may be
removed."""
_BAD: Final = ErrorCode.INVALID_REQUEST
_TWICE: Final = ApiError(_BAD, "Each entity must appear at most once.")
_WHOLE: Final[Mapping[str, tuple[str, int]]] = {
    quotas.PRODUCE: ("a LONG", 2**63),
    quotas.FETCH: ("a LONG", 2**63),
    quotas.CONNECTION: ("an INT", 2**31),
}
"""For each quota without fractions: the name of its type, and the first value that is too large."""


@dataclass(frozen=True)
class QuotaAlteration:
    """The alterations of one entity: its (type, name), with None for the default, and (key, value), with None to
    remove."""

    parts: tuple[tuple[str, str | None], ...]
    changes: Sequence[tuple[str, float | None]]

    @cached_property
    def entity(self) -> quotas.Entity:
        """The entity."""
        return quotas.entity_of(dict(self.parts))


@dataclass(frozen=True, slots=True)
class AlterQuotas:
    """Alterations of quotas; each entity has its own result."""

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[list[ApiError]]:
        """Decides the request upon `image`."""
        return decide_alter_quotas(image, self.alterations, validate_only=self.validate_only)


def decide_alter_quotas(
    image: ClusterImage, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
) -> Decision[list[ApiError]]:
    """Alters the quotas of each entity as a whole or not at all, in pieces; results are in the request's order.

    An entity that is named twice is refused both times.
    """
    altered = Alterations(alterations, _alter, attrgetter("entity"), _TWICE, validate_only=validate_only)
    return altered.decide(image)


def _alter(image: ClusterImage, alteration: QuotaAlteration) -> list[Any] | ApiError:
    problem = _entity_problem(alteration.parts) or _changes_problem(alteration)
    return _records(image, alteration) if problem is None else ApiError(_BAD, problem)


def _entity_problem(parts: Sequence[tuple[str, str | None]]) -> str | None:
    """Returns why an entity is invalid, or None."""
    if not parts:
        return "Invalid empty client quota entity"
    names = dict(parts)
    for kind, name in parts:
        if kind not in quotas.ENTITY_TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if len(names) < len(parts):
        return "Each entity type must appear at most once."
    if quotas.IP in names:
        if len(names) > 1:
            return "Invalid quota entity combination: an IP entity excludes a user and a client id."
        address = names[quotas.IP]
        if address is not None and quotas.address_of(address) is None:
            return f"{address} is not a valid IP address."
    return None


def _changes_problem(alteration: QuotaAlteration) -> str | None:
    """Returns why the changes are invalid, or None."""
    keys = Counter(key for key, _ in alteration.changes)
    twice = [key for key, count in keys.items() if count > 1]
    if twice:
        return f"Duplicate quota key {twice[0]}"
    is_ip = any(kind == quotas.IP for kind, _ in alteration.parts)
    allowed = (quotas.CONNECTION,) if is_ip else quotas.CLIENT_KEYS
    for key, value in alteration.changes:
        if value is None:
            continue  # unknown keys have no value, and may be removed
        if key not in allowed:
            return f"Invalid configuration key {key}"
        if isnan(value) or value <= 0:
            return f"Quota {key} must be greater than 0"
        if key in _WHOLE:
            kind, too_large = _WHOLE[key]
            if value >= too_large:
                return f"Proposed value for {key} is too large for {kind}."
            if value != int(value):
                return f"{key} cannot be a fractional value."
    return None if len(alteration.changes) <= CHANGES_MAX else f"More than {CHANGES_MAX} quotas of one entity."


def _records(image: ClusterImage, alteration: QuotaAlteration) -> list[Any]:
    known = image.kept.quotas
    entity = alteration.entity
    made: list[Any] = []
    for key, value in alteration.changes:
        record = known.get((entity, key))
        if value is None:
            if record is not None:
                made.append(ClientQuotaRecord(entity=_data(entity), key=key, remove=True))
        elif record is None or record.value != value:
            made.append(ClientQuotaRecord(entity=_data(entity), key=key, value=value))
    return made


def _data(entity: quotas.Entity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in quotas.names_of(entity).items()]

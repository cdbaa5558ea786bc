"""Creates and deletes ACLs. Source: KIP-11, KIP-290, KIP-801.

All changes of one request are one decision, so a broker never enforces half of a set of rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from headrace.controller.access import Access
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError, ControllerContext
from headrace.machine import Decision
from headrace.metadata.acls import (
    WILDCARD,
    AclBinding,
    AclFilter,
    PatternType,
    binding_of,
    record_of,
    refusal_of,
    refusal_of_filter,
)
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import RemoveAccessControlEntryRecord

AclsDeleted = list[ApiError | list[AclBinding]]
"""For each filter the deleted ACLs, or why none was deleted."""

ACLS_MAX: Final = 2_000
"""The limit of distinct ACLs that one request creates, and of its filters: they are one decision, and each takes some 6
us in all."""
_OK = ApiError(ErrorCode.NONE, "")
_TOO_MANY_TO_DELETE = ApiError(
    ErrorCode.INVALID_REQUEST, f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation."
)


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """ACLs to store; each has a result of its own, in the request's order."""

    acls: Sequence[AclBinding]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[list[ApiError]]:
        """Decides the request upon `image`."""
        return decide_create_acls(image, self.acls, context)


def decide_create_acls(
    image: ClusterImage, acls: Sequence[AclBinding], context: ControllerContext
) -> Decision[list[ApiError]]:
    """Stores new ACLs; returns results in the request's order. Stores none if there are too many."""
    stored = image.kept.acls
    names = {acl.name for acl in acls}
    known = {binding_of(record) for record in stored.values() if record.resource_name in names}
    fresh: set[bytes] = set()
    answers: list[ApiError] = []
    records: list[Any] = []
    for acl in acls:
        if why := refusal_of(acl):
            answers.append(ApiError(ErrorCode.INVALID_REQUEST, why))
            continue
        answers.append(_OK)
        if acl in known:
            continue
        known.add(acl)
        acl_id = context.new_id()
        while acl_id in stored or acl_id in fresh:
            acl_id = context.new_id()
        fresh.add(acl_id)
        records.append(record_of(acl_id, acl))
    if len(records) > ACLS_MAX:
        return Decision([TOO_MANY_RECORDS] * len(acls))
    return Decision(answers, records)


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Filters of ACLs to delete, each with the number of times that the request has it; each has its own result."""

    filters: Mapping[AclFilter, int]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[AclsDeleted]:
        """Decides the request upon `image`."""
        return decide_delete_acls(image, list(self.filters), self.filters)


def decide_delete_acls(
    image: ClusterImage, filters: Sequence[AclFilter], times: Mapping[AclFilter, int] = MappingProxyType({})
) -> Decision[AclsDeleted]:
    """Deletes the ACLs that the filters match, and returns them by filter, sorted.

    `times` is how often the request has each filter, if more than once. Deletes none if there are too many to delete or
    to return.
    """
    stored = _Stored([(acl_id, binding_of(record)) for acl_id, record in image.kept.acls.items()])
    known: dict[AclFilter, list[AclBinding]] = {}
    named = 0
    gone: dict[bytes, None] = {}
    answers: AclsDeleted = []
    for wanted in filters:
        if why := refusal_of_filter(wanted):
            answers.append(ApiError(ErrorCode.INVALID_REQUEST, why))
            continue
        if wanted not in known:
            found = stored.found_by(wanted)
            gone.update((acl_id, None) for acl_id, _ in found)
            known[wanted] = sorted(acl for _, acl in found)
        named += len(known[wanted]) * times.get(wanted, 1)
        if named > MAX_RECORDS_PER_REQUEST:
            return Decision([_TOO_MANY_TO_DELETE] * len(filters))
        answers.append(known[wanted])
    return Decision(answers, [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone])


_Entry = tuple[bytes, AclBinding]


class _Stored:
    """The stored ACLs, indexed by what filters name, so that a filter scans few of them."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._all = entries
        self._of_name: dict[str, list[_Entry]] = {}
        self._of_principal: dict[str, list[_Entry]] = {}
        self._of_host: dict[str, list[_Entry]] = {}
        self._prefix_lengths: set[int] = set()
        for entry in entries:
            acl = entry[1]
            self._of_name.setdefault(acl.name, []).append(entry)
            self._of_principal.setdefault(acl.principal, []).append(entry)
            self._of_host.setdefault(acl.host, []).append(entry)
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefix_lengths.add(len(acl.name))

    def found_by(self, wanted: AclFilter) -> list[_Entry]:
        """Returns the ACLs that a filter matches."""
        some = [self._all]
        if wanted.name is not None:
            some.append(self._named_by(wanted.name, wanted.pattern_type))
        if wanted.principal is not None:
            some.append(self._of_principal.get(wanted.principal, []))
        if wanted.host is not None:
            some.append(self._of_host.get(wanted.host, []))
        return [entry for entry in min(some, key=len) if wanted.finds(entry[1])]

    def _named_by(self, name: str, pattern_type: int) -> list[_Entry]:
        names = [name]
        if pattern_type == PatternType.MATCH:  # a fixed order in every process: the matches are replicated in it
            names += [WILDCARD, *(name[:length] for length in sorted(self._prefix_lengths))]
        return [entry for each in dict.fromkeys(names) for entry in self._of_name.get(each, ())]

"""Storing ACLs and removing them. Source: KIP-11, KIP-290, KIP-801.

All that one request changes is one decision: nobody is served by half of a set of rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.controller.context import MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError, ControllerContext
from headrace.machine import Decision
from headrace.metadata.acls import AclBinding, AclFilter, binding_of, record_of, refusal_of, refusal_of_filter
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import RemoveAccessControlEntryRecord

AclsDeleted = list[ApiError | list[AclBinding]]
"""For each filter the ACLs that go, or why none does."""

_OK = ApiError(ErrorCode.NONE, "")
_TOO_MANY_TO_DELETE = ApiError(
    ErrorCode.INVALID_REQUEST, f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation."
)


def decide_create_acls(
    image: ClusterImage, acls: Sequence[AclBinding], context: ControllerContext
) -> Decision[list[ApiError]]:
    """Stores what is not stored yet; answers in the request's order. Too many: none is."""
    stored = image.kept.acls
    known = {binding_of(record) for record in stored.values()}
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
    if len(records) > MAX_RECORDS_PER_REQUEST:
        return Decision([TOO_MANY_RECORDS] * len(acls))
    return Decision(answers, records)


def decide_delete_acls(image: ClusterImage, filters: Sequence[AclFilter]) -> Decision[AclsDeleted]:
    """Removes what the filters find, and names it by filter, sorted. Too many: none goes."""
    stored = [(acl_id, binding_of(record)) for acl_id, record in image.kept.acls.items()]
    gone: dict[bytes, None] = {}
    answers: AclsDeleted = []
    for wanted in filters:
        if why := refusal_of_filter(wanted):
            answers.append(ApiError(ErrorCode.INVALID_REQUEST, why))
            continue
        found = [(acl_id, acl) for acl_id, acl in stored if wanted.finds(acl)]
        gone.update((acl_id, None) for acl_id, _ in found)
        answers.append(sorted(acl for _, acl in found))
    if len(gone) > MAX_RECORDS_PER_REQUEST:
        return Decision([_TOO_MANY_TO_DELETE] * len(filters))
    return Decision(answers, [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone])

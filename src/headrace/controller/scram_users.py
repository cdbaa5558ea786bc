"""Users that log in with SCRAM: their credentials are made, changed and deleted.

A request brings the salted password, and the controller derives the keys: a password never comes here.
Source: KIP-554, KIP-900.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.controller.context import DONE, MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError
from headrace.machine import Decision
from headrace.metadata import levels
from headrace.metadata.image import ClusterImage
from headrace.metadata.scram_credentials import (
    BY_CODE,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    credential_of,
    record_of,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import RemoveUserScramCredentialRecord

_TWICE: Final = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
_UNSUPPORTED: Final = ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata version does not support SCRAM")


class ScramDeletion(NamedTuple):
    """A credential that is to go: the mechanism by its number."""

    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential that is to be made or replaced."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def decide_alter_scram(
    image: ClusterImage, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Decision[Mapping[str, ApiError]]:
    """Each user has an outcome of its own. One that is named twice, whatever for, is left as it is; an error that it
    has by then stays."""
    outcomes: dict[str, ApiError] = {}
    records: dict[str, Any] = {}
    is_supported = levels.supports_scram(image.features.metadata_version)
    wanted: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for each in wanted:
        if each.name in outcomes:
            if records.pop(each.name, None) is not None:
                outcomes[each.name] = _TWICE
            continue
        refused = _refusal(image, each) if is_supported else _UNSUPPORTED
        if refused is None and len(records) >= MAX_RECORDS_PER_REQUEST:
            refused = TOO_MANY_RECORDS
        outcomes[each.name] = refused or DONE
        if refused is None:
            records[each.name] = _record(each)
    return Decision(outcomes, list(records.values()))


def _refusal(image: ClusterImage, wanted: ScramDeletion | ScramUpsertion) -> ApiError | None:
    if not wanted.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if wanted.mechanism not in BY_CODE:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(wanted, ScramDeletion):
        if (wanted.name, wanted.mechanism) not in image.kept.scram:
            why = "Attempt to delete a user credential that does not exist"
            return ApiError(ErrorCode.RESOURCE_NOT_FOUND, why)
        return None
    if wanted.iterations < ITERATIONS_MIN:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > ITERATIONS_MAX:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None


def _record(wanted: ScramDeletion | ScramUpsertion) -> Any:
    if isinstance(wanted, ScramDeletion):
        return RemoveUserScramCredentialRecord(name=wanted.name, mechanism=wanted.mechanism)
    mechanism = BY_CODE[wanted.mechanism]
    credential = credential_of(mechanism, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations)
    return record_of(wanted.name, mechanism, credential)

"""Creates, alters and deletes the SCRAM credentials of users.

A request carries the salted password, and the controller derives the keys: the password itself never reaches it.
Source: KIP-554, KIP-900.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import DONE, MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError, ControllerContext
from headrace.controller.pieces import PIECE_RECORDS, PIECE_TRIES, Counted
from headrace.machine import Decision
from headrace.machine.split_table import SplitTable
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
    """A credential to delete, with its mechanism by number."""

    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential to create or replace."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True)
class AlterScramUsers:
    """Alterations of SCRAM credentials; each user has its own result."""

    wanted: Sequence[ScramDeletion | ScramUpsertion]

    def decide(
        self, image: ClusterImage, context: ControllerContext, access: Access
    ) -> Decision[list[tuple[str, ApiError]]]:
        """Decides the request upon `image`."""
        return decide_alter_scram(image, self.wanted)


def decide_alter_scram(
    image: ClusterImage, wanted: Sequence[ScramDeletion | ScramUpsertion]
) -> Decision[list[tuple[str, ApiError]]]:
    """Alters credentials in pieces, with a result for each user. A user that is named twice is left unchanged; the
    error of its first alteration stays."""
    return _Alterations(wanted).decide(image)


class _Alterations:
    """The alterations of one request, decided in pieces: deriving the keys of a credential takes some 20 us."""

    def __init__(self, wanted: Sequence[ScramDeletion | ScramUpsertion]) -> None:
        self._wanted = wanted
        self._named = Counted(wanted, _name_of)
        self._looked_at = 0
        self._records = 0
        """The number of records in the pieces so far."""
        self._answered: SplitTable[str, None] = SplitTable()
        """Users that are named twice and already have a result."""
        self._outcomes: list[tuple[str, ApiError]] = []

    def decide(self, image: ClusterImage) -> Decision[list[tuple[str, ApiError]]]:
        """Decides the next piece."""
        if not self._named.is_counted:
            self._named.count_some()
            if not self._named.is_counted:
                return Decision(self._outcomes, [], self.decide)
        records: list[Any] = []
        end = min(self._looked_at + PIECE_TRIES, len(self._wanted))
        while self._looked_at < end and len(records) < PIECE_RECORDS:
            self._alter(image, self._wanted[self._looked_at], records)
            self._looked_at += 1
        self._records += len(records)
        return Decision(self._outcomes, records, self.decide if self._looked_at < len(self._wanted) else None)

    def _alter(self, image: ClusterImage, wanted: ScramDeletion | ScramUpsertion, records: list[Any]) -> None:
        if wanted.name in self._answered:
            return
        is_supported = levels.supports_scram(image.features.metadata_version)
        refused = _refusal(image, wanted) if is_supported else _UNSUPPORTED
        if refused is None and self._named.is_twice(wanted.name):
            refused = _TWICE
        if refused is None and self._records + len(records) >= MAX_RECORDS_PER_REQUEST:
            refused = TOO_MANY_RECORDS
        self._outcomes.append((wanted.name, refused or DONE))
        if self._named.is_twice(wanted.name):
            self._answered[wanted.name] = None
        self._named.done_with(wanted.name)
        if refused is None:
            records.append(_record(wanted))


def _name_of(wanted: ScramDeletion | ScramUpsertion) -> str:
    return wanted.name


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

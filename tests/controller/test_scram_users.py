"""What becomes of users' credentials; Kafka is asked the same in tests/compat/kafka_says/test_scram_users.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from headrace.controller.context import MAX_RECORDS_PER_REQUEST
from headrace.controller.pieces import PIECE_COUNTED, PIECE_RECORDS, PIECE_TRIES
from headrace.controller.scram_users import ScramDeletion, ScramUpsertion, decide_alter_scram
from headrace.machine import Decision
from headrace.metadata import bootstrap
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.metadata.scram_credentials import (
    SCRAM_SHA_256,
    credential_in,
    make_credential,
    record_of,
    salted_password,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import RemoveUserScramCredentialRecord

SALTED = salted_password(SCRAM_SHA_256, b"pencil", b"salt", 4096)
PENCIL = make_credential(SCRAM_SHA_256, "pencil", b"salt", 4096)


def image_with(*users: str, level: int = 30) -> ClusterImage:
    replay = Replay(ClusterImage(cluster_id="test"))
    for record in bootstrap.bootstrap_records(bootstrap.default_levels(level)):
        replay.apply(record)
    for name in users:
        replay.apply(record_of(name, SCRAM_SHA_256, PENCIL))
    replay.advance(offset=9, epoch=1, timestamp_ms=0)
    return replay.finish()


def upsertion(name: str = "ann", mechanism: int = 1, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(name, mechanism, iterations, b"salt", SALTED)


def test_the_controller_derives_the_keys_of_a_salted_password() -> None:
    decided = decide_alter_scram(image_with(), [upsertion()])
    assert {name: error.code for name, error in decided.reply} == {"ann": ErrorCode.NONE}
    (record,) = decided.records
    assert (record.name, credential_in(record)) == ("ann", PENCIL)


def test_a_credential_is_deleted() -> None:
    decided = decide_alter_scram(image_with("ann"), [ScramDeletion("ann", 1)])
    assert dict(decided.reply)["ann"].code == ErrorCode.NONE
    assert list(decided.records) == [RemoveUserScramCredentialRecord(name="ann", mechanism=1)]


def test_what_is_refused() -> None:
    many = [
        upsertion("few", iterations=4095),
        upsertion("much", iterations=16385),
        upsertion("most", iterations=16384),
        upsertion("", 1),
        upsertion("unknown", 0),
        upsertion("third", 3),
        upsertion("twice", 1),
        upsertion("twice", 2),
        upsertion("few", 1),
        upsertion("both", 2),
    ]
    gone = [ScramDeletion("nobody", 1), ScramDeletion("ann", 2), ScramDeletion("both", 1), ScramDeletion("odd", 9)]
    decided = decide_alter_scram(image_with("ann", "both"), [*gone, *many])
    assert {name: error.code for name, error in decided.reply} == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "ann": ErrorCode.RESOURCE_NOT_FOUND,
        "both": ErrorCode.DUPLICATE_RESOURCE,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "much": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "most": ErrorCode.NONE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "third": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert [record.name for record in decided.records] == ["most"]


def test_a_request_writes_a_bounded_number_of_records() -> None:
    many = [upsertion(f"user-{n}") for n in range(MAX_RECORDS_PER_REQUEST + 1)]
    pieces = list(pieces_of(decide_alter_scram(image_with(), many), image_with()))
    assert sum(len(each.records) for each in pieces) == MAX_RECORDS_PER_REQUEST
    assert {each.code for each in [error for _, error in pieces[-1].reply[:-1]]} == {ErrorCode.NONE}
    assert dict(pieces[-1].reply)[many[-1].name].code == ErrorCode.POLICY_VIOLATION


def pieces_of(decided: Decision[Any], image: ClusterImage) -> Iterator[Decision[Any]]:
    """A decision and those that follow it, on an image that stays as it is."""
    yield decided
    while decided.then is not None:
        decided = decided.then(image)
        yield decided


def test_many_users_are_altered_in_pieces() -> None:
    many = [*map(upsertion, [f"user-{n}" for n in range(3 * PIECE_RECORDS)]), upsertion("user-1", 2)]
    image = image_with("user-0")
    pieces = list(pieces_of(decide_alter_scram(image, [ScramDeletion("user-0", 1), *many]), image))
    assert max(len(each.records) for each in pieces) <= PIECE_RECORDS
    written = [record.name for each in pieces for record in each.records]
    assert written == [f"user-{n}" for n in range(2, 3 * PIECE_RECORDS)]
    codes = {name: error.code for name, error in pieces[-1].reply}
    assert list(codes) == [f"user-{n}" for n in range(3 * PIECE_RECORDS)]
    assert codes.pop("user-0") == codes.pop("user-1") == ErrorCode.DUPLICATE_RESOURCE
    assert set(codes.values()) == {ErrorCode.NONE}


def test_very_many_that_are_refused_are_looked_at_in_pieces() -> None:
    image = image_with()
    gone = [ScramDeletion(f"user-{n}", 1) for n in range(3 * PIECE_COUNTED)]
    looked_at = [len(each.reply) for each in map(told_of, pieces_of(decide_alter_scram(image, gone), image))]
    assert max(after - before for before, after in pairwise(looked_at)) <= PIECE_TRIES
    assert looked_at[-1] == len(gone)


def told_of(decided: Decision[Any]) -> Decision[Any]:
    """A piece, with the outcomes that there are by then."""
    return replace(decided, reply=list(decided.reply))


def test_each_piece_is_decided_on_what_there_is_by_then() -> None:
    """A user whom another request deletes between two pieces is not there; without the feature nobody is altered."""
    names = [f"user-{n}" for n in range(PIECE_RECORDS + 1)]
    gone = [ScramDeletion(name, 1) for name in names]
    first = decide_alter_scram(image_with(*names), gone)
    assert first.then is not None
    last = first.then(image_with())
    assert (len(first.records), list(last.records)) == (PIECE_RECORDS, [])
    assert {name: each.code for name, each in last.reply if each.code} == {names[-1]: ErrorCode.RESOURCE_NOT_FOUND}
    first = decide_alter_scram(image_with(*names), gone)
    assert first.then is not None
    assert dict(first.then(image_with(level=10)).reply)[names[-1]].code == ErrorCode.UNSUPPORTED_VERSION


def test_an_old_level_has_no_users() -> None:
    image = image_with(level=10)
    assert dict(decide_alter_scram(image, [upsertion()]).reply)["ann"].code == ErrorCode.UNSUPPORTED_VERSION
    raised = replace(image, features=image_with(level=11).features)
    assert dict(decide_alter_scram(raised, [upsertion()]).reply)["ann"].code == ErrorCode.NONE

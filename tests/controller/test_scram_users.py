"""What becomes of users' credentials; Kafka is asked the same in tests/compat/kafka_says/test_scram_users.py."""

from __future__ import annotations

from dataclasses import replace

from headrace.controller.context import MAX_RECORDS_PER_REQUEST
from headrace.controller.scram_users import ScramDeletion, ScramUpsertion, decide_alter_scram
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
    decided = decide_alter_scram(image_with(), [], [upsertion()])
    assert {name: error.code for name, error in decided.reply.items()} == {"ann": ErrorCode.NONE}
    (record,) = decided.records
    assert (record.name, credential_in(record)) == ("ann", PENCIL)


def test_a_credential_is_deleted() -> None:
    decided = decide_alter_scram(image_with("ann"), [ScramDeletion("ann", 1)], [])
    assert decided.reply["ann"].code == ErrorCode.NONE
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
    decided = decide_alter_scram(image_with("ann", "both"), gone, many)
    assert {name: error.code for name, error in decided.reply.items()} == {
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
    decided = decide_alter_scram(image_with(), [], many)
    assert len(decided.records) == MAX_RECORDS_PER_REQUEST
    assert decided.reply[many[-1].name].code == ErrorCode.POLICY_VIOLATION


def test_an_old_level_has_no_users() -> None:
    image = image_with(level=10)
    assert decide_alter_scram(image, [], [upsertion()]).reply["ann"].code == ErrorCode.UNSUPPORTED_VERSION
    raised = replace(image, features=image_with(level=11).features)
    assert decide_alter_scram(raised, [], [upsertion()]).reply["ann"].code == ErrorCode.NONE

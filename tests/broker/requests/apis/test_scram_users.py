"""Users that log in with SCRAM, made and described by confluent-kafka's admin client; they outlive the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw
from broker.turns import turns_of
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.broker.net import request_reader
from headrace.broker.requests import produce_run
from headrace.metadata.scram_credentials import SCRAM_SHA_256, credential_in, make_credential
from headrace.testing.running import broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k51_alter_user_scram_credentials as k51
from headrace.wire.messages.k51_alter_user_scram_credentials import AlterUserScramCredentialsRequest

PATIENCE_S = 60


def alter(admin: AdminClient, *alterations: Any) -> None:
    for future in admin.alter_user_scram_credentials(list(alterations)).values():
        future.result(PATIENCE_S)


def described(admin: AdminClient, name: str) -> list[tuple[str, int]]:
    futures: Any = admin.describe_user_scram_credentials([name])
    found = futures[name].result(PATIENCE_S)
    return sorted((info.mechanism.name, info.iterations) for info in found.scram_credential_infos)


def upsertion(name: str, mechanism: ScramMechanism, iterations: int) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, iterations), b"pencil", b"salt")


def test_users_are_made_described_and_deleted(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        alter(admin, upsertion("ann", ScramMechanism.SCRAM_SHA_256, 4096))
        alter(admin, upsertion("ann", ScramMechanism.SCRAM_SHA_512, 8192))
        assert described(admin, "ann") == [("SCRAM_SHA_256", 4096), ("SCRAM_SHA_512", 8192)]
        kept = running.call(lambda inside: inside.image.kept.scram["ann", 1])
        assert credential_in(kept) == make_credential(SCRAM_SHA_256, "pencil", b"salt", 4096)
        everybody: Any = admin.describe_user_scram_credentials()
        assert list(everybody.result(PATIENCE_S)) == ["ann"]
        with pytest.raises(KafkaException) as refused:
            alter(admin, upsertion("bob", ScramMechanism.SCRAM_SHA_256, 4095))
        assert refused.value.args[0].code() == ErrorCode.UNACCEPTABLE_CREDENTIAL
        with pytest.raises(KafkaException) as unknown:
            described(admin, "bob")
        assert unknown.value.args[0].code() == ErrorCode.RESOURCE_NOT_FOUND
    with broker(data=tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        assert described(admin, "ann") == [("SCRAM_SHA_256", 4096), ("SCRAM_SHA_512", 8192)]
        alter(admin, UserScramCredentialDeletion("ann", ScramMechanism.SCRAM_SHA_256))
        assert described(admin, "ann") == [("SCRAM_SHA_512", 8192)]


MANY = 6000
CALLS_MAX = 24_000
"""As in `test_long_requests`, which makes no valid ones."""


@pytest.mark.slow
def test_many_are_altered_in_small_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for decodes in (request_reader, produce_run):
        monkeypatch.setattr(decodes, "FEW_ELEMENT_BYTES", 1024)  # so that a few thousand elements are many

    def altered(raw: Raw, message: AlterUserScramCredentialsRequest) -> set[int]:
        results = raw.ask(message, 0).results
        assert [each.user for each in results] == [f"user-{n}" for n in range(len(results))]
        return {each.error_code for each in results}

    def made(count: int) -> AlterUserScramCredentialsRequest:
        salted = bytes(32)
        ups = [k51.ScramCredentialUpsertion(f"user-{n}", 1, 4096, b"salt", salted) for n in range(count)]
        return AlterUserScramCredentialsRequest([], ups)

    with broker(data=tmp_path) as running, Raw(running.port, timeout_s=60) as raw:
        assert altered(raw, made(1)) == {0}  # imports modules
        gone = AlterUserScramCredentialsRequest([k51.ScramCredentialDeletion(f"user-{n}", 1) for n in range(MANY)], [])
        with turns_of(running, counts_calls=True) as turns:
            for message, left in ((made(MANY), MANY), (gone, 0)):
                turns.reset()
                assert altered(raw, message) == {0}
                assert turns.most_calls <= CALLS_MAX
                assert running.call(lambda inside: len(inside.image.kept.scram)) == left

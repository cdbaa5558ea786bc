"""Controllers of `controller.quorum.voters` raise kraft.version to 1; from then on the metadata name the voters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.controllers import until
from broker.test_controller_node import CLUSTER, Quorum

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k57_update_features as k57
from headrace.wire.messages import k81_remove_raft_voter as k81

NOT_ALL = "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters support it"


class Raised(Quorum):
    """Voters of the settings."""

    async def update(self, level: int, kind: int = 1, *, validate_only: bool = False) -> tuple[ErrorCode, str]:
        """What the active controller answers."""
        wanted = k57.FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=kind)
        request = k57.UpdateFeaturesRequest(feature_updates=[wanted], validate_only=validate_only)
        answer = await self.ask(await self.active(), request, k57.UpdateFeaturesResponse)
        return ErrorCode(answer.error_code), answer.error_message or ""

    async def raised(self, *, validate_only: bool = False) -> None:
        """Once all voters have told the leader what they are."""
        for _ in range(600):
            error, why = await self.update(1, validate_only=validate_only)
            if error is ErrorCode.NONE:
                return
            assert error is ErrorCode.INVALID_UPDATE_VERSION and (NOT_ALL in why or "has not registered" in why), why
            await asyncio.sleep(0.05)
        raise AssertionError("kraft.version cannot be raised")

    def levels(self) -> list[int]:
        return [each.quorum.kraft_version for each in self.nodes.values()]


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Raised]:
    quorum = Raised(tmp_path)
    yield quorum
    for node in list(quorum.nodes):
        await quorum.stop(node)


async def test_the_voters_of_the_settings_become_those_of_the_metadata(quorum: Raised) -> None:
    for node in (1, 2, 3):
        await quorum.start(node)
    epoch = quorum.nodes[await quorum.active()].quorum.epoch
    await quorum.raised()
    await until(lambda: quorum.levels() == [1, 1, 1])
    keys = [quorum.nodes[node].quorum.member.key for node in (1, 2, 3)]
    assert all(list(each.quorum.sets.newest.keys) == keys for each in quorum.nodes.values())
    active = await quorum.active()
    assert quorum.nodes[active].quorum.epoch == epoch
    assert await quorum.update(1) == (ErrorCode.NONE, "")
    assert "without setting the upgrade type" in (await quorum.update(0))[1]
    assert "Can't downgrade the version of this feature." in (await quorum.update(0, 2))[1]
    assert "only supports versions 0-1" in (await quorum.update(2))[1]
    # Every node starts again, with the voters still in its settings; one voter goes.
    for node in (1, 2, 3):
        await quorum.stop(node)
        await quorum.start(node)
    active = await quorum.active()
    gone = next(node for node in (1, 2, 3) if node != active)
    request = k81.RemoveRaftVoterRequest(CLUSTER, gone, keys[gone - 1].directory_id)
    for _ in range(600):
        answer = await quorum.ask(await quorum.active(), request, k81.RemoveRaftVoterResponse)
        if answer.error_code == ErrorCode.NONE:
            break
        await asyncio.sleep(0.05)
    assert answer.error_code == ErrorCode.NONE
    rest = [key for key in keys if key.id != gone]
    await until(lambda: all(list(each.quorum.sets.newest.keys) == rest for each in quorum.nodes.values()))
    await quorum.stop(gone)
    await quorum.start(gone)
    assert list(quorum.nodes[gone].quorum.sets.newest.keys) == rest, "what the settings name does not count"


@pytest.mark.slow
async def test_a_voter_that_never_spoke_keeps_the_version_where_it_is(quorum: Raised) -> None:
    for node in (1, 2):
        await quorum.start(node)
    error, why = await quorum.update(1)
    assert error is ErrorCode.INVALID_UPDATE_VERSION and "has not registered" in why
    await quorum.start(3)
    await quorum.raised(validate_only=True)
    assert quorum.levels() == [0, 0, 0], "a trial changes nothing"


async def test_a_follower_that_was_away_learns_who_votes(quorum: Raised) -> None:
    for node in (1, 2, 3):
        await quorum.start(node)
    await quorum.raised(validate_only=True)
    active = await quorum.active()
    away = next(node for node in (1, 2, 3) if node != active)
    await quorum.stop(away)
    await quorum.raised()
    await quorum.start(away)
    await until(lambda: quorum.levels() == [1, 1, 1])
    assert quorum.nodes[away].quorum.raft.is_voter

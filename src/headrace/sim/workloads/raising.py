"""An operator who raises kraft.version from 0 to 1 at some moment of a run: once, or until it is confirmed."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.metadata.levels import KRAFT_VERSION
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k57_update_features as k57

if TYPE_CHECKING:
    from headrace.sim.client import SimClient

UPGRADE: Final = 1
TIMEOUT_MS: Final = 10_000
_NOT_YET: Final = ("not all of the voters support it", "has not registered")
"""What a leader says that does not know all voters yet."""
_FAILED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR})
"""What became of the request is unknown then: a leader that lost its lead may have appended the records."""


class VersionRaiser:
    """An operator that raises kraft.version."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.confirmed = False

    async def run(self, within_s: float) -> None:
        """Asks at some moment within this time. What is refused because it is too early is asked again; what has
        failed in some runs only: in the others it stays unknown what becomes of it."""
        rng = self.client.rng
        insists = rng.random() < 0.5
        await sleep(rng.uniform(0.0, within_s))
        while not await self._ask() and insists:
            await self.client.rest()

    async def insist(self) -> None:
        """Returns when it is confirmed."""
        while not await self._ask():
            await self.client.rest()

    async def _ask(self) -> bool:
        """Whether a request was confirmed; one that comes too early is made again."""
        wanted = k57.FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=1, upgrade_type=UPGRADE)
        request = k57.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[wanted])
        world = self.client.world
        while True:
            try:
                answer = await self.client.ask(request, k57.UpdateFeaturesResponse)
            except ClientError as error:
                world.trace.note("raise", error)
                self.client.moved(None)
                return False
            error_code, why = ErrorCode(answer.error_code), answer.error_message or ""
            world.trace.note("raise", error_code.name, why)
            if error_code is ErrorCode.NONE:
                self.confirmed = True
                return True
            if error_code in _FAILED:
                self.client.moved(None)
                return False
            is_early = error_code is ErrorCode.INVALID_UPDATE_VERSION and any(text in why for text in _NOT_YET)
            world.demand(is_early, f"kraft.version cannot be raised: {error_code.name} {why}")
            await self.client.rest()

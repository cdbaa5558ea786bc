"""An operator who keeps moving replicas between the log directories of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sim.checkers.history import Place
    from headrace.sim.client import SimClient

AT_LEAST: Final = 0.2
"""How often it does not rest between two requests."""


class Mover:
    """Moves any of `places` to any of `directories`: also back, before it is there, and to where it is."""

    def __init__(self, client: SimClient, places: Sequence[Place], directories: Sequence[str]) -> None:
        self.client = client
        self._places = places
        self._directories = directories
        self.asked = 0

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            topic, index = rng.choice(list(self._places))
            topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
            path = rng.choice(list(self._directories))
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
            try:
                await self.client.ask(request, AlterReplicaLogDirsResponse, 2)
                self.asked += 1
            except ClientError:
                pass
            if rng.random() > AT_LEAST:
                await self.client.rest()

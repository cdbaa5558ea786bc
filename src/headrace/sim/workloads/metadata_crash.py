"""The metadata log of a voter on a disk that forgets: appends, syncs, cuts and votes, cut short anywhere by a crash.
After a sync that fails the node ends, and starts again, with or without the machine.

After each restart the checker demands:
- the log opens: what a crash may leave is no damage;
- it reaches what was synced, and is a prefix of what was appended, byte for byte;
- the last vote is the one that was written last, or the one that was being written.
The same seed does the same, in every process.
"""

from __future__ import annotations

import errno
import random
from typing import Any, Final

from headrace.broker.quorum.log.metadata_log import MetadataLog
from headrace.broker.quorum.metadata_start import open_metadata_log
from headrace.broker.storage.storage_format import StorageError
from headrace.config import BrokerConfig
from headrace.log.read_results import Local
from headrace.raft.quorum_state import QuorumState
from headrace.sim.disk import SimDisk
from headrace.sim.lock import SimLock
from headrace.sim.workloads.cut_short import CutShort
from headrace.sim.workloads.log_crash import Broken, StillClock
from headrace.wire.batch import iter_headers
from headrace.wire.records import Record, build_batch

ROOT: Final = "/data"
DIRECTORY: Final = f"{ROOT}/__cluster_metadata-0"
VALUE_BYTES: Final = (10, 100, 700)
READ_BYTES: Final = 1 << 30


class _Environment:
    """As much of a node as the opening of a log takes."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.clock = StillClock()

    def lock(self) -> SimLock:
        return SimLock()


class MetadataCrashTest(CutShort):
    """Crashes the metadata log of a voter at any step."""

    cut_chance = 0.1
    cut_within = 8

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed + 1))
        self.disk.writes_pages = random.Random(f"{seed}/pages").random() < 0.8
        self.disk.drops_unsynced = True
        self.disk.make_dirs(DIRECTORY)
        self.disk.sync_directory("/")
        self.config = BrokerConfig.load({"metadata.log.segment.bytes": "8388608"}, lambda _: None)
        self.appended: list[bytes] = []
        """A record each."""
        self.synced = 0
        self.votes: list[QuorumState | None] = [None]
        """What may be found of votes."""
        self.crashes = 0
        self.log = self._open()

    def _step(self) -> None:
        dice = self.rng.random()
        if dice < 0.65:
            self._append()
        elif dice < 0.78:
            end = self.log.end_offset
            self.log.sync() if self.rng.random() < 0.8 else self.log.sync_all()
            self.synced = max(self.synced, end)
        elif dice < 0.84:
            self._vote()
        elif dice < 0.88:
            self._truncate()
        elif dice < 0.95:
            self._restart(power_lost=self.rng.random() < 0.7)
        elif dice < 0.97:
            self._fail_to_sync()

    def _append(self) -> None:
        offset = self.log.end_offset
        value = b"%d " % offset + self.rng.randbytes(self.rng.choice(VALUE_BYTES))
        data = build_batch([Record(0, 0, None, value, [])])
        # In the model before the write: a crash in its middle may leave it.
        self.appended[offset:] = [offset.to_bytes(8, "big") + data[8:12] + b"\0\0\0\7" + data[16:]]
        result = self.log.log.writer.append(data, leader_epoch=7, now_ms=0, origin="controller")
        self._demand(not result.error, f"append refused: {result}")

    def _vote(self) -> None:
        state = QuorumState(leader_epoch=self.rng.randint(1, 1000), voted_id=self.rng.randint(1, 3))
        self.votes.append(state)
        self.log.write_quorum_state(state, 1)
        self.votes = [state]

    def _fail_to_sync(self) -> None:
        """What is in memory is taken for written then."""
        self.disk.fail = lambda operation, path: (
            OSError(errno.EIO, "injected", path) if operation == "sync" and path.endswith(".log") else None
        )
        try:
            self.log.sync()
        except OSError:
            self._restart(power_lost=self.rng.random() < 0.3)
        finally:
            self.disk.fail = None

    def _truncate(self) -> None:
        offset = self.rng.randint(max(self.log.end_offset - 3, 0), self.log.end_offset)
        self.synced = min(self.synced, offset)
        self.log.truncate_to(offset)
        del self.appended[offset:]

    # What must hold

    def _open(self) -> MetadataLog:
        environment: Any = _Environment(self.disk)
        try:
            log = open_metadata_log(environment, self.config, DIRECTORY)
        except StorageError as error:
            raise Broken(f"seed {self.seed}, restart {self.crashes}: {error}") from error
        log.sync_all()  # as a start does, before anybody hears how far the log goes
        return log

    def _restart(self, *, power_lost: bool) -> None:
        self.crashes += 1
        self.disk.fail = None
        is_kept = not power_lost and not self.disk.has_dropped
        if power_lost:
            self.disk.crash()
        else:
            self.disk.kill()
        self.log = self._open()
        self._check(len(self.appended) if is_kept else None)

    def _check(self, least: int | None) -> None:
        end = self.log.end_offset
        self._demand(end >= self.synced, f"the log ends at {end}, and was synced up to {self.synced}")
        self._demand(least is None or end == least, f"the log ends at {end}, and the process alone died at {least}")
        self._demand(end <= len(self.appended), f"the log ends at {end}, beyond {len(self.appended)}")
        del self.appended[end:]
        if end:
            found = self.log.log.reader.read(0, max_bytes=READ_BYTES, max_offset=end, min_one=True)
            assert isinstance(found, Local) and found.slice is not None
            data = found.slice.read()
            batches = [bytes(data[at : at + header.size]) for at, header in iter_headers(data)]
            self._demand(batches == self.appended, "what is in the log is not what was appended")
        self.synced = end
        vote = self.log.read_quorum_state()
        self._demand(vote in self.votes, f"the last vote is {vote}, not one of {self.votes}")
        self.votes = [vote]

    def _demand(self, holds: bool, message: str) -> None:
        if not holds:
            raise Broken(f"seed {self.seed}, restart {self.crashes}: {message}")

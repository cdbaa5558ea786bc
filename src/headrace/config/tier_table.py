"""Settings of remote storage, of which there is none: what asks for it is refused, its measures have no effect."""

from __future__ import annotations

from typing import Final

from .setting import LONG_MAX, Family, Setting, Type, Update

NO_TIER: Final = "there is no remote storage yet"
_MISSING_TIER: Final = f"{NO_TIER}, and what it holds would be missing"


def _row(name: str, kind: Type, default: float, about: str, at_least: int = 1, update: Update = "read-only") -> Setting:
    return Setting(name, kind, default, about, at_least=at_least, update=update, unserved=NO_TIER)


TIER_ROWS: Final[tuple[Setting, ...]] = (
    _row("remote.fetch.max.wait.ms", Type.INT, 500, "How long a Fetch waits for remote records.", 1, "cluster-wide"),
    _row("remote.list.offsets.request.timeout.ms", Type.LONG, 30_000,
         "How long a ListOffsets waits for remote indexes.", 1, "cluster-wide"),
    _row("remote.log.index.file.cache.total.size.bytes", Type.LONG, 1 << 30,
         "Room for indexes of remote segments.", 1, "cluster-wide"),
    _row("remote.log.index.file.cache.ttl.ms", Type.LONG, 900_000, "How long an unused index of them stays.", -1),
    _row("remote.log.manager.thread.pool.size", Type.INT, 2, "Threads that plan what is copied."),
    _row("remote.log.manager.copier.thread.pool.size", Type.INT, 10, "Threads that copy segments.", 1, "cluster-wide"),
    _row("remote.log.manager.expiration.thread.pool.size", Type.INT, 10,
         "Threads that delete remote segments.", 1, "cluster-wide"),
    _row("remote.log.manager.follower.thread.pool.size", Type.INT, 2,
         "Threads that read metadata of remote segments for followers.", 1, "cluster-wide"),
    _row("remote.log.manager.copy.max.bytes.per.second", Type.LONG, LONG_MAX,
         "How fast segments are copied.", 1, "cluster-wide"),
    _row("remote.log.manager.copy.quota.window.num", Type.INT, 11, "Samples that the rate of copying is taken over."),
    _row("remote.log.manager.copy.quota.window.size.seconds", Type.INT, 1, "The length of each of them."),
    _row("remote.log.manager.fetch.max.bytes.per.second", Type.LONG, LONG_MAX,
         "How fast remote records are fetched.", 1, "cluster-wide"),
    _row("remote.log.manager.fetch.quota.window.num", Type.INT, 11, "Samples that the rate of fetching is taken over."),
    _row("remote.log.manager.fetch.quota.window.size.seconds", Type.INT, 1, "The length of each of them."),
    _row("remote.log.manager.task.interval.ms", Type.LONG, 30_000, "How often it is looked for what to copy."),
    _row("remote.log.manager.task.retry.backoff.ms", Type.LONG, 500, "The first wait after a failure."),
    _row("remote.log.manager.task.retry.backoff.max.ms", Type.LONG, 30_000, "The longest wait after failures."),
    Setting("remote.log.manager.task.retry.jitter", Type.DOUBLE, 0.2, "How much the wait moves at random.",
            at_least=0, at_most=0.5, unserved=NO_TIER),
    _row("remote.log.reader.threads", Type.INT, 10, "Threads that read remote segments.", 1, "cluster-wide"),
    _row("remote.log.reader.max.pending.tasks", Type.INT, 100, "Reads that wait for such a thread."),
)  # fmt: skip

TIER_FAMILIES: Final[tuple[Family, ...]] = (
    Family("remote.log.storage.", "Whether there is remote storage of old segments, and where.", _MISSING_TIER),
    Family("remote.log.metadata.", "Where the metadata of remote segments are.", _MISSING_TIER),
    Family("rsm.config.", "What the class that stores remote segments is given.", _MISSING_TIER),
    Family("rlmm.config.", "What the class that stores remote segments' metadata is given.", _MISSING_TIER),
)

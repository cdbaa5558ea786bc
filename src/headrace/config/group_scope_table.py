"""The settings of one group, altered through the GROUP config resource; defaults come from broker settings."""

from __future__ import annotations

from typing import Final

from .setting import Setting, Type

_NO_SHARE_GROUPS: Final = "this release does not serve share groups"
_NO_STREAMS_GROUPS: Final = "this release does not serve streams groups"


def _group(name: str, default: int, about: str, at_least: int, unserved: str = "") -> Setting:
    return Setting(
        name, Type.INT, default, about, scope="group", update="cluster-wide", at_least=at_least,
        synonyms=("group." + name,), unserved=unserved,
    )  # fmt: skip


def _share(name: str, kind: Type, default: str | bool, about: str, choices: tuple[str, ...] = ()) -> Setting:
    return Setting(
        name, kind, default, about, scope="group", update="cluster-wide", choices=choices, unserved=_NO_SHARE_GROUPS
    )


GROUP_SCOPE_ROWS: Final[tuple[Setting, ...]] = (
    _group("consumer.session.timeout.ms", 45000, "Time without a heartbeat after which the group drops a member.", 1),
    _group("consumer.heartbeat.interval.ms", 5000, "Heartbeat interval that members get.", 1),
    _group("consumer.assignment.interval.ms", 1000, "Time between two assignments.", 0),
    _group("share.session.timeout.ms", 45000, "Time without a heartbeat after which the group drops a member.",
           1, _NO_SHARE_GROUPS),
    _group("share.heartbeat.interval.ms", 5000, "Heartbeat interval that members get.", 1, _NO_SHARE_GROUPS),
    _group("share.record.lock.duration.ms", 30000, "How long a member may hold a record.", 1000, _NO_SHARE_GROUPS),
    _group("share.delivery.count.limit", 5, "How often the broker delivers a record before it gives it up.",
           2, _NO_SHARE_GROUPS),
    _group("share.partition.max.record.locks", 2000, "Records of a partition that members may hold at a time.",
           100, _NO_SHARE_GROUPS),
    _share("share.auto.offset.reset", Type.STRING, "latest",
           "The start of a share partition: `latest`, `earliest` or `by_duration:` and an ISO 8601 duration."),
    _share("share.isolation.level", Type.STRING, "read_uncommitted", "Whether members get aborted records.",
           ("read_committed", "read_uncommitted")),
    _share("share.renew.acknowledge.enable", Type.BOOLEAN, True, "Whether a member may renew its hold on a record."),
    _group("share.assignment.interval.ms", 1000, "Time between two assignments.", 0, _NO_SHARE_GROUPS),
    _group("streams.session.timeout.ms", 45000, "Time without a heartbeat after which the group drops a member.",
           1, _NO_STREAMS_GROUPS),
    _group("streams.heartbeat.interval.ms", 5000, "Heartbeat interval that members get.", 1, _NO_STREAMS_GROUPS),
    _group("streams.num.standby.replicas", 0, "Standby copies of each task.", 0, _NO_STREAMS_GROUPS),
    _group("streams.initial.rebalance.delay.ms", 3000, "How long an empty group waits for more members.",
           0, _NO_STREAMS_GROUPS),
    _group("streams.assignment.interval.ms", 1000, "Time between two assignments.", 0, _NO_STREAMS_GROUPS),
)  # fmt: skip

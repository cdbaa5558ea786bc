"""The broker sessions that the active controller keeps, from heartbeat to heartbeat.

They are not metadata: a new active controller calls `begin`, and every unfenced broker then has a full session.
Decisions on registrations and heartbeats update them. The shell asks `next_check_ms` when to look, calls `expired`
then, and fences the brokers returned (`FenceBrokers`). `forget` ends the session of a broker known to be dead at once,
so that its next incarnation need not wait.

Source: KIP-631.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.metadata.image import Broker, ClusterImage

_CHECKS_PER_SESSION = 8

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class _Session:
    """The session of one registration. Offsets are those of the metadata log."""

    epoch: int
    contact_ms: int
    registered_at: int
    metadata_offset: int = UNKNOWN_OFFSET
    shutdown_offset: int | None = None


class BrokerSessions:
    """The sessions of all brokers, by id; a broker's session ends `session_timeout_ms` after its last contact."""

    def __init__(self, session_timeout_ms: int) -> None:
        assert session_timeout_ms > 0
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}
        self._leaving: dict[int, int] = {}
        self._failing: dict[int, tuple[int, frozenset[bytes]]] = {}

    def begin(self, image: ClusterImage, now_ms: int) -> None:
        """Starts a full session for every unfenced broker: this controller is active from now on."""
        self._sessions = {}
        self._leaving = {}
        self._failing = {}
        for broker in image.online_brokers():
            session = self._sessions[broker.id] = _Session(broker.epoch, now_ms, broker.epoch)
            if broker.in_controlled_shutdown:
                session.shutdown_offset = image.offset

    def registered(self, broker_id: int, broker_epoch: int, record_offset: int, now_ms: int) -> None:
        """Starts the session of a broker that registered with a record at that metadata offset."""
        assert record_offset >= 0 and broker_epoch >= 0
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, record_offset)

    def heard(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> bool:
        """Notes a heartbeat and the metadata offset that the broker has read; returns False if the registration has no
        session."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != broker_epoch:
            return False
        session.contact_ms = max(session.contact_ms, now_ms)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return True

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        """Returns whether a broker's session is alive."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms - session.contact_ms < self.session_timeout_ms

    def forget(self, broker_id: int, broker_epoch: int) -> None:
        """Ends the session of a registration at once, if it has one."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == broker_epoch:
            del self._sessions[broker_id]

    def leaves(self, broker_id: int, broker_epoch: int, *, is_over: bool) -> None:
        """Notes that a registered broker leaves its partitions, in several decisions; `is_over` is set with the last
        one."""
        if is_over:
            self._leaving.pop(broker_id, None)
        else:
            self._leaving[broker_id] = broker_epoch

    def is_leaving(self, broker: Broker) -> bool:
        """Returns whether a broker is leaving its partitions: not fenced yet, but treated as fenced."""
        return self._leaving.get(broker.id) == broker.epoch

    def leaving(self, image: ClusterImage) -> set[int]:
        """Returns the brokers that are leaving their partitions."""
        return {i for i, epoch in self._leaving.items() if i in image.brokers and image.brokers[i].epoch == epoch}

    def fails(self, broker_id: int, broker_epoch: int, directories: frozenset[bytes]) -> None:
        """Notes the failed log directories whose replicas a broker gives up, in several decisions; empty with the last
        one."""
        if directories:
            self._failing[broker_id] = broker_epoch, directories
        else:
            self._failing.pop(broker_id, None)

    def failing(self, image: ClusterImage) -> set[bytes]:
        """Returns the log directories whose replicas are being given up."""
        return {
            directory
            for i, (epoch, directories) in self._failing.items()
            if i in image.brokers and image.brokers[i].epoch == epoch
            for directory in directories
        }

    def expired(self, image: ClusterImage, now_ms: int) -> list[tuple[int, int]]:
        """Returns the unfenced brokers without a live session, as (id, broker epoch), by id. A broker that is leaving
        is one of them, whatever its heartbeats say.

        Expired sessions of fenced brokers are dropped: nothing depends on them.
        """
        silent = [
            (broker.id, broker.epoch)
            for broker in image.online_brokers()
            if self.is_leaving(broker) or not self.is_live(broker.id, now_ms)
        ]
        waited_for = {broker_id for broker_id, _ in silent}
        for broker_id in [i for i in self._sessions if i not in waited_for and not self.is_live(i, now_ms)]:
            del self._sessions[broker_id]
        return silent

    def next_check_ms(self, now_ms: int) -> int | None:
        """Returns when to call `expired` again, at the earliest an eighth of a session from now; None: never."""
        if not self._sessions:
            return None
        earliest = min(session.contact_ms for session in self._sessions.values()) + self.session_timeout_ms
        return max(earliest, now_ms + max(1, self.session_timeout_ms // _CHECKS_PER_SESSION))

    def registered_at(self, broker_id: int) -> int | None:
        """Returns the metadata offset of a broker's registration, if its session has it."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.registered_at

    def begin_shutdown(self, broker_id: int, metadata_offset: int, *, gave_up: bool) -> None:
        """Notes that a broker shuts down: it may stop once every active broker has read the metadata up to that offset.
        `gave_up`: it has just given up leaderships, which all of them have to read."""
        session = self._sessions.get(broker_id)
        if session is not None and (gave_up or session.shutdown_offset is None):
            session.shutdown_offset = metadata_offset

    def may_go(self, image: ClusterImage, broker_id: int) -> bool:
        """Returns whether every active broker has read that this broker shuts down."""
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return False
        slowest = self.slowest_active_offset(image)
        return slowest is None or slowest >= session.shutdown_offset

    def slowest_active_offset(self, image: ClusterImage) -> int | None:
        """Returns the lowest metadata offset that an active broker has read; None if no broker is active."""
        offsets = [
            UNKNOWN_OFFSET if (session := self._sessions.get(broker.id)) is None else session.metadata_offset
            for broker in image.online_brokers()
            if not broker.in_controlled_shutdown
        ]
        return min(offsets, default=None)

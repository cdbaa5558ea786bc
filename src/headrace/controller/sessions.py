"""Which brokers are alive: the sessions that the active controller keeps, from heartbeat to heartbeat.

They are not metadata: a new active controller begins with `begin`, and every broker that is not fenced has a whole
session from then on. Deciding on a registration or a heartbeat notes it here. The shell asks `next_check_ms` when to
look, asks `expired` then, and fences who that names (`FenceBrokers`). `forget` ends a session at once: of a broker that
is known to be dead, so that its next incarnation need not wait.

Source: KIP-631.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.metadata.image import Broker, ClusterImage

_CHECKS_PER_SESSION = 8

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class _Session:
    """Of one registration. Offsets are those of the metadata log."""

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
        """This controller is active from now on: every unfenced broker counts as heard."""
        self._sessions = {}
        self._leaving = {}
        self._failing = {}
        for broker in image.online_brokers():
            session = self._sessions[broker.id] = _Session(broker.epoch, now_ms, broker.epoch)
            if broker.in_controlled_shutdown:
                session.shutdown_offset = image.offset

    def registered(self, broker_id: int, broker_epoch: int, record_offset: int, now_ms: int) -> None:
        """A broker has registered, with a record at that metadata offset: its session begins."""
        assert record_offset >= 0 and broker_epoch >= 0
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, record_offset)

    def heard(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> bool:
        """Notes how far a broker has read the metadata; False if no session of that registration exists."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != broker_epoch:
            return False
        session.contact_ms = max(session.contact_ms, now_ms)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return True

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker's session goes on."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms - session.contact_ms < self.session_timeout_ms

    def forget(self, broker_id: int, broker_epoch: int) -> None:
        """Ends the session of a registration at once, if it goes on."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == broker_epoch:
            del self._sessions[broker_id]

    def leaves(self, broker_id: int, broker_epoch: int, *, is_over: bool) -> None:
        """A registered broker gives up what it holds, in several decisions; `is_over`: with the last of them."""
        if is_over:
            self._leaving.pop(broker_id, None)
        else:
            self._leaving[broker_id] = broker_epoch

    def is_leaving(self, broker: Broker) -> bool:
        """Whether a broker gives up what it holds: it is not fenced yet, and is as good as that."""
        return self._leaving.get(broker.id) == broker.epoch

    def leaving(self, image: ClusterImage) -> set[int]:
        """The brokers that give up what they hold."""
        return {i for i, epoch in self._leaving.items() if i in image.brokers and image.brokers[i].epoch == epoch}

    def fails(self, broker_id: int, broker_epoch: int, directories: frozenset[bytes]) -> None:
        """Log directories of a registered broker failed, and it gives up what lies there, in several decisions; with
        the last of them there are none."""
        if directories:
            self._failing[broker_id] = broker_epoch, directories
        else:
            self._failing.pop(broker_id, None)

    def failing(self, image: ClusterImage) -> set[bytes]:
        """The log directories out of which brokers give up what lies there."""
        return {
            directory
            for i, (epoch, directories) in self._failing.items()
            if i in image.brokers and image.brokers[i].epoch == epoch
            for directory in directories
        }

    def expired(self, image: ClusterImage, now_ms: int) -> list[tuple[int, int]]:
        """The unfenced brokers without a session that goes on, as (id, broker epoch); by id. A broker that has begun to
        leave is one of them, whatever it says since.

        Sessions of fenced brokers that have run out are dropped: nothing waits for them.
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
        """When to ask `expired` again: when the first session may have run out, but not at every moment; None: never.

        Between two checks lies at least an eighth of a session.
        """
        if not self._sessions:
            return None
        earliest = min(session.contact_ms for session in self._sessions.values()) + self.session_timeout_ms
        return max(earliest, now_ms + max(1, self.session_timeout_ms // _CHECKS_PER_SESSION))

    def registered_at(self, broker_id: int) -> int | None:
        """The metadata offset of a broker's registration, as far as its session knows."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.registered_at

    def begin_shutdown(self, broker_id: int, metadata_offset: int, *, gave_up: bool) -> None:
        """A broker shuts down: it may go once every active one has read the metadata up to that offset. `gave_up`: it
        has just given up something, of which all of them have to read."""
        session = self._sessions.get(broker_id)
        if session is not None and (gave_up or session.shutdown_offset is None):
            session.shutdown_offset = metadata_offset

    def may_go(self, image: ClusterImage, broker_id: int) -> bool:
        """Whether the slowest active broker knows that a broker shuts down; with no active one left nobody waits."""
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return False
        slowest = self.slowest_active_offset(image)
        return slowest is None or slowest >= session.shutdown_offset

    def slowest_active_offset(self, image: ClusterImage) -> int | None:
        """The least metadata offset that an active broker has read; None where no broker is active."""
        offsets = [
            UNKNOWN_OFFSET if (session := self._sessions.get(broker.id)) is None else session.metadata_offset
            for broker in image.online_brokers()
            if not broker.in_controlled_shutdown
        ]
        return min(offsets, default=None)

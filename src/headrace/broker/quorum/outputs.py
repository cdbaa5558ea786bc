"""What the machine wants done, step after step and each in its order: elections are on stable storage before anything
that follows from them is done, and nothing of the loop waits for that.

A disk that is full holds up the first of them, and all that comes after it. It is tried again until there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.env.disk import is_passing

if TYPE_CHECKING:
    from headrace.broker.quorum.metadata_log import MetadataLog
    from headrace.env import LogSink, Node, Owner
    from headrace.raft.events import Output
    from headrace.raft.quorum_state import QuorumState

ROOM_S: Final = 0.5
"""How long a node whose disk is full waits before it tries to write again."""


class NoRoomError(OSError):
    """A disk without room, or a process without descriptors or memory: nothing was written of a batch."""


class Outputs:
    """See the module. `carry_out` does what one output wants, and may be called again with what is left of it after a
    NoRoomError; `went_on` is called when something was done that had to wait, `failed` when the disk cannot be trusted
    any more."""

    def __init__(
        self,
        node: Node,
        owner: Owner,
        log: MetadataLog,
        sink: LogSink,
        *,
        carry_out: Callable[[Output], None],
        went_on: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.waits_for_room = False
        self._node = node
        self._owner = owner
        self._metadata = log
        self._log = sink
        self._carry_out = carry_out
        self._went_on = went_on
        self._failed = failed
        self._queue: deque[Output] = deque()
        self._is_held = self._ended = False

    def __len__(self) -> int:
        return len(self._queue)

    def take(self, out: Output) -> None:
        """The next one."""
        self._queue.append(out)
        if not self._is_held:
            self._carry_out_all()

    def end(self) -> None:
        """Does nothing more."""
        self._ended = True

    def _carry_out_all(self) -> None:
        while self._queue and not self._ended:
            out = self._queue[0]
            if out.store is not None:
                self._store(out, out.store)
                return
            try:
                self._carry_out(self._queue.popleft())
            except NoRoomError as error:
                self._queue.appendleft(out)
                self._wait_for_room(error)
                return
            except Exception as error:  # a log that cannot be written, or a driver that contradicts itself
                self._failed(error)

    def _store(self, out: Output, state: QuorumState) -> None:
        self._is_held = True
        self._node.syncs.submit(
            lambda: self._metadata.write_quorum_state(state, state.data_version),
            lambda _, error: self._stored(out, error),
        )

    def _stored(self, out: Output, error: BaseException | None) -> None:
        if isinstance(error, OSError) and is_passing(error):
            self._wait_for_room(error)
        elif error is not None:
            self._failed(error)
        else:
            out.store = None
            self._go_on()

    def _wait_for_room(self, error: OSError) -> None:
        self._is_held = True
        if not self.waits_for_room:
            self.waits_for_room = True
            event = "metadata log cannot be written: this node takes no part in the quorum until there is room"
            self._log.error(event, why=error)
        self._owner.later(ROOM_S, self._go_on)

    def _go_on(self) -> None:
        self._is_held = False
        self._carry_out_all()
        if self.waits_for_room and not self._queue and not self._ended:
            self.waits_for_room = False
            self._log.info("metadata log can be written again", end_offset=self._metadata.end_offset)
        self._went_on()

"""A table's changes into a topic: rows read by an increasing column, page by page, and sent where they are new.

At least once. A row is sent when the column says that it has changed, and the position is kept once the brokers have
acknowledged it. A transaction may commit later than the values it wrote, so each look begins a look-back before the
furthest value. What was sent from there is remembered, as a digest a row, and not sent again while it is the same; a
run that begins again remembers nothing and sends it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.spark.pipelines.tables.following import TableError
from headrace.spark.pipelines.tables.moments import LookBack, Moment, Position, kind_of

PAGE_ROWS: Final = 10_000
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Watch:
    """What of a table is read: the key's columns, the one that increases, and the one that says a row is deleted.

    A value has the columns that are `included`, or where none are named all, but for those `excluded` and `deleted`.
    """

    key: tuple[str, ...]
    by: str
    deleted: str | None = None
    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that say where a row stands: the increasing one and then the key's."""
        return (self.by, *self.key)


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is read.

    `moment` is the value of the increasing column, None for one that no position can be: an infinity, or NaN. `place`
    is where the row stands, for `Source.page`.
    """

    moment: Moment | None
    place: tuple[Any, ...]
    deleted: bool
    key: str | None
    value: str


class Source(Protocol):
    """A table that is read."""

    def check(self) -> None:
        """Whether the table is there and has the columns. Raises `TableError`."""

    def page(self, since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Row]:
        """At most so many rows in the order of `Watch.order`: those behind a place, or else from a value on.

        Without either from the first; never one whose increasing column is null. Raises `TableError`.
        """


@dataclass(frozen=True, slots=True)
class Page:
    """What became of one page that had something new, or that was read to the end of a look."""

    sent: int
    remembered: int
    took_ms: int


class Watcher:
    """Looks for changes again and again."""

    def __init__(
        self,
        source: Source,
        send: Callable[[pa.RecordBatch], None],
        position: Position,
        look_back: LookBack,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        """`send` returns once the brokers have acknowledged the rows, of the columns `key` and `value`."""
        self._source = source
        self._send = send
        self._position = position
        self._look_back = look_back
        self._page_rows = page_rows
        self._sent: dict[str, tuple[Moment | None, bytes]] = {}
        self._forget_at = 2 * page_rows

    def look(self) -> Iterator[Page]:
        """Send what is new, a page at a time; the pages that had something new. Raises `TableError`."""
        since = None if self._position.moment is None else self._look_back.before(self._position.moment)
        after: tuple[Any, ...] | None = None
        while True:
            started = time.monotonic()
            rows = self._source.page(since, after, self._page_rows)
            if rows:
                after = rows[-1].place
                sent = self._take(rows)
                if sent:
                    yield Page(sent, len(self._sent), round((time.monotonic() - started) * 1000))
            if len(rows) < self._page_rows:
                return

    def _take(self, rows: Sequence[Row]) -> int:
        """Send those of the rows that are new, and go on; how many they were."""
        keys: list[str] = []
        values: list[str | None] = []
        digests: dict[str, tuple[Moment | None, bytes]] = {}
        for row in rows:
            if row.key is None:
                raise TableError("a row has no key: one of the key's columns is null")
            value = None if row.deleted else row.value
            digest = b"" if value is None else blake2b(value.encode(), digest_size=DIGEST_BYTES).digest()
            known = self._sent.get(row.key)
            if known is None or known[1] != digest:
                keys.append(row.key)
                values.append(value)
            digests[row.key] = (row.moment, digest)
        furthest = self._checked(next((row.moment for row in reversed(rows) if row.moment is not None), None))
        if keys:
            self._send(pa.record_batch([pa.array(keys, pa.string()), pa.array(values, pa.string())], ["key", "value"]))
        self._sent.update(digests)
        before: Any = self._position.moment
        if furthest is not None and (before is None or furthest > before):
            self._position.advance(furthest)
        self._forget()
        return len(keys)

    def _checked(self, furthest: Moment | None) -> Moment | None:
        """A value that a position can be, and that the look-back fits, before anything is sent; None for none."""
        if furthest is None:
            return None
        kind, moment = kind_of(furthest), self._position.moment
        if moment is not None and kind_of(moment) != kind:
            raise TableError(f"the increasing column holds {moment!r} and {furthest!r}, values of two kinds")
        self._look_back.before(furthest)
        return furthest

    def _forget(self) -> None:
        """Forget what the next look does not read again; now and then, for it looks at everything remembered."""
        if len(self._sent) < self._forget_at or self._position.moment is None:
            return
        since: Any = self._look_back.before(self._position.moment)
        # what no position comes after is read again with every look
        self._sent = {key: known for key, known in self._sent.items() if known[0] is None or known[0] >= since}
        self._forget_at = 2 * max(len(self._sent), self._page_rows)


def is_deleted(value: Any) -> bool:
    """What a soft-delete column says: with null, false, 0 and an empty text the row is there, with all else gone."""
    return bool(value)

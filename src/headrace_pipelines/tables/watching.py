"""A table's changes into a topic: rows read by an increasing column, page by page, and sent where they are new.

A row is sent when the column says that it has changed. A transaction may commit later than the values it wrote, so each
look begins a look-back before the furthest value. What was sent from there is remembered, as a digest a row, and not
sent again while it is the same. Where position and digests are kept is a ledger's: that of `Acknowledged`, at least
once, keeps the position when the brokers have acknowledged the rows, and a run that begins again sends rows of the
look-back again; that of `pages`, exactly once, keeps both with the rows' transaction.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.moments import LookBack, Moment, Position, sort_of, text_of
from headrace_pipelines.tables.times import micros_of

PAGE_ROWS: Final = 10_000
DIGEST_BYTES: Final = 16
_THERE: Final = ("", "f", "false", "n", "no", "off")
_GONE: Final = ("t", "true", "y", "yes", "on")
_DIGITS: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d(t|\b)", re.ASCII)


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
        """The columns that order the rows: the increasing one and then the key's."""
        return (self.by, *self.key)


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is read.

    `moment` is the value of the increasing column, None for one that no position can be: an infinity, or NaN. `place`
    is the position of the row, for `Source.page`.
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


Sent = dict[str, tuple[Moment | None, bytes]]
"""By key, where a row stood that was sent, and its digest."""


class Ledger(Protocol):
    """What a run goes on with, and where its pages go. `moment` is the furthest value whose row was sent."""

    moment: Moment | None
    sent: Sent

    def keep(self, rows: pa.RecordBatch | None, moment: Moment | None, sent: Sent) -> None:
        """Send a page's rows, of the columns `key` and `value`, and go on to this position and these digests."""


class Acknowledged:
    """At least once: rows are sent, and then the position is kept. Digests are lost with the run."""

    def __init__(self, send: Callable[[pa.RecordBatch], None], position: Position) -> None:
        """`send` returns once the brokers have acknowledged the rows."""
        self._send = send
        self._position = position
        self.moment = position.moment
        self.sent: Sent = {}

    def keep(self, rows: pa.RecordBatch | None, moment: Moment | None, sent: Sent) -> None:
        if rows is not None:
            self._send(rows)
        if moment is not None:
            self._position.advance(moment)


class Watcher:
    """Looks for changes again and again."""

    def __init__(self, source: Source, ledger: Ledger, look_back: LookBack, page_rows: int = PAGE_ROWS) -> None:
        self._source = source
        self._ledger = ledger
        self._moment = ledger.moment
        self._look_back = look_back
        self._page_rows = page_rows
        self._sent = dict(ledger.sent)
        self._forget_at = 2 * max(len(self._sent), page_rows)

    def look(self) -> Iterator[Page]:
        """Send new rows, a page at a time; yields the pages that had some. Raises `TableError`."""
        since = None if self._moment is None else self._look_back.before(self._moment)
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
        furthest = self._checked([row.moment for row in rows if row.moment is not None])
        before: Any = self._moment
        moves = furthest is not None and (before is None or furthest > before)
        moment = furthest if moves else self._moment
        after = self._remembered({**self._sent, **digests}, moment)
        if keys or moves:
            columns = [pa.array(keys, pa.string()), pa.array(values, pa.string())]
            page = pa.record_batch(columns, ["key", "value"]) if keys else None
            self._ledger.keep(page, moment, after)
        self._moment, self._sent = moment, after
        return len(keys)

    def _checked(self, moments: Sequence[Moment]) -> Moment | None:
        """The furthest of a page, None for none; before anything is sent.

        Raises `TableError` for one that a position cannot be, that the look-back does not fit, or that another value is
        not to be compared with.
        """
        if not moments:
            return None
        furthest, known = moments[-1], self._moment
        sort = sort_of(furthest)
        if known is not None and sort_of(known) != sort:
            raise TableError(
                f"the increasing column holds {text_of(furthest)}, {sort}, and the position of the checkpoint is "
                f"{text_of(known)}, {sort_of(known)}: the column has another type than before; "
                "begin again with another --checkpoint, which sends every row again"
            )
        if other := next((moment for moment in moments if sort_of(moment) != sort), None):
            raise TableError(
                f"the increasing column holds {text_of(other)} and {text_of(furthest)}, which have no order"
            )
        self._look_back.before(furthest)
        return furthest

    def _remembered(self, sent: Sent, moment: Moment | None) -> Sent:
        """Without what the next look does not read again; now and then, for that looks at everything remembered."""
        if len(sent) < self._forget_at or moment is None:
            return sent
        since: Any = self._look_back.before(moment)
        # what no position comes after is read again with every look
        sent = {key: known for key, known in sent.items() if known[0] is None or known[0] >= since}
        self._forget_at = 2 * max(len(sent), self._page_rows)
        return sent


def is_deleted(value: Any) -> bool:
    """What a soft-delete column says. Raises `TableError` for a value that says neither.

    With null, false, 0 and an empty text the row is there. A text is a truth as PostgreSQL's texts have it, a number,
    or a time, which says when the row was deleted.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value is not None and value != 0
    text = value.strip().lower() if isinstance(value, str) else None
    if text in _THERE or text in _GONE:
        return text in _GONE
    if text is not None and _DIGITS.fullmatch(text):
        return text.strip("+-0.") != ""
    if text is not None and (micros_of(value.strip()) is not None or _ISO.match(text)):
        return True
    raise TableError(f"the deleted column holds {value!r}, which is neither a truth nor a number nor a time")

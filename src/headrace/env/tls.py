"""A stream that encrypts: TLS over any `Stream`, by OpenSSL's engine between two buffers in memory.

The sockets stay raw and non-blocking, and those above see a `Stream` like any other. Plain bytes that OpenSSL holds
wake no poller, so the stream itself calls back for them; bytes that were encrypted and not yet taken are kept, one
piece of them, and nothing more is encrypted before they have left. See docs/adr/0015-tls-between-two-buffers.md.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from headrace.env.network import NOT_IN_MEMORY, WOULD_BLOCK, Stream
from headrace.env.turns import Turns
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

if TYPE_CHECKING:
    from headrace.env.node import Node

RECORD_BYTES: Final = 16 * 1024
"""The most plain bytes in one record of TLS (RFC 8446)."""
RECEIVE_BYTES: Final = 128 * 1024
"""Bytes taken from the socket at once; a connection that is not read from holds so much at most."""
HANDSHAKE_RECEIVE_BYTES: Final = 16 * 1024
QUIET_RECEIVE_BYTES: Final = 1460
"""The same if no plain bytes have come yet, or not with the last bytes: as changes of keys they would cost a
millisecond. It is the size of a packet: large records that come packet by packet give no plain bytes until their last
one.
"""
ROOM_GROWS: Final = 4
"""So many times the plain bytes of the last read are read at once."""
HEADER_BYTES: Final = 5
PIECE_BYTES: Final = 64 * 1024
"""Bytes encrypted before they are sent, and held by a connection whose socket is full."""
JOINED_BYTES: Final = 4096
"""Parts up to this size share a record with those around them."""
QUIET_BYTES_MAX: Final = 32 * 1024
"""So much may come over an open connection and say nothing: the beginning of a record, and what TLS has to say itself.
A change of keys (KeyUpdate) has 27 bytes and costs as much as half a dozen small records."""
PLAIN_WORTH: Final = 32
"""A plain byte pays for so many that came: the smallest record has 23 around it."""
QUIET_RECORDS_MAX: Final = 32
"""So many records may say nothing, beyond those that a plain byte pays for: a change of keys can be of any size."""
TINY_BYTES: Final = 22
"""A change of keys in its smallest form."""
TINY_RECORDS_MAX: Final = 8
"""So many such records no client has to send before it says something; a further one is not decrypted."""
OWN_BYTES_MAX: Final = 4096
"""What OpenSSL may have to say of itself while the other side takes nothing, as answers to changes of keys."""

FAREWELL_BYTES_MAX: Final = 31
"""The largest record that ends a connection (close_notify), of TLS 1.3 and of GCM suites of TLS 1.2; that of a Kafka
request has 36 bytes at least. A larger farewell, as with CBC suites, counts as unread."""


class TlsFailure(OSError):
    """A handshake that failed, or bytes that are no TLS; the text says which, in one line."""


class Scratch:
    """What the streams of one loop share: room for what a socket gave, and for what a file gave. Nothing of it is kept
    beyond a call."""

    __slots__ = ("received", "sliced")

    def __init__(self) -> None:
        self.received = memoryview(bytearray(RECEIVE_BYTES))
        self.sliced = memoryview(bytearray(PIECE_BYTES))


_scratches: Final[WeakKeyDictionary[Node, Scratch]] = WeakKeyDictionary()


def scratch_of(node: Node) -> Scratch:
    """That of a node's loop."""
    found = _scratches.get(node)
    if found is None:
        found = _scratches[node] = Scratch()
    return found


class TlsStream:
    """A `Stream` that encrypts another one."""

    __slots__ = (
        "_ahead",
        "_failure",
        "_handshake_error",
        "_in",
        "_inner",
        "_more",
        "_out",
        "_quiet",
        "_quiet_records",
        "_readable",
        "_room",
        "_scratch",
        "_session",
        "_shakes",
        "_soon",
        "_split",
        "_step_is_scheduled",
        "_tiny",
        "_turns",
        "_unsent",
        "_watches_writes",
        "_writable",
        "closed",
        "on_open",
        "peer_host",
        "peer_port",
    )

    def __init__(
        self,
        inner: Stream,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        scratch: Scratch,
        soon: Callable[[Callable[[], None]], object],
        turns: Turns,
        server_hostname: str | None = None,
    ) -> None:
        """`soon` calls back in the next turn of the loop. A client's handshake begins at once."""
        self.peer_host = inner.peer_host
        self.peer_port = inner.peer_port
        self.closed = False
        self.on_open: Callable[[TlsStream], object] | None = None
        """Called when the handshake has succeeded; it may raise TlsFailure, and the connection is refused then."""
        self._inner = inner
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_side, server_hostname)
        self._scratch = scratch
        self._soon = soon
        self._turns = turns
        self._shakes = True
        self._step_is_scheduled = False
        self._failure = ""
        self._handshake_error: ssl.SSLError | None = None
        self._more = False
        self._quiet = self._quiet_records = self._tiny = 0
        self._ahead = 0
        self._split = b""
        self._room = QUIET_RECEIVE_BYTES
        self._unsent = memoryview(b"")
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._watches_writes = False
        if not server_side:
            self._ask_for_step()

    # --- who is there

    @property
    def is_open(self) -> bool:
        """Whether the handshake has succeeded."""
        return not self._shakes

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the other side, as DER; None where it showed none."""
        return self._session.getpeercert(binary_form=True)

    @property
    def protocol(self) -> str:
        """The version of TLS that is spoken, as `TLSv1.3`; empty before the handshake has succeeded."""
        return self._session.version() or ""

    @property
    def cipher(self) -> str:
        """The cipher suite by OpenSSL's name; empty before the handshake has succeeded."""
        cipher = self._session.cipher()
        return cipher[0] if cipher else ""

    # --- the handshake

    def _ask_for_step(self) -> None:
        if not self._step_is_scheduled:
            self._step_is_scheduled = True
            self._watch_reads()
            self._turns.ask(self._step)

    def _step(self) -> None:
        """One step of the handshake; the socket is not read from meanwhile."""
        self._step_is_scheduled = False
        if self.closed:
            return
        try:
            self._session.do_handshake()
            if self.on_open is not None:
                self.on_open(self)
            self._shakes = False
            self._quiet_records = self._tiny = 0
        except ssl.SSLWantReadError:
            pass
        except TlsFailure as failure:
            self._failure = str(failure)
        except ssl.SSLError as error:
            self._failure = f"the TLS handshake failed: {reason_of(error)}"
            self._handshake_error = error.with_traceback(None)
        try:
            self._flush()
        except OSError as error:
            self._failure = self._failure or f"the TLS handshake failed: {error.strerror}"
        if self._failure or not self._shakes:
            # What came behind the handshake is read at once; and the reader has to hear of a failure.
            self._more = True
            if self._writable is not None:
                self._soon(self._on_writable)
        self._watch_reads()

    def _receive_handshake(self) -> int:
        got = self._take_in(HANDSHAKE_RECEIVE_BYTES)
        if got > 0:
            self._ask_for_step()
            return WOULD_BLOCK
        return got

    # --- receiving

    def receive_into(self, buffer: memoryview) -> int:
        """See Stream. Raises TlsFailure where what came is no TLS, or keeps TLS busy with itself."""
        if self._failure:
            raise TlsFailure(self._failure) from self._handshake_error
        if self._shakes:
            return self._receive_handshake()
        if self._more:
            self._more = False
        else:
            taken = self._take_in(self._room)
            if taken <= 0:
                return taken
            if self._tiny > TINY_RECORDS_MAX:
                raise self._given_up(f"more than {TINY_RECORDS_MAX} records in a row hardly say anything")
            self._quiet += taken
        got = self._decrypt(buffer)
        self._weigh(max(got, 0))
        if self._out.pending:
            self._answer()
        return got

    def _take_in(self, room: int) -> int:
        """Hands what the socket has to OpenSSL, and counts the records that begin in it. The beginning of a header
        that has not come whole waits. Bytes that came, 0 at the end, or WOULD_BLOCK."""
        received = self._scratch.received
        split = self._split
        have = len(split)
        if have:
            received[:have] = split
        taken = self._inner.receive_into(received[have:room])
        if taken <= 0:
            return taken
        at, end = self._ahead, have + taken
        while at <= end - HEADER_BYTES:
            size = received[at + 3] << 8 | received[at + 4]
            if size <= TINY_BYTES:
                self._tiny += 1
            elif self._tiny <= TINY_RECORDS_MAX:  # a run that was too long stays so, whatever comes behind it
                self._tiny = 0
            self._quiet_records += 1
            at += HEADER_BYTES + size
        if at < end:
            self._split = bytes(received[at:end])
            end = at
        elif have:
            self._split = b""
        self._ahead = at - end
        self._in.write(received[:end])
        return taken

    def _weigh(self, got: int) -> None:
        """Who says something may say more at once; who only keeps TLS busy ends here."""
        self._quiet = max(0, self._quiet - PLAIN_WORTH * got)
        self._quiet_records = max(0, self._quiet_records - got)
        if got:
            self._tiny = 0
        if self._more:
            return
        if self._quiet > QUIET_BYTES_MAX or self._quiet_records > QUIET_RECORDS_MAX:
            raise self._given_up(
                f"{self._quiet} bytes in {self._quiet_records} records came over TLS without plain bytes"
            )
        self._room = min(max(ROOM_GROWS * got, QUIET_RECEIVE_BYTES), RECEIVE_BYTES)

    def _given_up(self, why: str) -> TlsFailure:
        """What to raise. Nothing more of what came is decrypted, as a farewell would do."""
        self._failure = why
        return TlsFailure(why)

    def _answer(self) -> None:
        """Sends what OpenSSL says of itself, as to a change of keys."""
        if not len(self._unsent):
            self._flush()
        elif self._out.pending > OWN_BYTES_MAX:
            raise self._given_up("the other side asks for changes of keys and does not take them")

    def _decrypt(self, buffer: memoryview) -> int:
        """Plain bytes of what has come: 0 when the other side has ended, WOULD_BLOCK when no whole record is there.

        It does not read until OpenSSL is empty: that would cost an exception each time.
        """
        read, pending, arrived = self._session.read, self._session.pending, self._in
        room = len(buffer)
        have = 0
        try:
            while have < room:
                got = read(room - have, buffer[have:] if have else buffer)
                if not got:
                    return have
                have += got  # type: ignore[operator]
                if not arrived.pending and not pending():
                    return have
        except ssl.SSLWantReadError:
            return have or WOULD_BLOCK
        except ssl.SSLZeroReturnError:
            if have:
                self._more = True  # the end is reported by the next call
                self._soon(self._read_on)
            return have
        except ssl.SSLError as error:
            raise TlsFailure(f"what came over TLS cannot be read: {reason_of(error)}") from None
        self._more = True
        self._soon(self._read_on)
        return have

    def _read_on(self) -> None:
        """Plain bytes are left that no poller knows of."""
        if self._more and self._readable is not None and not self.closed:
            self._readable()

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """See Stream."""
        self._readable = callback
        self._watch_reads()

    def _watch_reads(self) -> None:
        wanted = self._readable is not None and not self._step_is_scheduled and not self.closed
        self._inner.on_readable(self._readable if wanted else None)
        if wanted and self._more:
            self._soon(self._read_on)

    # --- sending

    def send(self, parts: Sequence[Buffer], more: bool = False) -> int:
        """See Stream. What was encrypted counts as sent: it leaves before anything else does."""
        if self._shakes or not self._flush():
            return WOULD_BLOCK
        sent = 0
        for piece in _pieces(parts):
            self._encrypt(piece)
            sent += len(piece)
            if not self._flush():
                break
        return sent

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        """See Stream. A file's bytes pass through memory here: they have to be encrypted."""
        if self._shakes or not self._flush():
            return WOULD_BLOCK
        sliced = self._scratch.sliced
        sent = 0
        while sent < size:
            into = sliced[: min(PIECE_BYTES, size - sent)]
            got = self._inner.read_slice(part, at + sent, into, may_wait=may_wait)
            if got <= 0:
                return sent or got
            self._encrypt(into[:got])
            sent += got
            if not self._flush() or got < len(into):
                break
            may_wait = False
        return sent

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        """See Stream."""
        return self._inner.read_slice(part, at, buffer, may_wait=may_wait)

    def _encrypt(self, data: Buffer) -> None:
        write = self._session.write
        size = len(data)
        done = write(data)
        while done < size:  # OpenSSL writes one record at a time
            done += write(memoryview(data)[done:])

    def _flush(self) -> bool:
        """Sends encrypted bytes; False if the socket is full for now."""
        unsent = self._unsent
        if not len(unsent) and not self._out.pending:
            return True
        while True:
            if not len(unsent):
                if not self._out.pending:
                    break
                unsent = memoryview(self._out.read())
            sent = self._inner.send((unsent,))
            if sent > 0:
                unsent = unsent[sent:]
            if len(unsent):
                break
        self._unsent = unsent
        if bool(len(unsent)) != self._watches_writes:
            self._watch_writes()
        return not len(unsent)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """See Stream."""
        self._writable = callback
        self._watch_writes()

    def _watch_writes(self) -> None:
        wants = bool(len(self._unsent)) or (self._writable is not None and not self._shakes)
        wanted = wants and not self.closed
        if wanted != self._watches_writes:
            self._watches_writes = wanted
            self._inner.on_writable(self._on_writable if wanted else None)

    def _on_writable(self) -> None:
        if self.closed:
            return
        try:
            if not self._flush():
                return
        except OSError as error:
            # The next read or write raises it.
            self._failure = f"the connection is gone: {error.strerror}"
            self._unsent = memoryview(b"")
        self._watch_writes()
        if self._writable is not None:
            self._writable()
        elif self._failure and self._readable is not None:
            self._readable()

    # --- ending

    def has_hung_up(self, unread_max: int | None = 0) -> bool:
        """See Stream. The peer's farewell does not count as unread."""
        if unread_max is None:
            return self._inner.has_hung_up(None)
        if self._more or self._split or self._in.pending:
            return False  # unread bytes may complete a record
        return self._inner.has_hung_up(unread_max + FAREWELL_BYTES_MAX)

    def close(self) -> None:
        """Closes as `Stream.close` does; sends a close_notify if the socket takes it at once."""
        if self.closed:
            return
        if not self._shakes and not self._failure:
            try:
                self._session.unwrap()
            except (ssl.SSLError, OSError):
                pass  # it waits for the other side's farewell, and nobody does
            try:
                self._flush()
            except OSError:
                pass  # it is gone already
        self.closed = True
        self._readable = self._writable = self.on_open = None
        self._inner.close()


def _pieces(parts: Sequence[Buffer]) -> Sequence[Buffer]:
    """The parts in pieces of no more than PIECE_BYTES, the small ones joined: each piece is a record at least."""
    if sum(map(len, parts)) <= PIECE_BYTES:
        return parts if len(parts) == 1 else (b"".join(parts),)
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    held = 0
    for part in parts:
        size = len(part)
        if size <= JOINED_BYTES and held + size <= RECORD_BYTES:
            small.append(part)
            held += size
            continue
        if small:
            pieces.append(b"".join(small))
            small.clear()
            held = 0
        if size <= JOINED_BYTES:
            small.append(part)
            held = size
            continue
        view = memoryview(part)
        pieces += [view[at : at + PIECE_BYTES] for at in range(0, size, PIECE_BYTES)]
    if small:
        pieces.append(b"".join(small))
    return pieces


def reason_of(error: ssl.SSLError) -> str:
    """What OpenSSL says of an error, without the names of its source files."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not believed: {error.verify_message.strip()}"
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()


__all__ = ["NOT_IN_MEMORY", "Scratch", "TlsFailure", "TlsStream", "scratch_of"]

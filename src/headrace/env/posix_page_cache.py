"""What of a file the page cache holds, so that the event loop reads and sends nothing that the disk has to bring."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
PIECE_BYTES: Final = 128 * 1024
"""The largest request to the disk for read-ahead: every system takes that whole, and quickly."""

CACHESTAT: Final = 451
"""The number of cachestat(2), Linux 6.5, which is the same on each architecture that Python runs on there."""
_PAGE: Final = mmap.PAGESIZE
_probe: Final = [bytearray(1)]

PagesHeld = Callable[[int, int, int], int]
"""How many pages of (descriptor, position, size) the page cache holds; -1 where the system does not tell."""


def in_memory(file: int, position: int, size: int) -> bool:
    """Whether `size` bytes at `position` can be read from the page cache.

    The system counts the pages, where it can; a page on its way in counts there, and a probe of the last byte finds it.
    Elsewhere a few probes have to do. After a no, all of the range must be read before it is looked at again: a vain
    probe has the kernel fetch the page that it looked for, so a second look would find that page, and not the hole
    before it.
    """
    end = position + size
    try:
        if size > _PAGE:
            held = _pages_held(file, position, size)
            if held >= 0:
                if held < (end - 1) // _PAGE - position // _PAGE + 1:
                    return False
                os.preadv(file, _probe, end - 1, NOWAIT)
                return True
        for at in range(position, end, PIECE_BYTES):
            os.preadv(file, _probe, at, NOWAIT)
        os.preadv(file, _probe, end - 1, NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


def _first_look(file: int, position: int, size: int) -> int:
    """Imports ctypes lazily: only sending records from files needs it."""
    global _pages_held
    _pages_held = pages_counted_by(CACHESTAT)
    return _pages_held(file, position, size)


_pages_held: PagesHeld = _first_look


def pages_counted_by(number: int) -> PagesHeld:
    """cachestat(2) under its number. A system that does not have it, or does not let us, is not asked again."""
    import ctypes

    call = ctypes.PyDLL(None, use_errno=True).syscall  # which keeps the interpreter: it takes a microsecond
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    buffers = threading.local()  # several brokers may run in one process, each on a thread of its own
    is_supported = sys.platform == "linux"

    def pages_held(file: int, position: int, size: int) -> int:
        nonlocal is_supported
        if not is_supported:
            return -1
        try:
            span, found, span_at, found_at = buffers.mine
        except AttributeError:
            span, found = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
            span_at, found_at = ctypes.addressof(span), ctypes.addressof(found)
            buffers.mine = span, found, span_at, found_at
        span[0], span[1] = position, size
        if call(number, file, span_at, found_at, 0):
            is_supported = ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)
            return -1
        held: int = found[0]
        return held

    return pages_held

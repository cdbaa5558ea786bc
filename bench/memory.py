"""Memory that the machine has already given: what a load writes lands in the page cache, and where the machine is a
virtual one, a page that nobody used for some seconds may have gone back to the host, and costs ten times as much to
fill as one that did not. Whoever is measured first after a pause would pay for the others.
"""

from __future__ import annotations

import mmap

CHUNK_BYTES = 4 << 20
PAGE_BYTES = 4096


def touch(byte_count: int) -> None:
    """Have the machine back this much free memory, and leave it free: the pages written next are these."""
    memory = mmap.mmap(-1, byte_count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    one_a_page = b"x" * (CHUNK_BYTES // PAGE_BYTES)
    with memoryview(memory) as view:
        for at in range(0, byte_count - CHUNK_BYTES + 1, CHUNK_BYTES):
            view[at : at + CHUNK_BYTES : PAGE_BYTES] = one_a_page
    memory.close()

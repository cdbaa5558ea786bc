"""Keys go where Apache Kafka's Java clients put them."""

from __future__ import annotations

import pytest

from headrace.client.partitioner import murmur2, partition_for_key

# Values of Utils.murmur2, as signed 32-bit numbers.
KNOWN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), KNOWN)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_partition_is_never_negative() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert {partition_for_key(str(i).encode(), 3) for i in range(100)} == {0, 1, 2}

"""Where a group lives: what Java's String.hashCode and Kafka's Utils.abs say, or adopted groups would not be found."""

from __future__ import annotations

import pytest

from headrace.wire.sharding import partition_of


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("test", 48),
        ("my-group", 12),
        ("polygenelubricants", 0),  # its hash code is -2**31, which has no absolute value
        ("console-consumer-1234", 9),
        ("\u00e9\U0001f600", 12),  # two UTF-16 code units for the second character
    ],
)
def test_partition(group_id: str, partition: int) -> None:
    """The numbers are those that a Java program printed."""
    assert partition_of(group_id, 50) == partition

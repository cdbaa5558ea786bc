"""Where in a topic: `earliest`, an offset, the last N, a time, how long ago."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.cli.options import duration_ms, parse_time_ms

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.metadata import TopicPartition
    from headrace.client.reading import Isolation


def moment_ms(text: str, option: str) -> int:
    """Returns a time, or how long ago (`-1h`), as ms since 1970. Raises BadParameter for anything else."""
    ago_ms = duration_ms(text[1:]) if text.startswith("-") else None
    if ago_ms is None:
        return parse_time_ms(text, option)
    return max(0, int(time.time() * 1000) - ago_ms)


def places(
    client: Client, partitions: list[TopicPartition], where: str, isolation: Isolation, option: str = "--from"
) -> dict[TopicPartition, int]:
    """Returns the offsets that `earliest`, `latest`, an offset, `-N`, a time or how long ago mean; at most the end."""
    from headrace.client import reading

    def look(special: int) -> dict[TopicPartition, int]:
        found = reading.list_offsets(client, dict.fromkeys(partitions, special), isolation=isolation)
        return {at: offset.offset for at, offset in found.items()}

    if not partitions:
        return {}
    if where == "earliest":
        return look(reading.EARLIEST)
    if where == "latest":
        return look(reading.LATEST)
    if where.isdecimal():
        # beyond the end there is nothing to wait at; unfinished transactions are no reason to begin before it
        written = reading.list_offsets(client, dict.fromkeys(partitions, reading.LATEST))
        return {at: min(int(where), end.offset) for at, end in written.items()}
    if where.startswith("-") and where[1:].isdecimal():
        earliest, latest = look(reading.EARLIEST), look(reading.LATEST)
        return {at: max(earliest[at], latest[at] - int(where[1:])) for at in partitions}
    timed, latest = look(moment_ms(where, option)), look(reading.LATEST)
    return {at: timed[at] if timed[at] >= 0 else latest[at] for at in partitions}

"""Transactions that a directory was left with: nobody here could end them, so they keep a directory from being taken
over.

What counts is what the partitions know: a transaction that keeps nothing back anywhere is in nobody's way. A directory
without `__transaction_state` never saw one, and nothing is read of it. After a clean stop the newest producer snapshot
of each partition tells, and it is asked before anything is written; after a crash the recovered logs do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.env import Disk
from headrace.log.filenames import CLEAN_SHUTDOWN, SNAPSHOT, offset_name, parse_directory_name
from headrace.log.log import Log
from headrace.log.producer_history import snapshot_offsets
from headrace.log.producer_snapshot import SnapshotError
from headrace.log.producer_snapshot import decode as decode_snapshot
from headrace.metadata.image import ClusterImage

TRANSACTIONS_TOPIC: Final = "__transaction_state"

NAMED_MAX: Final = 10
"""Transactions that a refusal names."""


def open_on_disk(disk: Disk, directories: Iterable[str], image: ClusterImage, node_id: int) -> list[str]:
    """The open transactions of the partitions in log directories that were cleanly shut down, a sentence each.

    What cannot be read is left to the opening of its log, which knows what to do with a failing disk.
    """
    found: list[str] = []
    if image.topics.by_name(TRANSACTIONS_TOPIC) is None:
        return found
    for directory in directories:
        try:
            if not disk.exists(f"{directory}/{CLEAN_SHUTDOWN}"):
                continue
            names = disk.list(directory)
        except OSError:
            continue
        for name in sorted(names):
            topic, index, state = parse_directory_name(name) or ("", 0, "")
            partition = None if state else image.topics.partition(topic, index)
            if partition is None or node_id not in partition.replicas:
                continue
            for producer_id, offset in _open_in_snapshot(disk, f"{directory}/{name}"):
                found.append(_sentence(name, producer_id, offset))
                if len(found) >= NAMED_MAX:
                    return found
    return found


def _open_in_snapshot(disk: Disk, directory: str) -> list[tuple[int, int]]:
    """(producer id, first offset) of the transactions that the newest producer snapshot says are open."""
    try:
        offsets = snapshot_offsets(disk.list(directory))
        if not offsets:
            return []
        path = f"{directory}/{offset_name(offsets[-1], SNAPSHOT)}"
        entries = decode_snapshot(path, disk.read_file(path))
    except (OSError, SnapshotError):
        return []
    return [
        (entry.producer_id, entry.current_txn_first_offset) for entry in entries if entry.current_txn_first_offset >= 0
    ]


def open_in_logs(logs: Iterable[Log], image: ClusterImage) -> list[str]:
    """The open transactions of opened logs, a sentence each."""
    found: list[str] = []
    if image.topics.by_name(TRANSACTIONS_TOPIC) is None:
        return found
    for log in logs:
        if log.producers.first_undecided_offset is None:
            continue
        for producer_id, producer in log.producers.items():
            if producer.transaction_first_offset >= 0 and len(found) < NAMED_MAX:
                found.append(_sentence(log.name, producer_id, producer.transaction_first_offset))
    return sorted(found)


def _sentence(partition: str, producer_id: int, offset: int) -> str:
    return (
        f"{partition} has an open transaction of producer {producer_id} (from offset {offset}), and this broker does "
        "not serve transactions yet: let it end under Apache Kafka"
    )

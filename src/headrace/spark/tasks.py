"""How the ranges of a read become tasks: by bytes, as many as there are cores, in as few pieces as that takes.

A task of Python's costs about 30 ms of CPU whatever it reads, so that a small range is one task. Kafka says where
offsets lie and not how large records are: the size of a log over its offsets is what an offset takes, about.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from headrace.client.cluster import Client
from headrace.client.describe import partition_sizes
from headrace.client.errors import BrokerError, ProtocolMismatchError
from headrace.client.metadata import TopicPartition
from headrace.spark import planning
from headrace.spark.options import SourceOptions
from headrace.spark.planning import Range

TASK_BYTES: Final = 16 << 20
"""A task is worth its start from here on: some 20 ms of reading, and more of decoding."""
TASK_BYTES_MAX: Final = 512 << 20
"""Where there is more to read than this for each core, cores take several tasks in turn."""
TASKS_MAX: Final = 1000
"""The most tasks, or cores: also if a damaged log makes a broker return an end that is far too high."""
SLACK: Final = 0.1
"""By this part of a task's size another may be larger: a range is not cut for less."""
OFFSET_BYTES: Final = 500
"""What an offset takes where brokers do not say how large logs are."""
SIZES_S: Final = 60.0
"""The shortest time between two requests for sizes, except for new partitions."""

BytesPerOffset = Mapping[TopicPartition, float]
"""Bytes per offset by partition; `OFFSET_BYTES` if not known."""


def machine_cores() -> int:
    """The cores of this machine that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LogSizes:
    """What an offset takes in each partition's log, kept for a while."""

    def __init__(self) -> None:
        self._taken: dict[TopicPartition, float] = {}
        self._refreshed = -math.inf

    def of(self, client: Client, ranges: Iterable[Range]) -> BytesPerOffset:
        """At least for these partitions, but for those that brokers say nothing of. Raises `ClientError`."""
        wanted = {(part.topic, part.partition) for part in ranges}
        now = time.monotonic()
        if not wanted:
            return self._taken
        if now - self._refreshed >= SIZES_S:
            self._taken, self._refreshed = _bytes_per_offset(client, wanted), now
        elif new := wanted - self._taken.keys():
            self._taken |= _bytes_per_offset(client, new)
        return self._taken


def _bytes_per_offset(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, float]:
    first = planning.earliest_there(client, partitions)
    last = planning.log_ends_there(client, first)
    try:
        sizes = partition_sizes(client, [at for at in last if last[at] > first[at]])
    except (BrokerError, ProtocolMismatchError):
        # who may read a topic need not be allowed to ask for this; and a topic that is gone is another's complaint
        sizes = {}
    taken = {at: max(size, 1) / (last[at] - first[at]) for at, size in sizes.items()}
    return {at: taken.get(at, OFFSET_BYTES) for at in partitions}


def tasks_of(
    ranges: list[Range], options: SourceOptions, taken: BytesPerOffset | None = None, cores: int = 1
) -> list[list[Range]]:
    """The ranges of each task: as `minPartitions` and `maxRecordsPerPartition` bound them, else by bytes and cores."""
    least, most = options.min_partitions or 0, options.max_records_per_partition
    taken = taken or {}
    if most is None:
        tasks = _by_bytes(ranges, taken, cores)
    else:
        counts = [math.ceil(_size(part) / most) for part in ranges]
        tasks = merged([piece for part, count in zip(ranges, counts) for piece in split(part, count)], taken, most)
    if len(tasks) >= least:
        return tasks
    total = sum(map(_size, ranges))
    counts = [math.ceil(_size(part) * least / total) for part in ranges]
    if most is not None:
        counts = [max(count, math.ceil(_size(part) / most)) for part, count in zip(ranges, counts)]
    return [[piece] for part, count in zip(ranges, counts) for piece in split(part, count)]


def _size(part: Range) -> int:
    return part.end - part.start


def _each(part: Range, taken: BytesPerOffset) -> float:
    return taken.get((part.topic, part.partition), OFFSET_BYTES)


def task_count(total: float, cores: int) -> int:
    """How many tasks so many bytes are worth: at most as many as there are cores, or a multiple of that."""
    if total < cores * TASK_BYTES:
        return max(int(total // TASK_BYTES), 1)
    return min(cores * math.ceil(total / (cores * TASK_BYTES_MAX)), max(TASKS_MAX, cores))


def _by_bytes(ranges: list[Range], taken: BytesPerOffset, cores: int) -> list[list[Range]]:
    """Tasks of about the same size: the ranges, laid end to end, are cut where one is full, and nowhere else."""
    total = sum(_size(part) * _each(part, taken) for part in ranges)
    count = task_count(total, cores)
    target = total / count
    slack = SLACK * target
    tasks: list[list[Range]] = [[]]
    room = target
    for whole in ranges:
        part, each = whole, _each(whole, taken)
        while len(tasks) < count and not (_size(part) * each <= room + slack and _size(part) * each / 2 <= room):
            offsets = int(room / each)
            if offsets and room > slack:
                cut = part.start + min(offsets, _size(part) - 1)
                tasks[-1].append(replace(part, end=cut))
                room -= (cut - part.start) * each
                part = replace(part, start=cut)
            tasks.append([])
            room += target
        tasks[-1].append(part)
        room -= _size(part) * each
    return [task for task in tasks if task]


def split(part: Range, count: int) -> list[Range]:
    """A range in `count` pieces that are equal but for one offset; as many as it has offsets at most."""
    count = min(count, _size(part))
    marks = [part.start + _size(part) * i // count for i in range(count + 1)]
    return [replace(part, start=marks[i], end=marks[i + 1]) for i in range(count)]


def merged(ranges: list[Range], taken: BytesPerOffset, most: int) -> list[list[Range]]:
    """Tasks that hold small ranges together, up to `TASK_BYTES` and `most` offsets; a large one has its own."""
    tasks: list[list[Range]] = []
    room, offsets = 0.0, 0
    for part in sorted(ranges, key=_size):
        size = _size(part) * _each(part, taken)
        if not tasks or size > room or _size(part) > offsets:
            tasks.append([])
            room, offsets = TASK_BYTES, most
        tasks[-1].append(part)
        room -= size
        offsets -= _size(part)
    return tasks

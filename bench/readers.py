"""Many readers of one log: each on a connection of its own, all in one process, each asking again as soon as it has
its answer.

Like the rest of the load generators it does as little as it can: a request is the same bytes but for its numbers, and
of an answer the size is looked at, the error code, and the partition that it is of.

    python -m bench.readers '{"port": 9092, "topic": "t", "readers": 6, ...}'    prints one line of JSON
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any

from bench.link import topic_id_of
from bench.wire_load import PATIENCE_S, Outcome, batch_of, connect
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH = 1
MARKS = (0x7A5A5A5A5A5A5A5A, 0x7B5B5B5B, 0x7C5C5C5C)
"""Stand for the offset, the partition and the epoch of the session in a frame."""
TOPIC_IDS_FROM = 13
BUFFER_BYTES = 1 << 21
"""All readers receive into one buffer: room for more than an answer."""
write_offset = Struct(">q").pack_into
write_number = Struct(">i").pack_into


@dataclass
class Readers:
    """What to do. `size`: bytes of a batch, and of a fetch. `session`: in a session of all partitions, else without."""

    port: int
    topic: str
    size: int
    ends: list[int]
    """Where each partition ends."""
    readers: int = 6
    version: int = 17
    session: bool = False
    records_per_batch: int = 1
    seconds: float = 2.0


class Reader:
    """One connection that reads through its partitions, from their beginning again at their end."""

    def __init__(self, asked: Readers, topic_id: bytes, buffer: memoryview) -> None:
        self.link = connect(asked.port)
        self.ends = asked.ends
        self.batch_bytes = len(batch_of(asked.size)[0])
        self.step = asked.records_per_batch
        self.offsets = [0] * len(asked.ends)
        self.buffer = buffer
        self.batches = self.have = self.total = 0
        self.at = 0
        self.epoch = 0
        self.session_id = 0
        self.asked = asked
        self.topic_id = topic_id
        if asked.session:
            self._open_session()
        self.frame, places = self._frame(self.session_id)
        self.offset_at, self.index_at, self.epoch_at = places

    def _request(self, session_id: int, epoch: int, partitions: list[FetchPartition]) -> bytes:
        body = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=self.asked.size, session_id=session_id, session_epoch=epoch,
            topics=[FetchTopic(topic=self.asked.topic, topic_id=self.topic_id, partitions=partitions)],
        )  # fmt: skip
        return encode_request(RequestHeader(FETCH, self.asked.version, 7, "bench"), body)

    def _open_session(self) -> None:
        """The full fetch that begins a session; its answer is decoded, and tells the session's id."""
        partitions = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=self.asked.size)
            for index in range(len(self.ends))
        ]
        self.link.sendall(self._request(0, 0, partitions))
        while self.have < 4 or self.have < self.total:
            self._receive(self.buffer[self.have :])
        frame = bytes(self.buffer[4 : self.total])
        _, body_at = decode_response_header(frame, FETCH, self.asked.version)
        answer = FetchResponse.decode(frame, self.asked.version, body_at)
        self.session_id = answer.session_id
        assert self.session_id, "the broker opened no session"
        self.have = 0
        self.epoch = 1

    def _frame(self, session_id: int) -> tuple[bytearray, list[int]]:
        """A request, and where its numbers are: -1 for the epoch in versions without sessions."""
        part = FetchPartition(partition=MARKS[1], fetch_offset=MARKS[0], partition_max_bytes=self.asked.size)
        frame = bytearray(self._request(session_id, MARKS[2], [part]))
        return frame, [frame.find(mark.to_bytes(8 if at == 0 else 4, "big")) for at, mark in enumerate(MARKS)]

    def ask(self) -> None:
        """Sends the next request."""
        frame = self.frame
        write_offset(frame, self.offset_at, self.offsets[self.at])
        write_number(frame, self.index_at, self.at)
        if self.epoch_at >= 0:
            write_number(frame, self.epoch_at, self.epoch if self.session_id else -1)
        self.link.sendall(frame)
        self.epoch += 1

    def _receive(self, buffer: memoryview) -> None:
        got = self.link.recv_into(buffer)
        if not got:
            raise ConnectionError("the broker closed the connection")
        if not self.have:
            self.total = int.from_bytes(self.buffer[:4], "big") + 4
        self.have += got

    def readable(self) -> bool:
        """Whether the answer has come whole; what is asked next follows it."""
        before = self.have
        self._receive(self.buffer)  # what came before was looked at, and one answer at a time is on its way
        if not before:
            self._look()
        if self.have < self.total:
            return False
        self.have = 0
        batches = self.total // self.batch_bytes
        if not batches:
            raise AssertionError(f"an answer of {self.total} bytes at offset {self.offsets[self.at]} of {self.at}")
        self.batches += batches
        offset = self.offsets[self.at] + batches * self.step
        self.offsets[self.at] = 0 if offset >= self.ends[self.at] else offset
        return True

    def _look(self) -> None:
        """Error codes, and which partition it is of: at the same place in every answer of a version."""
        head = self.buffer
        if self.asked.version < 7:
            # size, correlation id, throttle, topics, name, partitions, index, error
            at = 4 + 4 + 4 + 4 + 2 + len(self.asked.topic) + 4
        elif self.asked.version < TOPIC_IDS_FROM:
            at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(self.asked.topic) + 1
        else:
            at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1
        index = int.from_bytes(head[at : at + 4], "big")
        error = int.from_bytes(head[at + 4 : at + 6], "big")
        if error or index >= len(self.ends):
            raise AssertionError(f"error {error} of partition {index}: {bytes(head[: at + 6]).hex()}")
        self.at = index


def read(asked: Readers) -> Outcome:
    """All readers at once for `seconds`."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    topic_id = topic_id_of(asked.port, asked.topic) if asked.version >= TOPIC_IDS_FROM else bytes(16)
    readers = [Reader(asked, topic_id, buffer) for _ in range(asked.readers)]
    poller = select.epoll()
    by_number = {reader.link.fileno(): reader for reader in readers}
    before = time.perf_counter()
    deadline = before + asked.seconds
    for number, reader in by_number.items():
        poller.register(number, select.EPOLLIN)
        reader.ask()
    while time.perf_counter() < deadline:
        for number, _ in poller.poll(PATIENCE_S):
            reader = by_number[number]
            if reader.readable():
                reader.ask()
    spent = time.perf_counter() - before
    for reader in readers:
        reader.link.shutdown(socket.SHUT_RDWR)
        reader.link.close()
    batches = sum(reader.batches for reader in readers)
    return Outcome(batches, batches * readers[0].batch_bytes, spent)


def main(argument: str) -> int:
    asked: dict[str, Any] = json.loads(argument)
    print(json.dumps(asdict(read(Readers(**asked)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

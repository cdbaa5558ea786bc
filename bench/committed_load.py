"""One reader of committed records at wire level: one fetch after the other through a log of transactions, from its
beginning again at its end. It walks the headers of the batches, and counts the bytes of all, as a broker sends them.

    python -m bench.committed_load PORT TOPIC END_OFFSET SECONDS    prints one line of JSON
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

from bench.link import FETCH_VERSION, Link
from bench.wire_load import FETCH_OFFSET_MARK, Outcome, pack_offset_into
from headrace.wire.batch import iter_whole_headers
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH = 1
FETCH_BYTES = 1 << 20
READ_COMMITTED = 1


def fetch_frame(topic: str) -> tuple[bytearray, int]:
    """A whole Fetch request of committed records, and where its offset is."""
    part = FetchPartition(partition=0, fetch_offset=FETCH_OFFSET_MARK, partition_max_bytes=FETCH_BYTES)
    body = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, session_epoch=-1, isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
    frame = bytearray(encode_request(RequestHeader(FETCH, FETCH_VERSION, 7, "bench"), body))
    return frame, frame.index(FETCH_OFFSET_MARK.to_bytes(8, "big"))


def read(port: int, topic: str, end: int, seconds: float) -> Outcome:
    """Fetches for so long. Some of them must tell of aborted transactions: without, they were not of this kind."""
    frame, offset_at = fetch_frame(topic)
    buffer = memoryview(bytearray(1 << 24))
    offset = requests = got_bytes = aborted = 0
    with Link(port) as link:
        before = time.perf_counter()
        while time.perf_counter() < before + seconds:
            pack_offset_into(frame, offset_at, offset)
            link.socket.sendall(frame)
            size, total = 0, 4
            while size < total:
                got = link.socket.recv_into(buffer[size:])
                if not got:
                    raise ConnectionError("the broker closed the connection")
                size += got
                total = int.from_bytes(buffer[:4], "big") + 4 if size >= 4 else 4
            answer = buffer[4:total]
            _, at = decode_response_header(answer, FETCH, FETCH_VERSION)
            part = FetchResponse.decode(answer, FETCH_VERSION, at).responses[0].partitions[0]
            assert part.error_code == 0, f"error {part.error_code} at offset {offset}"
            moved = offset
            assert isinstance(part.records, memoryview), f"no records at offset {offset}"
            for _, header in iter_whole_headers(part.records):
                moved = header.next_offset
                got_bytes += header.size
            assert moved > offset, f"no batch at offset {offset}"
            offset = moved if moved < end else 0
            aborted += len(part.aborted_transactions or ())
            requests += 1
        spent = time.perf_counter() - before
    assert aborted, "no answer tells of an aborted transaction"
    return Outcome(requests, got_bytes, spent)


def main(arguments: list[str]) -> int:
    port, topic, end, seconds = arguments
    print(json.dumps(asdict(read(int(port), topic, int(end), float(seconds)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

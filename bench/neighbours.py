"""Connections that say a little now and then, beside whatever else the broker does: how long each answer takes. And one
that sends bombs: batches of a few KB that open to megabytes.

    python -m bench.neighbours chat PORT TOPIC CONNECTIONS SECONDS     prints the latencies in seconds as a line of JSON
    python -m bench.neighbours bombs PORT TOPIC SECONDS                prints how many were answered
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from bench.wire_load import Load, Window, batch_of, connect, produce_frame, produce_reply
from headrace.wire.batch import seal_batch, unsealed
from headrace.wire.records import Compression, compress

EVERY_S = 0.1
"""How often each of them produces a record."""
SMALLEST_RECORD = b"\x0e\0\0\0\x02k\x01\0"
BOMB_RECORDS = 1_500_000
"""12 MB, in 1 KB."""


def chat(port: int, topic: str, connections: int, seconds: float) -> list[float]:
    """Latencies of one small produce request a connection every 100 ms, evenly spread over the time."""
    load = Load("produce", port, topic)
    reply = produce_reply(topic)
    windows = [Window(load, produce_frame(topic, batch_of(0)[0]), reply, 4) for _ in range(connections)]
    asked: dict[int, float] = {}
    by_number = {window.link.fileno(): window for window in windows}
    poller = select.epoll()
    for number in by_number:
        poller.register(number, select.EPOLLIN)
    latencies: list[float] = []
    begun = time.perf_counter()
    turn = 0
    while True:
        now = time.perf_counter()
        due = begun + turn * EVERY_S / connections
        if now - begun >= seconds and not asked:
            break
        if now >= due and now - begun < seconds:
            window = windows[turn % connections]
            turn += 1
            if window.link.fileno() not in asked:
                asked[window.link.fileno()] = time.perf_counter()
                window.send(1)
            continue
        for number, _ in poller.poll(max(due - now, 0) if now - begun < seconds else 1.0):
            if by_number[number].receive():
                latencies.append(time.perf_counter() - asked.pop(number))
    poller.close()
    for window in windows:
        window.link.close()
    return latencies


def bombs(port: int, topic: str, seconds: float) -> int:
    """Sends one after the other, each as soon as the one before is answered. The broker refuses them all: their offsets
    do not count up, which shows to a broker that opens them."""
    now_ms = int(time.time() * 1000)
    bomb = seal_batch(
        unsealed(compress(Compression.ZSTD, SMALLEST_RECORD * BOMB_RECORDS)),
        record_count=BOMB_RECORDS,
        last_offset_delta=BOMB_RECORDS - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        attributes=Compression.ZSTD,
    )
    frame = produce_frame(topic, bytes(bomb))
    link = connect(port)
    answered = 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        link.sendall(frame)
        size = int.from_bytes(link.recv(4, socket.MSG_WAITALL), "big")
        link.recv(size, socket.MSG_WAITALL)
        answered += 1
    link.close()
    return answered


def main(arguments: list[str]) -> int:
    what, port, topic, *numbers = arguments
    if what == "chat":
        print(json.dumps(chat(int(port), topic, int(numbers[0]), float(numbers[1]))))
    else:
        print(bombs(int(port), topic, float(numbers[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Connections that say a little now and then, beside whatever else the broker does: how long each answer takes. One
that sends bombs: batches of a few KB that open to megabytes. And two that send all that is read of them, over a quota.

    python -m bench.neighbours chat PORT TOPIC CONNECTIONS SECONDS     prints the latencies in seconds as a line of JSON
    python -m bench.neighbours bombs PORT TOPIC SECONDS                prints how many were answered
    python -m bench.neighbours over PORT TOPIC SECONDS                 prints the bytes a second that were taken
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from bench.link import Link
from bench.wire_load import Load, Window, batch_of, connect, produce_frame, produce_reply
from headrace.wire.batch import seal_batch, unsealed
from headrace.wire.messages import k49_alter_client_quotas as k49
from headrace.wire.records import Compression, compress

EVERY_S = 0.1
"""How often each of them produces a record."""
SMALLEST_RECORD = b"\x0e\0\0\0\x02k\x01\0"
OVER = ("over-1", "over-2")
"""Clients with a quota."""
QUOTA = 200_000.0
"""Bytes a second of each of them."""
OVER_BATCH_BYTES = 16_000
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


def over_quota(port: int, topic: str, seconds: float) -> float:
    """Two clients, each with as many requests under way as its connection holds, at a quota of a thousandth of that."""
    with Link(port) as administrator:
        for client in OVER:
            entity = [k49.EntityData("client-id", client)]
            administrator.ask(
                k49.AlterClientQuotasRequest([k49.EntryData(entity, [k49.OpData("producer_byte_rate", QUOTA)])])
            )
    frames = [produce_frame(topic, batch_of(OVER_BATCH_BYTES)[0], client_id=client) for client in OVER]
    links = [connect(port) for _ in OVER]
    for link in links:
        link.setblocking(False)
    taken = 0
    left = [memoryview(b"") for _ in OVER]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        readable, writable, _ = select.select(links, links, [], 0.1)
        for each in readable:
            taken += len(each.recv(1 << 16)) and OVER_BATCH_BYTES
        for number, each in enumerate(links):
            if each in writable:
                left[number] = left[number] or memoryview(frames[number])
                left[number] = left[number][each.send(left[number]) :]
        time.sleep(0.001)  # two clients of this process leave the processor to the others
    for link in links:
        link.close()
    return taken / seconds


def main(arguments: list[str]) -> int:
    what, port, topic, *numbers = arguments
    if what == "chat":
        print(json.dumps(chat(int(port), topic, int(numbers[0]), float(numbers[1]))))
    elif what == "over":
        print(over_quota(int(port), topic, float(numbers[0])))
    else:
        print(bombs(int(port), topic, float(numbers[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

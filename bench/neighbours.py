"""Connections that say a little now and then, beside whatever else the broker does: how long each answer takes.

    python -m bench.neighbours PORT TOPIC CONNECTIONS SECONDS     prints the latencies in seconds as a line of JSON
"""

from __future__ import annotations

import json
import select
import sys
import time

from bench.wire_load import Load, Window, batch_of, produce_frame, produce_reply

EVERY_S = 0.1
"""How often each of them produces a record."""


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


if __name__ == "__main__":
    print(json.dumps(chat(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))

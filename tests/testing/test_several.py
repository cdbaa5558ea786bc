"""Several brokers in one process: nothing of one reaches the clients of another, whatever they send meanwhile."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.records import decode_batch

BROKERS = 4
ROUNDS = 150
RECORDS = 3
VALUE_BYTES = 20_000
"""Small enough to be read into memory on its way, large enough for a send to take a while."""


def read_again_and_again(served: TestBroker, number: int, wrong: list[str]) -> None:
    with Raw(served.port) as raw:
        for _ in range(ROUNDS):
            records = raw.ask(fetch("t"), 11).responses[0].partitions[0].records
            for record in decode_batch(bytes(records)):
                if record.value != bytes([number]) * VALUE_BYTES:
                    wrong.append(f"broker {number} answered {bytes(record.value or b'')[:4]!r}...")


def test_no_answer_holds_another_brokers_bytes() -> None:
    wrong: list[str] = []
    with ExitStack() as stack:
        brokers = [stack.enter_context(running_broker()) for _ in range(BROKERS)]
        for number, served in enumerate(brokers):
            create_topic(served.port, "t")
            with Raw(served.port) as raw:
                raw.ask(produce("t", batch(*[bytes([number]) * VALUE_BYTES] * RECORDS)), 9)
        readers = [
            threading.Thread(target=read_again_and_again, args=(served, number, wrong))
            for number, served in enumerate(brokers)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert not wrong

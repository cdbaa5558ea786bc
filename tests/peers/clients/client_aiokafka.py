"""A producer and a member of a group with aiokafka, idempotent."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def produce(bootstrap: str, topic: str, partitions: int, stop: asyncio.Event) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()

    def tell(done: asyncio.Future, number: int) -> None:  # type: ignore[type-arg]
        error = done.exception()
        if error is not None:
            say(f"error produce: {error!r}")
        else:
            say(f"ack {done.result().partition} {done.result().offset} {number}")

    sent = 0
    while not stop.is_set():
        asked = await producer.send(topic, str(sent).encode(), partition=sent % partitions)
        asked.add_done_callback(lambda done, number=sent: tell(done, number))
        sent += 1
        await asyncio.sleep(0.002)
    await producer.flush()
    say(f"flushed {sent}")
    await producer.stop()


async def consume(bootstrap: str, topic: str, group: str, stop: asyncio.Event) -> None:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    try:
        while not stop.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    say(f"got {record.partition} {record.offset} {record.value.decode()}")
        await consumer.commit()
    except KafkaError as error:
        say(f"error consumer: {error!r}")
    await consumer.stop()


async def main(bootstrap: str, topic: str, group: str, partitions: str) -> None:
    wrote, read = asyncio.Event(), asyncio.Event()
    writer = asyncio.create_task(produce(bootstrap, topic, int(partitions), wrote))
    reader = asyncio.create_task(consume(bootstrap, topic, group, read))
    for stop, task in ((wrote, writer), (read, reader)):
        await asyncio.to_thread(sys.stdin.readline)
        stop.set()
        await task
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

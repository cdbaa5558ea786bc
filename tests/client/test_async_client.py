"""The asyncio client against real brokers."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client import admin, describe
from headrace.client.async_client import AsyncClient
from headrace.client.errors import BrokerError, UnknownTopicError, UnreachableError
from headrace.wire.errors import ErrorCode


async def test_topics_come_and_go(bootstrap: str, topic: str) -> None:
    async with AsyncClient(bootstrap) as client:
        assert await admin.create_topic(client, topic, partitions=2, configs={"retention.ms": "12345"})
        assert len((await client.topic(topic)).partitions) == 2
        assert not await admin.create_topic(client, topic, exist_ok=True)
        with pytest.raises(BrokerError) as refused:
            await admin.create_topic(client, topic)
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.delete_topic(client, topic)
        with pytest.raises(UnknownTopicError):
            await client.topic(topic)


async def test_tasks_share_one_client_and_its_connections(bootstrap: str) -> None:
    async with AsyncClient(bootstrap) as client:
        found = await asyncio.gather(*(describe.describe_cluster(client) for _ in range(20)))
        assert len(set(found)) == 1
        assert len(client.router.brokers.connections()) == 1


async def test_a_cancelled_task_leaves_the_connection_to_the_others(bootstrap: str) -> None:
    async with AsyncClient(bootstrap) as client:
        first = asyncio.create_task(client.topics())
        other = asyncio.create_task(client.topics())
        await asyncio.sleep(0)
        first.cancel()
        await other
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_nobody_there_names_every_address() -> None:
    async with AsyncClient("127.0.0.1:1,127.0.0.1:2") as client:
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            await client.topics()


async def test_a_closed_client_connects_again(bootstrap: str) -> None:
    client = AsyncClient(bootstrap)
    await client.topics()
    await client.close()
    await client.close()
    await client.topics()
    await client.close()


async def test_the_handler_of_the_applications_loop_stays(bootstrap: str) -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    async with AsyncClient(bootstrap) as client:
        await client.topics()
        assert loop.get_exception_handler() is before

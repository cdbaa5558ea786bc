"""The asyncio client logs in: with the right password, with a wrong one, and again before its session ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from broker import sasl

from headrace.client import admin
from headrace.client.async_client import AsyncClient
from headrace.client.async_producer import AsyncProducer
from headrace.client.login import NotLoggedInError
from headrace.client.reading import latest_offsets
from headrace.client.security import Security, security_of
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

SESSION_MS = 2_000
"""A client may log in again after one second at the earliest (KIP-368)."""
PATIENCE_S = 60.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    settings = {**sasl.SETTINGS, "connections.max.reauth.ms": str(SESSION_MS)}
    with running_broker(settings, data=tmp_path_factory.mktemp("data")) as running:
        sasl.add_users(running, ann="pencil")
        yield running


def properties(mechanism: str, password: str) -> Security:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return security_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="ann" password="{password}";',
        }
    )


def principals(broker: TestBroker) -> list[str]:
    return broker.call(lambda inside: [each.client.principal for each in inside.server.connections])


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_right_password(broker: TestBroker, mechanism: str) -> None:
    async with AsyncClient(broker.bootstrap, security=properties(mechanism, "pencil")) as client:
        await admin.create_topic(client, mechanism.lower(), exist_ok=True)
        assert "User:ann" in await asyncio.to_thread(principals, broker)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_ends_at_once_in_one_line(broker: TestBroker, mechanism: str) -> None:
    async with AsyncClient(broker.bootstrap, security=properties(mechanism, "pencils")) as client:
        with pytest.raises(NotLoggedInError) as refused:
            await client.topics()
        assert "pencil" not in str(refused.value) and "\n" not in str(refused.value)


async def test_a_producer_outlives_its_session(broker: TestBroker) -> None:
    def logins() -> int:
        return broker.call(lambda inside: inside.server.shared.logins.succeeded.value)

    async with AsyncClient(broker.bootstrap, security=properties("SCRAM-SHA-256", "pencil")) as client:
        await admin.create_topic(client, "long", exist_ok=True)
        before = await asyncio.to_thread(logins)
        async with AsyncProducer(client) as producer:
            sent = 0
            async with asyncio.timeout(PATIENCE_S):
                while await asyncio.to_thread(logins) < before + 1:
                    await producer.send("long", b"value")
                    await producer.flush()
                    sent += 1
        assert await latest_offsets(client, "long") == {0: sent}

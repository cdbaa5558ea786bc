"""A topic whose ACLs change all the time: an operator denies and allows it to a principal, which writes when it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.security.jaas import PLAIN_MODULE
from headrace.security.login import ANONYMOUS
from headrace.sim.workloads.producing import answer_of, request_for
from headrace.sim.workloads.topics import make_topic
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceResponse
from headrace.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headrace.wire.records import Record, build_batch

if TYPE_CHECKING:
    from headrace.sim.checkers.rights import Rights
    from headrace.sim.client import SimClient

NAME: Final = "guarded"
DENIED: Final = "stranger"
"""Who logs in, where all others are the super user ANONYMOUS; his password is his name."""
DENIED_PORT: Final = 9094
GUARDED_SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": ANONYMOUS,
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,STRANGERS:SASL_PLAINTEXT",
    "listener.name.strangers.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.strangers.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{DENIED}="{DENIED}";',
}
_TOPIC, _LITERAL, _ALL, _WRITE, _DENY, _ALLOW = 2, 3, 2, 4, 2, 3
_RESTS: Final = (6, 18)
"""How long an operator waits between two changes: long enough for checkers to see the ACLs in force."""


class Guard:
    """The operator. `denied` is the principal that it denies the topic to."""

    def __init__(self, client: SimClient, denied: str) -> None:
        self.client = client
        self.changes = 0
        self._denied = denied

    async def run(self) -> None:
        """Until its node ends."""
        await make_topic(self.client, NAME, 1, {}, replicas=3)
        await self._create("User:*", _ALL, _ALLOW)
        await self._wait()  # rights stay for longer than it takes to look at them: see `Rights`
        while True:
            await self._create(self._denied, _WRITE, _DENY)
            await self._wait()
            wanted = DeleteAclsFilter(_TOPIC, NAME, _LITERAL, self._denied, "*", _WRITE, _DENY)
            await self.client.insist(DeleteAclsRequest([wanted]), DeleteAclsResponse, 3)
            self.changes += 1
            await self._wait()

    async def _create(self, principal: str, operation: int, permission: int) -> None:
        acl = AclCreation(_TOPIC, NAME, _LITERAL, principal, "*", operation, permission)
        await self.client.insist(CreateAclsRequest([acl]), CreateAclsResponse, 3)
        self.changes += 1

    async def _wait(self) -> None:
        for _ in range(self.client.rng.randint(*_RESTS)):
            await self.client.rest()


class DeniedProducer:
    """A producer that may write at times."""

    def __init__(self, client: SimClient, rights: Rights) -> None:
        self.client = client
        self._rights = rights
        self._written = 0

    async def run(self) -> None:
        """Until its node ends."""
        client = self.client
        while True:
            self._written += 1
            record = Record(0, client.node.clock.now_ms(), None, b"%d" % self._written)
            asked_at = client.world.loop.time()
            try:
                answer = answer_of(
                    await client.ask(request_for((NAME, 0), build_batch([record]), -1), ProduceResponse, 9)
                )
            except ClientError:
                await client.rest()
                continue
            if answer.error_code == ErrorCode.NONE:
                self._rights.let_in(asked_at)
            elif answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._rights.refused += 1
            else:
                client.moved((NAME, 0))
            await client.rest()

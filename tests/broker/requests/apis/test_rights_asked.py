"""The table of rights beside the APIs is what their handlers ask for: no more, and no less."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from broker.raw import Raw, create_topic
from compat.kafka_says.refusals import refusals
from compat.kafka_says.rights import GROUP, HELD, TRANSACTION, World
from compat.kafka_says.rights_asked import cases

from headrace.broker.requests.apis import SERVED, Access
from headrace.security.authorizer import OPERATIONS_OF, UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.messages import k01_fetch as k01
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k19900_headrace_group_end_txn import HeadraceGroupEndTxnRequest

TELL_OPERATIONS = {
    ApiKey.METADATA: (ResourceType.TOPIC, ResourceType.CLUSTER),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (ResourceType.TOPIC,),
    ApiKey.DESCRIBE_GROUPS: (ResourceType.GROUP,),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (ResourceType.GROUP,),
    ApiKey.DESCRIBE_CLUSTER: (ResourceType.CLUSTER,),
}
"""APIs whose answers say what a client may do to a resource."""
NOT_REACHED = {
    ApiKey.INIT_PRODUCER_ID: {Access(ResourceType.TRANSACTIONAL_ID, Operation.TWO_PHASE_COMMIT)},
    ApiKey.DESCRIBE_CLUSTER: {Access(ResourceType.CLUSTER, Operation.ALTER)},
    ApiKey.DESCRIBE_TRANSACTIONS: {Access(ResourceType.TOPIC, Operation.DESCRIBE)},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {Access(ResourceType.TOPIC, Operation.DESCRIBE)},
    ApiKey.CREATE_DELEGATION_TOKEN: {Access(ResourceType.USER, Operation.CREATE_TOKENS)},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {
        Access(ResourceType.DELEGATION_TOKEN, Operation.DESCRIBE),
        Access(ResourceType.USER, Operation.DESCRIBE_TOKENS),
    },
}
"""What a version asks for that is not stable yet, what only a controller asks for, and what takes a login, an open
transaction or members of a group, of which other tests tell."""


class Noted(OpenAuthorizer):
    """Says the same to everything, and notes what it was."""

    generation = UNCACHED

    def __init__(self, refused: Iterable[Access], *, allows: bool) -> None:
        self.refused = set(refused)
        self.allows = allows
        self.asked: set[Access] = set()

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return self.authorize_any(principal, client_host, operation, resource)

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        access = Access(resource, operation)
        self.asked.add(access)
        return self.allows is not (access in self.refused)


def requests(world: World, *, all_refused: bool) -> Iterable[tuple[Any, int]]:
    for case in cases():
        for version in sorted({case.versions()[0], case.versions()[-1]}):
            yield case.make(world), version
    for refusal in refusals(world.topic_id) if all_refused else ():
        for version in refusal.versions():
            yield refusal.request, version
    yield k01.FetchRequest(max_wait_ms=1, session_epoch=-1, replica_state=k01.ReplicaState(1, 1)), 17
    yield HeadraceGroupEndTxnRequest("mine", 1, 0, True), 0


def rule(broker: TestBroker, authorizer: OpenAuthorizer) -> None:
    broker.call(lambda inside: setattr(inside, "authorizer", authorizer))


ON_CLUSTER = partial(Access, ResourceType.CLUSTER)
WAYS = (
    Noted((), allows=False),
    Noted((), allows=True),
    Noted(map(ON_CLUSTER, (Operation.IDEMPOTENT_WRITE, Operation.CREATE, Operation.DELETE)), allows=True),
    Noted((ON_CLUSTER(Operation.ALTER), Access(ResourceType.TOPIC, Operation.WRITE)), allows=True),
    Noted(map(ON_CLUSTER, (Operation.CLUSTER_ACTION, Operation.DESCRIBE)), allows=True),
)


def test_the_table_says_what_handlers_ask_for() -> None:
    noted: list[tuple[int, Noted]] = []
    with running_broker() as broker, Raw(broker.port) as owner, Raw(broker.port) as raw:
        world = World(owner, create_topic(broker.port, HELD, 2))
        for key_type, key in ((0, GROUP), (1, TRANSACTION)):
            assert owner.ask(FindCoordinatorRequest("", key_type, [key]), 4).coordinators[0].error_code == 0
        for way in WAYS:
            for request, version in requests(world, all_refused=not way.allows):
                # of this request alone: a group's look-up of its patterns asks later, beside other requests
                authorizer = Noted(way.refused, allows=way.allows)
                rule(broker, authorizer)
                raw.ask(request, version)
                noted.append((request.API_KEY, authorizer))
                rule(broker, OpenAuthorizer())
    asked: dict[int, set[Access]] = defaultdict(set)
    for api, authorizer in noted:
        asked[api] |= authorizer.asked
    for served, table in SERVED.items():
        if "broker" not in APIS[served].listeners:
            continue
        told = {Access(on, each) for on in TELL_OPERATIONS.get(ApiKey(served), ()) for each in OPERATIONS_OF[on]}
        assert asked[served] <= table | told, APIS[served].name
        assert table - asked[served] <= NOT_REACHED.get(ApiKey(served), set()), APIS[served].name

"""The served APIs, which ApiVersions advertises: one module for each key, named as in `wire/messages`.

Beside each key are the resources and operations that its handler may ask the authorizer about, except those whose
permission is only reported in the response.

Rules that bound what one request costs others:

1. Nothing is computed before the client is authorized, beyond what the check needs. A name is looked up in a dict or a
   set, never compared with all others.
2. Work that grows with the request, or with the data, is done in pieces (`requests/pieces.py`): a reader is a generator
   of steps (`in_pieces`), a writer's effects are committed part by part (`in_parts`), and the controller decides in
   pieces too (`controller/pieces.py`). A small request is answered in the same call, without a coroutine.
3. A name that a request repeats is looked up, and answered, once.
4. Requests of many elements are decoded, and long answers encoded, on a worker, one at a time, within the budgets for
   requests and responses in memory (`net/long_answers.py`).
5. A list or table that grows with a request, and is no result of steps, is kept by the context
   (`RequestContext.keep`), which frees it a few elements at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.security.authorizer import Operation as Op
from headrace.security.authorizer import ResourceType as On
from headrace.wire.apis import ApiKey


class Access(NamedTuple):
    """An operation on a type of resource that a handler asks the authorizer about."""

    resource: On
    operation: Op


def may(resource: On, *operations: Op) -> frozenset[Access]:
    """Returns operations on one type of resource."""
    return frozenset(Access(resource, operation) for operation in operations)


SERVED: dict[int, frozenset[Access]] = {
    ApiKey.PRODUCE: may(On.TRANSACTIONAL_ID, Op.WRITE) | may(On.TOPIC, Op.WRITE),
    ApiKey.FETCH: may(On.TOPIC, Op.READ) | may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.LIST_OFFSETS: may(On.TOPIC, Op.DESCRIBE),
    ApiKey.METADATA: may(On.TOPIC, Op.DESCRIBE, Op.CREATE) | may(On.CLUSTER, Op.CREATE, Op.DESCRIBE),
    ApiKey.OFFSET_COMMIT: may(On.GROUP, Op.READ) | may(On.TOPIC, Op.READ),
    ApiKey.OFFSET_FETCH: may(On.GROUP, Op.DESCRIBE) | may(On.TOPIC, Op.DESCRIBE),
    ApiKey.FIND_COORDINATOR: may(On.GROUP, Op.DESCRIBE)
    | may(On.TRANSACTIONAL_ID, Op.DESCRIBE)
    | may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.JOIN_GROUP: may(On.GROUP, Op.READ),
    ApiKey.HEARTBEAT: may(On.GROUP, Op.READ),
    ApiKey.LEAVE_GROUP: may(On.GROUP, Op.READ),
    ApiKey.SYNC_GROUP: may(On.GROUP, Op.READ),
    ApiKey.DESCRIBE_GROUPS: may(On.GROUP, Op.DESCRIBE),
    ApiKey.LIST_GROUPS: may(On.CLUSTER, Op.DESCRIBE) | may(On.GROUP, Op.DESCRIBE),
    ApiKey.SASL_HANDSHAKE: frozenset(),
    ApiKey.API_VERSIONS: frozenset(),
    ApiKey.CREATE_TOPICS: may(On.CLUSTER, Op.CREATE) | may(On.TOPIC, Op.CREATE, Op.DESCRIBE_CONFIGS),
    ApiKey.DELETE_TOPICS: may(On.CLUSTER, Op.DELETE) | may(On.TOPIC, Op.DESCRIBE, Op.DELETE),
    ApiKey.DELETE_RECORDS: may(On.TOPIC, Op.DELETE),
    ApiKey.INIT_PRODUCER_ID: may(On.TRANSACTIONAL_ID, Op.WRITE, Op.TWO_PHASE_COMMIT)
    | may(On.CLUSTER, Op.IDEMPOTENT_WRITE)
    | may(On.TOPIC, Op.WRITE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: may(On.CLUSTER, Op.CLUSTER_ACTION) | may(On.TOPIC, Op.DESCRIBE),
    ApiKey.ADD_PARTITIONS_TO_TXN: may(On.CLUSTER, Op.CLUSTER_ACTION)
    | may(On.TRANSACTIONAL_ID, Op.WRITE)
    | may(On.TOPIC, Op.WRITE),
    ApiKey.ADD_OFFSETS_TO_TXN: may(On.TRANSACTIONAL_ID, Op.WRITE) | may(On.GROUP, Op.READ),
    ApiKey.END_TXN: may(On.TRANSACTIONAL_ID, Op.WRITE),
    ApiKey.WRITE_TXN_MARKERS: may(On.CLUSTER, Op.ALTER, Op.CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: may(On.TRANSACTIONAL_ID, Op.WRITE) | may(On.GROUP, Op.READ) | may(On.TOPIC, Op.READ),
    ApiKey.DESCRIBE_ACLS: may(On.CLUSTER, Op.DESCRIBE),
    ApiKey.CREATE_ACLS: may(On.CLUSTER, Op.ALTER),
    ApiKey.DELETE_ACLS: may(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_CONFIGS: may(On.TOPIC, Op.DESCRIBE_CONFIGS)
    | may(On.GROUP, Op.DESCRIBE_CONFIGS)
    | may(On.CLUSTER, Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: may(On.TOPIC, Op.ALTER_CONFIGS)
    | may(On.GROUP, Op.ALTER_CONFIGS)
    | may(On.CLUSTER, Op.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: may(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: may(On.CLUSTER, Op.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: frozenset(),
    ApiKey.CREATE_PARTITIONS: may(On.TOPIC, Op.ALTER),
    ApiKey.CREATE_DELEGATION_TOKEN: may(On.USER, Op.CREATE_TOKENS),
    ApiKey.RENEW_DELEGATION_TOKEN: frozenset(),
    ApiKey.EXPIRE_DELEGATION_TOKEN: frozenset(),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: may(On.DELEGATION_TOKEN, Op.DESCRIBE) | may(On.USER, Op.DESCRIBE_TOKENS),
    ApiKey.DELETE_GROUPS: may(On.GROUP, Op.DELETE),
    ApiKey.ELECT_LEADERS: may(On.CLUSTER, Op.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: may(On.TOPIC, Op.ALTER_CONFIGS)
    | may(On.GROUP, Op.ALTER_CONFIGS)
    | may(On.CLUSTER, Op.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: may(On.CLUSTER, Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: may(On.CLUSTER, Op.DESCRIBE),
    ApiKey.OFFSET_DELETE: may(On.GROUP, Op.DELETE) | may(On.TOPIC, Op.READ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: may(On.CLUSTER, Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: may(On.CLUSTER, Op.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: may(On.CLUSTER, Op.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: may(On.CLUSTER, Op.ALTER),
    ApiKey.VOTE: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.BEGIN_QUORUM_EPOCH: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.END_QUORUM_EPOCH: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.DESCRIBE_QUORUM: may(On.CLUSTER, Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: may(On.CLUSTER, Op.ALTER),
    ApiKey.FETCH_SNAPSHOT: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.DESCRIBE_CLUSTER: may(On.CLUSTER, Op.DESCRIBE, Op.ALTER),
    ApiKey.UNREGISTER_BROKER: may(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_PRODUCERS: may(On.TOPIC, Op.READ),
    ApiKey.DESCRIBE_TRANSACTIONS: may(On.TRANSACTIONAL_ID, Op.DESCRIBE) | may(On.TOPIC, Op.DESCRIBE),
    ApiKey.LIST_TRANSACTIONS: may(On.TRANSACTIONAL_ID, Op.DESCRIBE),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: may(On.GROUP, Op.READ) | may(On.TOPIC, Op.DESCRIBE),
    ApiKey.CONSUMER_GROUP_DESCRIBE: may(On.GROUP, Op.DESCRIBE) | may(On.TOPIC, Op.DESCRIBE),
    ApiKey.LIST_CONFIG_RESOURCES: may(On.CLUSTER, Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: may(On.TOPIC, Op.DESCRIBE),
    ApiKey.ADD_RAFT_VOTER: may(On.CLUSTER, Op.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: may(On.CLUSTER, Op.ALTER),
    ApiKey.HEADRACE_GROUP_END_TXN: may(On.TRANSACTIONAL_ID, Op.WRITE),
}

CLUSTER: dict[int, frozenset[Access]] = {
    ApiKey.ALTER_PARTITION: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.ENVELOPE: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.BROKER_REGISTRATION: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.CONTROLLER_REGISTRATION: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: may(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.UPDATE_RAFT_VOTER: may(On.CLUSTER, Op.CLUSTER_ACTION),
}
"""APIs between nodes, served if there are several voters."""

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs whose requests an envelope may contain."""
SPLIT: Final = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""Forwarded APIs of which a broker handles a part itself; their handlers forward the rest."""

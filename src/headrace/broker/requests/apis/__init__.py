"""The APIs that are served: ApiVersions advertises exactly these. One module a key, named as in `wire/messages`.

Beside each key stand the resource and the operation that its handler asks the authorizer about.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.security.authorizer import Operation as Op
from headrace.security.authorizer import ResourceType as On
from headrace.wire.apis import ApiKey


class Access(NamedTuple):
    """What a handler asks the authorizer about; None where everyone may ask."""

    resource: On | None
    operation: Op | None


SERVED: dict[int, Access] = {
    ApiKey.PRODUCE: Access(On.TOPIC, Op.WRITE),
    ApiKey.FETCH: Access(On.TOPIC, Op.READ),
    ApiKey.LIST_OFFSETS: Access(On.TOPIC, Op.DESCRIBE),
    ApiKey.METADATA: Access(On.TOPIC, Op.DESCRIBE),
    ApiKey.OFFSET_COMMIT: Access(On.GROUP, Op.READ),
    ApiKey.OFFSET_FETCH: Access(On.GROUP, Op.DESCRIBE),
    ApiKey.FIND_COORDINATOR: Access(On.GROUP, Op.DESCRIBE),
    ApiKey.JOIN_GROUP: Access(On.GROUP, Op.READ),
    ApiKey.HEARTBEAT: Access(On.GROUP, Op.READ),
    ApiKey.LEAVE_GROUP: Access(On.GROUP, Op.READ),
    ApiKey.SYNC_GROUP: Access(On.GROUP, Op.READ),
    ApiKey.DESCRIBE_GROUPS: Access(On.GROUP, Op.DESCRIBE),
    ApiKey.LIST_GROUPS: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.SASL_HANDSHAKE: Access(None, None),
    ApiKey.API_VERSIONS: Access(None, None),
    ApiKey.CREATE_TOPICS: Access(On.CLUSTER, Op.CREATE),
    ApiKey.DELETE_TOPICS: Access(On.TOPIC, Op.DELETE),
    ApiKey.DELETE_RECORDS: Access(On.TOPIC, Op.DELETE),
    ApiKey.INIT_PRODUCER_ID: Access(On.CLUSTER, Op.IDEMPOTENT_WRITE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Access(On.TOPIC, Op.DESCRIBE),
    ApiKey.ADD_PARTITIONS_TO_TXN: Access(On.TRANSACTIONAL_ID, Op.WRITE),
    ApiKey.ADD_OFFSETS_TO_TXN: Access(On.TRANSACTIONAL_ID, Op.WRITE),
    ApiKey.END_TXN: Access(On.TRANSACTIONAL_ID, Op.WRITE),
    ApiKey.WRITE_TXN_MARKERS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.TXN_OFFSET_COMMIT: Access(On.GROUP, Op.READ),
    ApiKey.DESCRIBE_ACLS: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.CREATE_ACLS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.DELETE_ACLS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_CONFIGS: Access(On.TOPIC, Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: Access(On.TOPIC, Op.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: Access(None, None),
    ApiKey.CREATE_PARTITIONS: Access(On.TOPIC, Op.ALTER),
    ApiKey.DELETE_GROUPS: Access(On.GROUP, Op.DELETE),
    ApiKey.ELECT_LEADERS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Access(On.TOPIC, Op.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.OFFSET_DELETE: Access(On.GROUP, Op.DELETE),
    ApiKey.VOTE: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.BEGIN_QUORUM_EPOCH: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.END_QUORUM_EPOCH: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Access(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_QUORUM: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: Access(On.CLUSTER, Op.ALTER),
    ApiKey.FETCH_SNAPSHOT: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.DESCRIBE_CLUSTER: Access(On.CLUSTER, Op.DESCRIBE),
    ApiKey.UNREGISTER_BROKER: Access(On.CLUSTER, Op.ALTER),
    ApiKey.DESCRIBE_PRODUCERS: Access(On.TOPIC, Op.READ),
    ApiKey.DESCRIBE_TRANSACTIONS: Access(On.TRANSACTIONAL_ID, Op.DESCRIBE),
    ApiKey.LIST_TRANSACTIONS: Access(On.TRANSACTIONAL_ID, Op.DESCRIBE),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Access(On.GROUP, Op.READ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Access(On.GROUP, Op.DESCRIBE),
    ApiKey.LIST_CONFIG_RESOURCES: Access(On.CLUSTER, Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Access(On.TOPIC, Op.DESCRIBE),
    ApiKey.ADD_RAFT_VOTER: Access(On.CLUSTER, Op.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: Access(On.CLUSTER, Op.ALTER),
    ApiKey.HEADRACE_GROUP_END_TXN: Access(On.TRANSACTIONAL_ID, Op.WRITE),
}

CLUSTER: dict[int, Access] = {
    ApiKey.ALTER_PARTITION: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.ENVELOPE: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.BROKER_REGISTRATION: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.CONTROLLER_REGISTRATION: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Access(On.CLUSTER, Op.CLUSTER_ACTION),
    ApiKey.UPDATE_RAFT_VOTER: Access(On.CLUSTER, Op.CLUSTER_ACTION),
}
"""What nodes ask of each other's controller: served where there are several voters."""

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""What an envelope may hold."""
SPLIT: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""Of these a broker does a part itself; their handlers forward the rest."""

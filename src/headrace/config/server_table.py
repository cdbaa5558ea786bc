"""The broker's own settings: who it is, where it listens, its limits, and what other roles it plays."""

from __future__ import annotations

from typing import Final

from .setting import INT_MAX, LONG_MAX, Setting, Type, Value, gzip_level_check

_ONE_LOOP: Final = "requests run on one event loop, blocking work on a small pool; these sizes do not apply"
_NO_JAVA: Final = "this broker cannot load Java classes"
_NO_POLICY: Final = "policies of the Java world cannot be loaded, and nothing would be vetted"
_NO_TELEMETRY: Final = "this release does not collect client metrics"
_BY_CONNECTION: Final = (
    "`connection.max.queued.requests` bounds them for each connection, and `queued.max.request.bytes` bounds bytes"
)
_STABLE: Final = "this broker serves only stable versions"

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_ROLES: Final = ("broker", "controller")


def _selector_check(value: Value) -> str:
    return "" if value in ("", RACK_AWARE) else f"the broker knows {RACK_AWARE} alone, and cannot load Java classes"


SERVER_ROWS: Final[tuple[Setting, ...]] = (
    Setting("node.id", Type.INT, None, "Number of this node in the cluster.", at_least=0, synonyms=("broker.id",)),
    Setting("broker.id", Type.INT, -1, "Older name of `node.id`; both must agree when both are set."),
    Setting(
        "process.roles",
        Type.LIST,
        (),
        "Which parts run in this process: `broker,controller` (also if not set), or one of them alone.",
        choices=_ROLES,
    ),
    Setting(
        "broker.rack",
        Type.STRING,
        None,
        "The rack of this broker. The broker registers it, and clients read it in metadata. Replicas are "
        "spread over racks, and `replica.selector.class` can send consumers to the replica in their own.",
    ),
    Setting(
        "listeners",
        Type.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses that the broker listens on: `NAME://host:port`; port 0 picks a free one. A running broker "
        "refuses any other value.",
        update="per-broker",
    ),
    Setting(
        "advertised.listeners",
        Type.LIST,
        None,
        "Addresses that clients connect to; not set: those of `listeners`.",
        synonyms=("listeners",),
    ),
    Setting(
        "listener.security.protocol.map",
        Type.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The protocol of each listener name: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
        update="per-broker",
    ),
    Setting("inter.broker.listener.name", Type.STRING, None, "The listener that brokers use among themselves."),
    Setting(
        "controller.listener.names",
        Type.LIST,
        (),
        "Names of the controller listeners; the broker opens one if the file names it.",
    ),
    Setting("log.dir", Type.LIST, ("headrace-data",), "Directory of the log when `log.dirs` is not set."),
    Setting(
        "log.dirs",
        Type.LIST,
        None,
        "Directories of the log; the broker spreads partitions over them.",
        synonyms=("log.dir",),
    ),
    Setting("metadata.log.dir", Type.STRING, None, "Directory of the metadata log; not set: the first of `log.dirs`."),
    Setting(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        True,
        "Whether the broker creates a topic when a client first asks for it.",
    ),
    Setting("delete.topic.enable", Type.BOOLEAN, True, "Whether clients can delete topics."),
    Setting("num.partitions", Type.INT, 1, "Partitions of a topic that a client creates without a count.", at_least=1),
    Setting("default.replication.factor", Type.INT, 1, "Replicas of a topic that a client creates without a count."),
    Setting(
        "message.max.bytes",
        Type.INT,
        1048588,
        "The largest record batch that the broker accepts, headers included.",
        at_least=0,
        update="cluster-wide",
    ),
    Setting(
        "fetch.max.bytes",
        Type.INT,
        57671680,
        "The most record bytes in one fetch response; the first batch goes out whatever its size.",
        at_least=1024,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Type.INT,
        1000,
        "Incremental fetch sessions that the broker keeps; beyond it clients send full fetches.",
        at_least=0,
    ),
    Setting(
        "max.request.partition.size.limit",
        Type.INT,
        2000,
        "The most partitions in one DescribeTopicPartitions response.",
        at_least=1,
    ),
    Setting(
        "queued.max.requests",
        Type.INT,
        500,
        "Unanswered requests over all connections; beyond it the broker stops reading.",
        at_least=1,
        unserved=_BY_CONNECTION,
    ),
    Setting(
        "queued.max.request.bytes",
        Type.LONG,
        134217728,
        "Bytes of requests in memory over all connections; beyond it the broker stops reading.",
    ),
    Setting(
        "socket.request.max.bytes",
        Type.INT,
        104857600,
        "The largest frame that the broker reads; a larger one closes its connection.",
        at_least=1,
    ),
    Setting(
        "socket.receive.buffer.bytes",
        Type.INT,
        -1,
        "Size of the sockets' receive buffer; -1 leaves it to the system.",
    ),
    Setting(
        "socket.send.buffer.bytes",
        Type.INT,
        204800,
        "Size of the sockets' send buffer; -1 leaves it to the system, which serves single readers far away faster.",
    ),
    Setting(
        "socket.listen.backlog.size",
        Type.INT,
        50,
        "Connections that may wait until the broker accepts them.",
        at_least=1,
    ),
    Setting(
        "connections.max.idle.ms",
        Type.LONG,
        600000,
        "The broker closes a connection that is silent for this long.",
    ),
    Setting(
        "max.connections",
        Type.INT,
        INT_MAX,
        "The most connections over all listeners except those of controllers. The broker accepts no further one "
        "until one closes. If brokers have a listener of their own, it still accepts, and a connection of another "
        "listener is closed. "
        "`listener.name.<name>.max.connections` is the most on one listener.",
        at_least=0,
        update="cluster-wide",
        by="listener",
    ),
    Setting(
        "max.connections.per.ip",
        Type.INT,
        INT_MAX,
        "The most connections from one address.",
        at_least=0,
        update="cluster-wide",
    ),
    Setting(
        "max.connections.per.ip.overrides",
        Type.STRING,
        "",
        "Other limits for single addresses: `host:count` pairs.",
        update="cluster-wide",
    ),
    Setting(
        "max.tls.handshake.rate.per.ip",
        Type.INT,
        100,
        "The most TLS handshakes a second that one address may begin (an IPv6 address with its neighbours of the same "
        "/64). It may begin those of one second at once; others wait, and are closed where that would take too long.",
        at_least=1,
        update="cluster-wide",
        ours=True,
    ),
    Setting(
        "compression.type",
        Type.STRING,
        "producer",
        "Default of the topic setting of this name.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        update="cluster-wide",
    ),
    Setting(
        "compression.gzip.level",
        Type.INT,
        -1,
        "Default of the topic setting of this name.",
        check=gzip_level_check,
        update="cluster-wide",
    ),
    Setting(
        "compression.lz4.level",
        Type.INT,
        9,
        "Default of the topic setting of this name.",
        at_least=1,
        at_most=17,
        update="cluster-wide",
    ),
    Setting(
        "compression.zstd.level",
        Type.INT,
        3,
        "Default of the topic setting of this name.",
        at_least=-131072,
        at_most=22,
        update="cluster-wide",
    ),
    Setting(
        "min.insync.replicas",
        Type.INT,
        1,
        "Default of the topic setting of this name.",
        at_least=1,
        update="cluster-wide",
    ),
    Setting(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Default of the topic setting of this name.",
        update="cluster-wide",
    ),
    Setting(
        "producer.id.expiration.ms",
        Type.INT,
        86400000,
        "How long a partition remembers a producer that has stopped writing.",
        at_least=1,
        update="cluster-wide",
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        Type.INT,
        600000,
        "How often the broker looks for producers that have stopped writing.",
        at_least=1,
        internal=True,
    ),
    Setting(
        "request.timeout.ms",
        Type.INT,
        30000,
        "How long another broker may take to answer, and a transaction's state to be committed.",
        at_least=1,
    ),
    Setting(
        "unstable.api.versions.enable",
        Type.BOOLEAN,
        False,
        "Whether the broker offers API versions under development.",
        internal=True,
        unserved=_STABLE,
    ),
    Setting(
        "unstable.feature.versions.enable",
        Type.BOOLEAN,
        False,
        "Whether the cluster may use feature levels under development.",
        internal=True,
        unserved=_STABLE,
    ),
    Setting(
        "num.network.threads",
        Type.INT,
        3,
        "Threads that read and write sockets.",
        at_least=1,
        update="cluster-wide",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "num.io.threads",
        Type.INT,
        8,
        "Threads that handle requests.",
        at_least=1,
        update="cluster-wide",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "background.threads",
        Type.INT,
        10,
        "Threads for housekeeping.",
        at_least=1,
        update="cluster-wide",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "num.replica.alter.log.dirs.threads",
        Type.INT,
        None,
        "Threads that move replicas between directories; not set: one for each directory.",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "fetch.purgatory.purge.interval.requests",
        Type.INT,
        1000,
        "Waiting fetches between two sweeps of finished ones.",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "producer.purgatory.purge.interval.requests",
        Type.INT,
        1000,
        "Waiting produce requests between two sweeps of finished ones.",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "delete.records.purgatory.purge.interval.requests",
        Type.INT,
        1,
        "Waiting DeleteRecords requests between two sweeps of finished ones.",
        unserved=_ONE_LOOP,
    ),
    Setting(
        "max.connection.creation.rate",
        Type.INT,
        INT_MAX,
        "The most new connections in a second, in the mean of some seconds; also of one listener "
        "(`listener.name.<name>.max.connection.creation.rate`).",
        at_least=0,
        update="cluster-wide",
        by="listener",
    ),
    Setting(
        "alter.config.policy.class.name", Type.CLASS, None, "Class that vets changes of settings.", refused=_NO_POLICY
    ),
    Setting("create.topic.policy.class.name", Type.CLASS, None, "Class that vets new topics.", refused=_NO_POLICY),
    Setting(
        "client.quota.callback.class",
        Type.CLASS,
        None,
        "Class that computes quotas.",
        refused="Java classes cannot be loaded, and nothing would be limited as that class says",
    ),
    Setting(
        "config.providers",
        Type.LIST,
        (),
        "Names of classes that fetch values from elsewhere.",
        update="cluster-wide",
        refused="values cannot be fetched from elsewhere yet",
    ),
    Setting(
        "replica.selector.class",
        Type.STRING,
        None,
        "Which replica a consumer reads from: not set, the leader; "
        "`org.apache.kafka.common.replica.RackAwareReplicaSelector`, a replica in the rack that the consumer names "
        "(`client.rack`).",
        check=_selector_check,
    ),
    Setting(
        "metric.reporters",
        Type.LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Classes that publish metrics.",
        update="cluster-wide",
        unserved=_NO_JAVA,
    ),
    Setting(
        "kafka.metrics.reporters", Type.LIST, (), "Classes that publish metrics of the older kind.", unserved=_NO_JAVA
    ),
    Setting(
        "kafka.metrics.polling.interval.secs",
        Type.INT,
        10,
        "How often the older reporters publish.",
        at_least=1,
        unserved=_NO_JAVA,
    ),
    Setting("metrics.num.samples", Type.INT, 2, "Samples that a metric covers.", at_least=1, unserved=_NO_JAVA),
    Setting(
        "metrics.recording.level",
        Type.STRING,
        "INFO",
        "Level of the metrics to record: INFO, DEBUG or TRACE.",
        unserved=_NO_JAVA,
    ),
    Setting(
        "metrics.sample.window.ms", Type.LONG, 30000, "Length of a metric's sample.", at_least=1, unserved=_NO_JAVA
    ),
    Setting(
        "telemetry.max.bytes",
        Type.INT,
        1048576,
        "The largest set of metrics that a client may push.",
        at_least=1,
        unserved=_NO_TELEMETRY,
    ),
    Setting(
        "quota.window.num",
        Type.INT,
        11,
        "Samples that a client quota covers.",
        at_least=1,
    ),
    Setting(
        "quota.window.size.seconds",
        Type.INT,
        1,
        "Length of a sample of client quotas.",
        at_least=1,
    ),
    Setting(
        "controller.quota.window.num",
        Type.INT,
        11,
        "Samples that a quota on topic changes covers.",
        at_least=1,
    ),
    Setting(
        "controller.quota.window.size.seconds",
        Type.INT,
        1,
        "Length of a sample of quotas on topic changes.",
        at_least=1,
    ),
    Setting(
        "leader.replication.throttled.rate",
        Type.LONG,
        LONG_MAX,
        "Bytes a second that followers may fetch here of the replicas that `leader.replication.throttled.replicas` of "
        "their topics names, while they are not in sync.",
        at_least=0,
        update="cluster-wide",
    ),
    Setting(
        "follower.replication.throttled.rate",
        Type.LONG,
        LONG_MAX,
        "Bytes a second that this broker may fetch of the replicas that `follower.replication.throttled.replicas` of "
        "their topics names, while they are not in sync.",
        at_least=0,
        update="cluster-wide",
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Type.LONG,
        LONG_MAX,
        "Bytes a second that moves of replicas between log directories may copy.",
        at_least=0,
        update="cluster-wide",
    ),
    Setting(
        "replication.quota.window.num",
        Type.INT,
        11,
        "Windows for which the broker remembers that replication went over its rate.",
        at_least=1,
    ),
    Setting(
        "replication.quota.window.size.seconds",
        Type.INT,
        1,
        "Length of a window of replication rates: what was not used of a rate can be used within one.",
        at_least=1,
    ),
    Setting(
        "alter.log.dirs.replication.quota.window.num",
        Type.INT,
        11,
        "Windows for which the broker remembers that moves between log directories went over their rate.",
        at_least=1,
    ),
    Setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        Type.INT,
        1,
        "Length of a window of the rate of moves between log directories.",
        at_least=1,
    ),
)

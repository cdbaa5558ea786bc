"""The options of `format("headrace")`, each once: its use, its default, and what docs/spark-options.md says.

`options` reads them and complains; a name that is not here is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import Final


class Use(Flag):
    """What an option is for."""

    BATCH = auto()
    """Batch reads."""
    STREAM = auto()
    READ = BATCH | STREAM
    SINK = auto()
    """Writes, of a batch or a stream."""
    ALL = READ | SINK


@dataclass(frozen=True, slots=True)
class Option:
    """An option by its name in the documentation; Spark knows it in any case of letters.

    `values` and `about` are Markdown, `about` of one line. `default` is a value that does what leaving the option out
    does; where there is no such value, `otherwise` says in words what holds then.
    """

    name: str
    use: Use
    values: str
    about: str
    default: str | None = None
    otherwise: str = ""


_FLAG: Final = "`true`, `false`"
_NUMBER: Final = "a number from 1"
_STORES: Final = "`JKS`, `PKCS12`, `PEM`"

SECTIONS: Final[dict[str, tuple[Option, ...]]] = {
    "The cluster": (
        Option("kafka.bootstrap.servers", Use.ALL, "`host:port,host:port`", "Brokers asked first.", otherwise="needed"),
        Option("kafka.client.id", Use.ALL, "text", "The client id in its requests.", "headrace-spark"),
        Option(
            "kafka.isolation.level", Use.READ, "`read_uncommitted`, `read_committed`",
            "`read_committed` leaves out records of transactions that are open or aborted.",
            "read_uncommitted",
        ),
        Option(
            "kafka.default.api.timeout.ms", Use.ALL, "milliseconds",
            "How long a request may wait for its answer, all attempts at a broker included, before the query ends.",
            "120000",
        ),
        Option(
            "kafka.request.timeout.ms", Use.ALL, "milliseconds",
            "How long a broker may take for one answer before the client connects to it again.", "30000",
        ),
    ),
    "Encryption and login": (
        Option(
            "kafka.security.protocol", Use.ALL, "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`",
            "The protocol to the brokers: `SSL` is TLS, `SASL` a login.", "PLAINTEXT",
        ),
        Option(
            "kafka.sasl.mechanism", Use.ALL, "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `GSSAPI`",
            "How the client logs in; `GSSAPI` is Kerberos, with the extra `kerberos` on every machine.",
            otherwise="a login needs it",
        ),
        Option(
            "kafka.sasl.kerberos.service.name", Use.ALL, "text",
            "The service of the brokers in Kerberos, `kafka`; the keytab has to be on every machine.",
        ),
        Option(
            "kafka.sasl.jaas.config", Use.ALL, "a JAAS line",
            'Who logs in: `org.apache.kafka.common.security.scram.ScramLoginModule required username="…" '
            'password="…";`.',
            otherwise="a login needs it",
        ),
        Option(
            "kafka.ssl.truststore.location", Use.ALL, "a path, the same on every machine",
            "The file with the authorities whose certificates the client believes.", otherwise="those of the system",
        ),
        Option("kafka.ssl.truststore.type", Use.ALL, _STORES, "The format of that file.", otherwise="`JKS`"),
        Option(
            "kafka.ssl.truststore.password", Use.ALL, "text", "The password that its integrity is checked with.",
            otherwise="unchecked",
        ),
        Option(
            "kafka.ssl.truststore.certificates", Use.ALL, "PEM text", "The authorities themselves, in place of a file.",
        ),
        Option(
            "kafka.ssl.keystore.location", Use.ALL, "a path, the same on every machine",
            "The file with the client's own key and certificate, where brokers ask for one.",
        ),
        Option("kafka.ssl.keystore.type", Use.ALL, _STORES, "The format of that file.", otherwise="`JKS`"),
        Option("kafka.ssl.keystore.password", Use.ALL, "text", "The password of that file; a PEM file has none."),
        Option("kafka.ssl.key.password", Use.ALL, "text", "The password of the key in it, where it has one."),
        Option(
            "kafka.ssl.keystore.key", Use.ALL, "PEM text",
            "The client's key itself, in place of a file. Spark shows it in plans: prefer the file.",
        ),
        Option("kafka.ssl.keystore.certificate.chain", Use.ALL, "PEM text", "The certificates of that key."),
        Option(
            "kafka.ssl.endpoint.identification.algorithm", Use.ALL, "`https`, or nothing",
            "Whether a broker's certificate must hold the name that the client connects to.", otherwise="`https`",
        ),
        Option(
            "kafka.ssl.enabled.protocols", Use.ALL, "`TLSv1.2,TLSv1.3`", "Versions of TLS that may be spoken.",
            otherwise="both",
        ),
        Option("kafka.ssl.protocol", Use.ALL, "`TLSv1.2`, `TLSv1.3`", "The newest of them.", otherwise="`TLSv1.3`"),
        Option(
            "kafka.ssl.cipher.suites", Use.ALL, "names, with commas", "Ciphers of TLS that may be spoken.",
            otherwise="those of OpenSSL",
        ),
    ),
    "Topics to read": (
        Option("subscribe", Use.READ, "`flights,weather`", "Topics by their names.", otherwise="one of the three"),
        Option(
            "subscribePattern", Use.READ, "`flights-.*`",
            "Topics whose whole names match a Java regular expression; a stream also takes those created later.",
            otherwise="one of the three",
        ),
        Option(
            "assign", Use.READ, '`{"flights": [0, 1]}`', "Single partitions of topics.", otherwise="one of the three"
        ),
        Option(
            "failOnDataLoss", Use.READ, _FLAG,
            "Whether offsets and topics that are gone end the query; if not, it warns and skips them.", "true",
        ),
    ),
    "Start and end": (
        Option(
            "startingOffsets", Use.READ, '`earliest`, `latest`, `{"flights": {"0": 23, "1": -2}}`',
            "The start of a read or a new stream; -2 is earliest and -1 latest. A batch read cannot begin at latest.",
            otherwise="batch `earliest`, stream `latest`",
        ),
        Option(
            "startingTimestamp", Use.READ, "milliseconds since 1970",
            "Begin at the first record at or after this time, in every partition. It overrides the other two.",
        ),
        Option(
            "startingOffsetsByTimestamp", Use.READ, '`{"flights": {"0": 1700000000000}}`',
            "The same, with a time for each partition. It overrides `startingOffsets`.",
        ),
        Option(
            "startingOffsetsByTimestampStrategy", Use.READ, "`error`, `latest`",
            "For a partition without a record so late: end the query, or begin at its latest offset.", "error",
        ),
        Option(
            "endingOffsets", Use.BATCH, '`latest`, `{"flights": {"0": 50, "1": -1}}`',
            "The end of a read, not included. A stream has no end.", "latest",
        ),
        Option(
            "endingTimestamp", Use.BATCH, "milliseconds since 1970",
            "End before the first record at or after this time, in every partition; if there is none, at the latest.",
        ),
        Option(
            "endingOffsetsByTimestamp", Use.BATCH, '`{"flights": {"0": 1700000000000}}`',
            "The same, with a time for each partition. It overrides `endingOffsets`.",
        ),
    ),
    "How much at a time": (
        Option(
            "maxOffsetsPerTrigger", Use.STREAM, _NUMBER,
            "Offsets in a micro-batch; each partition gets a share by its lag.", otherwise="no limit",
        ),
        Option(
            "minOffsetsPerTrigger", Use.STREAM, _NUMBER,
            "A micro-batch waits for this many offsets; not the first one, and not under AvailableNow.",
            otherwise="no wait",
        ),
        Option(
            "maxTriggerDelay", Use.STREAM, "`15m`, `10s`, `500ms`", "How long it waits for them at most.", "15m"
        ),
        Option(
            "minPartitions", Use.READ, _NUMBER, "At least this many tasks; the source splits large ranges evenly.",
            otherwise="[by bytes and cores](spark-tasks.md)",
        ),
        Option(
            "maxRecordsPerPartition", Use.READ, _NUMBER, "At most this many offsets in a task.",
            otherwise="[by bytes and cores](spark-tasks.md)",
        ),
    ),
    "How a task fetches": (
        Option("kafka.fetch.min.bytes", Use.READ, "bytes", "A broker waits until it has this much.", "1"),
        Option("kafka.fetch.max.wait.ms", Use.READ, "milliseconds", "But a broker waits no longer than this.", "500"),
        Option("kafka.fetch.max.bytes", Use.READ, "bytes", "At most this much from a broker at once.", "16777216"),
        Option(
            "kafka.max.partition.fetch.bytes", Use.READ, "bytes",
            "At most this much of a partition at once; a larger batch of records comes alone.", "2097152",
        ),
        Option("kafka.client.rack", Use.READ, "text", "The rack of the client.", otherwise="none"),
    ),
    "Rows": (
        Option("includeHeaders", Use.READ, _FLAG, "Whether there is a column `headers`.", "false"),
        Option(
            "columns", Use.READ, "`value,offset`",
            "Columns, in the order of delivery; the source decodes only the values that they need.", otherwise="all",
        ),
        Option(
            "valueFormat", Use.READ, "`raw`, `string`, `json`, `avro`, `protobuf`",
            "The form of `value`: bytes, text, or a struct with columns of their own types.", "raw",
        ),
        Option(
            "valueSchema", Use.READ, "`id BIGINT, name STRING`, or the JSON of a schema (`schema.json()`)",
            "JSON: the fields, which a stream needs. Avro: the JSON of the schema. Protobuf: the name of the message.",
            otherwise="JSON, batch: from the first 1,000 values",
        ),
        Option(
            "valueDescriptor", Use.READ, "a path",
            "The file with the Protobuf message, as `protoc --include_imports --descriptor_set_out` writes it.",
            otherwise="Protobuf needs it",
        ),
        Option(
            "valueHeader", Use.READ, "`none`, `registry`",
            "Whether a schema registry's header comes before the JSON, Avro or Protobuf; the source skips it.", "none",
        ),
        Option(
            "mode", Use.READ, "`PERMISSIVE`, `FAILFAST`",
            "Whether a malformed value goes to the column `_corrupt_record` or ends the query; not for raw values.",
            "PERMISSIVE",
        ),
        Option(
            "eventTime", Use.READ, "a field of the value, or `timestamp`",
            "The source delivers it as the column `event_time` as well.", otherwise="no such column",
        ),
    ),
    "Lag in a consumer group": (
        Option(
            "commitGroupOffsets", Use.STREAM, _FLAG,
            "Whether the query commits the offsets of finished batches to a consumer group.", "true",
        ),
        Option("kafka.group.id", Use.STREAM, "text", "The id of that group.", otherwise="a new one, in the checkpoint"),
        Option("groupIdPrefix", Use.STREAM, "text", "The beginning of a new group's name.", "spark-kafka-source"),
    ),
    "Records to write": (
        Option("topic", Use.SINK, "text", "The topic of every row.", otherwise="the column `topic` says it"),
        Option(
            "kafka.compression.type", Use.SINK, "`none`, `gzip`, `snappy`, `lz4`, `zstd`",
            "The compression of record batches.", "none",
        ),
        Option(
            "kafka.acks", Use.SINK, "`all`, `1`, `0`",
            "The replicas that must have a batch before it counts as written; the producer is idempotent with `all`.",
            "all",
        ),
        Option("kafka.batch.size", Use.SINK, "bytes", "The size to which a batch of records grows, about.", "524288"),
        Option(
            "kafka.delivery.timeout.ms", Use.SINK, "milliseconds",
            "How long the sink tries to deliver a batch before the task fails.", "120000",
        ),
        Option(
            "kafka.transaction.timeout.ms", Use.SINK, "milliseconds",
            "How long a transaction of an exactly-once sink may be open before its broker aborts it: no more than "
            "`transaction.max.timeout.ms` there.",
            otherwise="a minute for what the driver sends, 15 minutes for what tasks write",
        ),
        Option(
            "batchHeaders", Use.SINK, _FLAG,
            "Whether each record has headers `headrace.batch_id` (in a stream) and `headrace.partition` (the task).",
            "false",
        ),
    ),
    "Delivery": (
        Option(
            "delivery", Use.SINK, "`at-least-once`, `exactly-once`, `exactly-once-per-task`",
            "Whether each batch is one [transaction](exactly-once.md), that a replay finds done; or each task is one.",
            "at-least-once",
        ),
        Option(
            "exactlyOnceMaxBytes", Use.SINK, "bytes",
            "A larger batch of encoded records ends the query where the driver sends it: it holds all of it.",
            "268435456",
        ),
        Option(
            "markerTopic", Use.SINK, "text",
            "The topic in whose partition 0 the query's group keeps the number of its last batch.",
            otherwise="`topic`",
        ),
        Option(
            "markerMissing", Use.SINK, "`fail`, `trust`",
            "Whether a query that goes on ends if that number is gone, or takes its checkpoint's word.", "fail",
        ),
        Option(
            "commitTopic", Use.SINK, "text",
            "A compacted topic, created if it does not exist, that has the number too: it does not expire there.",
            otherwise="none",
        ),
    ),
}  # fmt: skip
"""All of them, under the titles of the page."""

OPTIONS: Final = tuple(option for options in SECTIONS.values() for option in options)
SOURCE_KEYS: Final = tuple(option.name for option in OPTIONS if option.use & Use.READ)
SINK_KEYS: Final = tuple(option.name for option in OPTIONS if option.use & Use.SINK)
SECURITY_KEYS: Final = frozenset(option.name for option in SECTIONS["Encryption and login"])
BATCH_KEYS: Final = tuple(option.name for option in OPTIONS if option.use & Use.READ == Use.BATCH)
"""What only a batch read may say: a stream has no end."""

_CLIENT_IGNORED: Final = (
    "allow.auto.create.topics", "auto.include.jmx.reporter", "buffer.memory", "check.crcs", "client.dns.lookup",
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "connections.max.idle.ms",
    "enable.idempotence", "enable.metrics.push", "group.instance.id", "group.protocol", "heartbeat.interval.ms",
    "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records",
    "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "retries", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "ssl.keymanager.algorithm",
    "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
)  # fmt: skip
"""Settings of the Java client that tune it without effect on the data read or written."""
IGNORED: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *(f"kafka.{name}" for name in _CLIENT_IGNORED),
)
"""Options that Spark's Kafka connector has and that mean nothing here: warned about and passed over. So is a client's
setting that the other side has, source or sink: programs give one set of them to both."""

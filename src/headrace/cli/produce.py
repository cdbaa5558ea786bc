"""`headrace produce`: records from lines, JSON lines or whole files."""

from __future__ import annotations

import base64
import json
import os
import select
import sys
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import click

from headrace.cli.completion import topic_names
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.input_templates import Headers, InputTemplate, Parsed, parse_header
from headrace.cli.options import INT32_MAX, INT64_MAX, cluster_options, json_option, parse_pairs, parse_separator
from headrace.cli.output import Progress, counted, print_json
from headrace.cli.record_formats import for_terminals, template_format
from headrace.cli.suggestions import is_one_edit_away

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.deliveries import Delivery
    from headrace.client.metadata import TopicInfo
    from headrace.client.producer import Producer
    from headrace.client.producer_options import Acknowledged
    from headrace.client.transactions import TransactionalProducer
    from headrace.wire.primitives import Buffer

CHUNK_SIZE = 256 << 10
IDLE_S = 0.01
"""How long a silent input may keep records from being sent."""

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": -1, "1": 1, "0": 0}

HEADER_FIELDS = ("name", "value", "value_base64")
RECORD_FIELDS = (
    *("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"),
    *("topic", "offset", "timestamp_type"),
)


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--key-separator", "-k", metavar="TEXT", help="Lines are KEY TEXT VALUE; \\t means a tab.")
@click.option(
    "--delimiter", "-D", metavar="TEXT", help="Text that ends a record, instead of a newline; \\0: a zero byte."
)
@click.option("--headers", "parse_headers", is_flag=True, help="Lines begin with NAME=VALUE,NAME=VALUE and a tab.")
@click.option("--header", "fixed", multiple=True, metavar="NAME=VALUE", help="A header of every record; repeatable.")
@click.option("--key", metavar="TEXT", help="One key for every record.")
@click.option("--null", "null_marker", metavar="TEXT", help="Text of a key or value that means null (a tombstone).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object a line, as `consume --format json` prints them.",
)
@click.option("--template", "-t", metavar="TEMPLATE",
              help="Read records by this template, in the letters of `consume --template`, such as "
              "'%k %s\\n'.")  # fmt: skip
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), help="Write all records to this partition, whatever their keys."
)
@click.option(
    "--ignore-partition", is_flag=True, help="json, template: keys choose partitions, whatever the input says."
)
@click.option("--no-create", is_flag=True, help="Fail if the topic does not exist.")
@click.option("--compression", "-z", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "--transactional-id",
    metavar="TEXT",
    help="All records in one transaction of this id, open for a minute at most: seen together or never.",
)
@click.option("--output-format", "-o", "output", metavar="TEMPLATE",
              help="Print this for each record written, in the letters of `consume --template`.")  # fmt: skip
@json_option
@cluster_options
def produce(
    client: Client,
    topic: str,
    files: tuple[Path, ...],
    key_separator: str | None,
    delimiter: str | None,
    parse_headers: bool,
    fixed: tuple[str, ...],
    key: str | None,
    null_marker: str | None,
    form: str,
    template: str | None,
    whole: bool,
    partition: int | None,
    ignore_partition: bool,
    no_create: bool,
    compression: str,
    acks: str,
    transactional_id: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Write records to TOPIC, from standard input or FILEs ("-" is standard input), one a line.

    If TOPIC does not exist, the broker creates it, unless --no-create is given or the broker's
    auto.create.topics.enable is false.

    The partition of a key is the one that Kafka's own clients choose. Delivery is idempotent: a retry writes no record
    twice. The command fails at a line that is not a record, after writing the records before it, and reports how many.
    With --transactional-id it writes none of them, and fences an earlier command that still uses the id.

    With --template, each letter reads up to the text that follows it, or as many bytes as the length before it (%K, %S,
    %R) gives; -1 means null. %h reads NAME=VALUE,NAME=VALUE. What %t and %o read is ignored.

    --output-format prints a record once brokers have acknowledged it, with its partition and offset (-1 if the broker
    does not know any longer which offset a retried record has): `-o '%p %o\\n'`. With --transactional-id that is before
    the commit.
    """
    if output is not None and (as_json or acks == "0"):
        raise click.UsageError("--output-format cannot go with --json or --acks 0")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("--transactional-id needs --acks all")
    if whole and not files:
        raise click.UsageError("--whole needs files")
    if whole and delimiter is not None:
        raise click.UsageError("choose one of --whole and --delimiter")
    end, unit = (b"\n", "line") if delimiter is None else (_not_empty(delimiter, "--delimiter"), "record")
    if form == "json" and (key_separator is not None or parse_headers or whole):
        raise click.UsageError("--format json takes keys and headers from the objects")
    if template is not None and (form == "json" or key_separator is not None or parse_headers or whole or delimiter):
        raise click.UsageError("--template cannot go with --format json, -k, --headers, --whole or --delimiter")
    if ignore_partition and (partition is not None or (form != "json" and template is None)):
        raise click.UsageError("--ignore-partition is for --format json or --template, without --partition")
    parse = _parse_json if form == "json" else _TextParser(key_separator, parse_headers, null_marker)
    read = _whole if whole else _ended(end, parse)
    if template is not None:
        read, unit = _by_template(InputTemplate(template, null_marker)), "record"
    extra: Headers = [(name, value.encode()) for name, value in parse_pairs(fixed, "--header").items()]
    fixed_key = None if key is None else key.encode()
    written = _Writer(client, topic, partition, ignore_partition, fixed_key, extra, creates=not no_create)
    written.open(compression, ACKS[acks], transactional_id, None if output is None else _printer(output))
    total = sum(path.stat().st_size for path in files if str(path) != "-") or None
    with written, Progress(f"writing to {topic}", total, unit="bytes") as progress:
        for path in files or (Path("-"),):
            _send(written, path, read, unit, progress)
        written.finish()
    _report(written, topic, as_json)


Reader = Callable[[IO[bytes], Callable[[], None]], Iterator[tuple[Parsed, int]]]
"""Takes a stream, and what to call if its input makes us wait.

Yields each record and how many bytes it had; raises ValueError for a malformed record.
"""


def _send(written: _Writer, path: Path, read: Reader, unit: str, progress: Progress) -> None:
    """Sends the records of a file. Raises `Failure` that names the first `unit` that is no record."""
    sent = 0
    with click.open_file(str(path), "rb") as stream:
        try:
            for record, size in read(stream, written.idle):
                written.send(record)
                sent += 1
                progress.advance(size)
        except ValueError as error:
            where = "standard input" if str(path) == "-" else str(path)
            raise Failure(f"{where} {unit} {sent + 1}: {error}; {written.summary()}") from error


def _whole(stream: IO[bytes], _: Callable[[], None]) -> Iterator[tuple[Parsed, int]]:
    data = stream.read()
    yield Parsed(data), len(data)


def _ended(end: bytes, parse: Callable[[bytes], Parsed]) -> Reader:
    """Returns a reader of records that `end` ends."""

    def read(stream: IO[bytes], idle: Callable[[], None]) -> Iterator[tuple[Parsed, int]]:
        for line in records_of(stream, end, idle):
            yield parse(line), len(line) + len(end)

    return read


def _by_template(template: InputTemplate) -> Reader:
    def read(stream: IO[bytes], idle: Callable[[], None]) -> Iterator[tuple[Parsed, int]]:
        data = b""
        for chunk in chain(_chunks(stream, idle), (None,)):  # None is the end of the input
            data, at = data + (chunk or b""), 0
            while at < len(data) and (found := template.parse(data, at, final=chunk is None)):
                record, end = found
                yield record, end - at
                at = end
            data = data[at:]

    return read


def _is_missing(client: Client, topic: str) -> bool:
    from headrace.wire.errors import ErrorCode

    return client.refresh([topic]).get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _created(client: Client, name: str) -> TopicInfo:
    """Has a broker create a topic, reports it, and warns if a topic of nearly the same name exists.

    Raises `Failure` if no broker creates it.
    """
    from headrace.client.errors import UnknownTopicError

    alike = [topic.name for topic in client.topics() if is_one_edit_away(name, topic.name)]
    try:
        (made,) = client.topics([name], auto_create=True)
    except UnknownTopicError as error:
        if alike:
            raise  # the command names the topic that was probably meant
        raise Failure(
            f"{error}; the brokers do not create topics automatically (auto.create.topics.enable); create it with "
            f"`headrace topic create {name}`",
            NOT_FOUND,
        ) from error
    partitions = counted(len(made.partitions), "partition")
    doubt = f"; did you mean {alike[0]}?" if alike else ""
    click.echo(f"headrace: the broker created topic {name} with {partitions}{doubt}", err=True)
    return made


def _printer(template: str) -> Acknowledged:
    """Returns what prints the records of each acknowledged batch to standard output by a template."""
    from headrace.wire.batch import CREATE_TIME, LOG_APPEND_TIME
    from headrace.wire.records import decode_batch

    form = template_format(template, b"", "--output-format")
    if sys.stdout.isatty():
        form = for_terminals(form, "\\x{:02x}")

    def printed(delivery: Delivery, batch: Buffer) -> None:
        base, time_ms = delivery.base_offset, delivery.log_append_time_ms
        kind = CREATE_TIME if time_ms < 0 else LOG_APPEND_TIME
        lines = []
        for number, sent in enumerate(decode_batch(batch)):
            record = sent._replace(offset=-1 if base < 0 else base + number)
            record = record if kind == CREATE_TIME else record._replace(timestamp=time_ms)
            lines.append(form(delivery.topic, delivery.partition, record, kind))
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()

    return printed


def _report(written: _Writer, topic: str, as_json: bool) -> None:
    records, size = written.counts()
    if as_json:
        print_json({"topic": topic, "records": records, "bytes": size})
    else:
        click.echo(f"wrote {counted(records, 'record')} to topic {topic}", err=True)


class _Writer:
    """Parsed records on their way to a producer."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int | None,
        ignore_partition: bool,
        key: bytes | None,
        extra: Headers,
        *,
        creates: bool,
    ) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self.ignore_partition = ignore_partition
        self.key = key
        self.extra = extra
        self.partitions = 0
        """How many partitions the topic has; 0 while it is missing, to be created with the first record."""
        if not (creates and _is_missing(client, topic)):
            self._found(client.topic(topic))

    def _found(self, topic: TopicInfo) -> None:
        self.partitions = len(topic.partitions)
        if self.partition is not None and self.partition >= self.partitions:
            raise Failure(f"topic {topic.name} has no partition {self.partition}", NOT_FOUND)

    def open(
        self, compression: str, acks: int, transactional_id: str | None, acknowledged: Acknowledged | None
    ) -> None:
        """Makes the producer, and begins the transaction where there is to be one."""
        from headrace.client.producer import Producer
        from headrace.client.transactions import TransactionalProducer
        from headrace.wire.records import Compression

        codec = Compression[compression.upper()]
        self.producer: Producer | TransactionalProducer
        self.transaction: TransactionalProducer | None = None
        if transactional_id is None:
            self.producer = Producer(self.client, acks=acks, compression=codec, linger_ms=20, acknowledged=acknowledged)
            return
        self.transaction = TransactionalProducer(
            self.client, transactional_id, compression=codec, linger_ms=20, acknowledged=acknowledged
        )
        self.producer = self.transaction
        self.transaction.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if self.transaction is not None:
            self.transaction.__exit__(kind, *rest)

    def finish(self) -> None:
        """Until all is written; commits the transaction."""
        if self.transaction is not None:
            self.transaction.commit()
        else:
            self.producer.flush()

    def counts(self) -> tuple[int, int]:
        """Records and bytes that are written, and committed where that is what counts."""
        from headrace.client.producer import Producer

        if isinstance(self.producer, Producer):
            return self.producer.records_delivered, self.producer.bytes_delivered
        return self.producer.records_committed, self.producer.bytes_committed

    def send(self, record: Parsed) -> None:
        """Queues a record; the first one creates the topic if it is missing.

        Raises ValueError for a partition that the topic does not have, and `Failure` if no broker creates the topic.
        """
        if not self.partitions:
            self._found(_created(self.client, self.topic))
        self.producer.send(
            self.topic,
            record.value,
            key=self.key if record.key is None else record.key,
            headers=record.headers + self.extra,
            timestamp_ms=record.timestamp_ms,
            partition=self._partition_of(record),
        )

    def _partition_of(self, record: Parsed) -> int | None:
        if self.partition is not None or self.ignore_partition or record.partition is None:
            return self.partition
        if record.partition >= self.partitions:
            raise ValueError(
                f"topic {self.topic} has {counted(self.partitions, 'partition')}, and the record is for partition "
                f"{record.partition}; --ignore-partition lets keys choose"
            )
        return record.partition

    def summary(self) -> str:
        """How much of the input is in the topic, after all of it that was read has been sent."""
        self.producer.flush()
        written, _ = self.counts()
        if written == 0:
            return "the command wrote no record"
        before = "record" if written == 1 else f"{written:,} records"
        return f"the command wrote the {before} before it"

    def idle(self) -> None:
        """Nothing to read just now: what has been read should not wait for more."""
        self.producer.flush()


def records_of(stream: IO[bytes], end: bytes, idle: Callable[[], None]) -> Iterator[bytes]:
    """What `end` ends, without it, and lines without their carriage return; calls `idle` if the input makes us wait."""
    also = b"\r" if end == b"\n" else b""
    rest = b""
    for chunk in _chunks(stream, idle):
        *records, rest = (rest + chunk).split(end)
        for record in records:
            yield record.removesuffix(also)
    if rest:
        yield rest


def _chunks(stream: IO[bytes], idle: Callable[[], None]) -> Iterator[bytes]:
    try:
        number = stream.fileno()
    except (OSError, AttributeError):
        yield stream.read()
        return
    while True:
        if not select.select([number], [], [], IDLE_S)[0]:
            idle()
            select.select([number], [], [])
        chunk = os.read(number, CHUNK_SIZE)
        if not chunk:
            return
        yield chunk


def _not_empty(separator: str, option: str) -> bytes:
    meant = parse_separator(separator, option)
    if not meant:
        raise click.BadParameter("must not be empty", param_hint=option)
    return meant


class _TextParser:
    """`[HEADERS TAB] [KEY SEPARATOR] VALUE`."""

    def __init__(self, key_separator: str | None, parse_headers: bool, null_marker: str | None) -> None:
        self.separator = None if key_separator is None else _not_empty(key_separator, "--key-separator")
        self.parse_headers = parse_headers
        self.null = None if null_marker is None else null_marker.encode()

    def __call__(self, line: bytes) -> Parsed:
        headers: Headers = []
        if self.parse_headers:
            head, tab, line = line.partition(b"\t")
            if not tab:
                raise ValueError("no tab after the headers")
            headers = [parse_header(part) for part in head.split(b",") if part]
        key: bytes | None = None
        if self.separator is not None:
            key, found, line = line.partition(self.separator)
            if not found:
                raise ValueError(f"no key separator {self.separator.decode(errors='backslashreplace')!r}")
            key = None if key == self.null else key
        return Parsed(None if line == self.null else line, key, headers)


def _parse_json(line: bytes) -> Parsed:
    """An object with `value` or `value_base64`, and perhaps key, headers, partition, timestamp (ms).

    What else `consume` prints of a record (topic, offset, timestamp_type) says where it was, and is passed over. Any
    other field is refused: a misspelt `value` would be a tombstone.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    _check_fields(found, RECORD_FIELDS, "a record")
    if not ("value" in found or "value_base64" in found):
        raise ValueError('no "value"; give null for a tombstone')
    given = found.get("headers") or []
    if not isinstance(given, list) or not all(isinstance(h, dict) and isinstance(h.get("name"), str) for h in given):
        raise ValueError('"headers" must be a list such as [{"name": "source", "value": "web"}]')
    for header in given:
        _check_fields(header, HEADER_FIELDS, "a header")
        if not ("value" in header or "value_base64" in header):
            raise ValueError(f'header "{header["name"]}" has no "value"; give null for none')
    return Parsed(
        _bytes_of(found, "value"),
        _bytes_of(found, "key"),
        [(header["name"], _bytes_of(header, "value")) for header in given],
        _whole_number(found, "partition", 0, INT32_MAX),
        _whole_number(found, "timestamp", -1, INT64_MAX),
    )


def _check_fields(found: dict[str, Any], fields: Collection[str], what: str) -> None:
    """Raises ValueError for a field that is none of these."""
    for name in found:
        if name not in fields:
            from difflib import get_close_matches

            near = get_close_matches(name, fields, 1)
            raise ValueError(f'"{name}" is not a field of {what}' + (f'; did you mean "{near[0]}"?' if near else ""))
    for name in ("key", "value"):
        if name in found and f"{name}_base64" in found:
            raise ValueError(f'choose one of "{name}" and "{name}_base64"')


def _whole_number(found: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = found.get(name)
    if value is None or (type(value) is int and least <= value <= most):
        return value
    raise ValueError(f'"{name}" must be a whole number from {least} to {most}')


def _bytes_of(found: dict[str, Any], name: str) -> bytes | None:
    """Text as UTF-8; `NAME_base64` for other bytes; anything else as its JSON text."""
    if f"{name}_base64" in found:
        try:
            return base64.b64decode(found[f"{name}_base64"], validate=True)
        except (TypeError, ValueError):
            raise ValueError(f'"{name}_base64" is not base64') from None
    value = found.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()

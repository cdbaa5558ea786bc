"""`headrace consume`: records of topics, as text, JSON lines or hex."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headrace.cli.completion import group_names, topic_names
from headrace.cli.control_records import ControlFormatter, control_format, readable
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.options import cluster_options, parse_separator
from headrace.cli.output import Progress
from headrace.cli.places import places
from headrace.cli.record_filters import Filter, record_filter
from headrace.cli.record_formats import (
    LETTERS,
    Formatter,
    for_terminals,
    hex_line,
    json_line,
    reading_format,
    template_format,
    text_format,
)

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.fetcher import Fetcher
    from headrace.client.membership import Member
    from headrace.client.metadata import TopicPartition
    from headrace.client.reading import Fetched, Isolation, Reset
    from headrace.wire.batch import BatchHeader

POLL_S = 0.5
COMMIT_EVERY_S = 5.0
WRITE_RECORDS = 1000
"""Records gathered, at least a batch, before they are written."""


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="earliest, latest, an offset (the end if beyond it), -N for the last N offsets of each partition, a time, or "
    "how long ago: -30s, -10m, -1h, -7d.",
)
@click.option("--until", metavar="WHERE", help="latest (the end as it is now), an offset, a time, or -1h; exclusive.")
@click.option("--regex", is_flag=True, help="TOPICs are regular expressions, each for whole names of topics.")
@click.option("--follow", "-f", is_flag=True, help="Wait for new records; without it, stop at the end.")
@click.option("--group", "-g", metavar="GROUP", shell_complete=group_names,
              help="Share the partitions with the group's members; commit offsets.")  # fmt: skip
@click.option("--partition", "-p", "only", multiple=True, type=click.IntRange(min=0), help="Only these partitions.")
@click.option("--max", "-n", "limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option("--header", "with_headers", multiple=True, metavar="NAME[=VALUE]",
              help="Only records with this header; repeatable.")  # fmt: skip
@click.option("--grep", metavar="REGEX", help="Only records whose value this regular expression finds a match in.")
@click.option("--format", "form", type=click.Choice(["text", "json", "hex"]),
              help="text: values, one a line.  [default: text; on a terminal, with time, place and key]")  # fmt: skip
@click.option("--template", "-t", metavar="TEMPLATE", help=f"Print this for each record, in kcat's letters: {LETTERS}.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json: one line per record, for programs.")
@click.option("--key-separator", "-k", metavar="TEXT", help="Text: print KEY TEXT VALUE; \\t means a tab.")
@click.option("--headers", is_flag=True, help="Text: print NAME=VALUE,NAME=VALUE and a tab first.")
@click.option("--null", "null_marker", default="", metavar="TEXT", help="Text: print this for a null key or value.")
@click.option("--committed", is_flag=True, help="Leave out aborted and unfinished transactions.")
@click.option("--print-control-records", "shows_control", is_flag=True,
              help="Also print the markers that end transactions.")  # fmt: skip
@cluster_options
def consume(
    client: Client,
    topics: tuple[str, ...],
    start: str,
    until: str | None,
    follow: bool,
    group: str | None,
    regex: bool,
    only: tuple[int, ...],
    limit: int | None,
    key: str | None,
    with_headers: tuple[str, ...],
    grep: str | None,
    form: str | None,
    template: str | None,
    as_json: bool,
    key_separator: str | None,
    headers: bool,
    null_marker: str,
    committed: bool,
    shows_control: bool,
) -> None:
    """Print the records of TOPICs.

    Without --follow, the command reads up to the end as it was at the start, and stops. With --group, it starts at
    the group's committed offsets (without any, at --from) and commits the offsets of the records that it has printed.

    Filters (--key, --header, --grep) choose what is printed; with --group, the records that they leave out count as
    read. --regex looks at the topics that exist when the command starts.

    With --print-control-records, a control record has no key, and a text that says what it is for a value. JSON has an
    object "control" in place of key, value and headers.

    On a terminal, the command shows bytes that are not text as \\xNN; files and pipes get them as they are.
    """
    if follow and until is not None:
        raise click.UsageError("choose one of --follow and --until")
    if group is not None and only:
        raise click.UsageError("--partition cannot go with --group: the group assigns partitions")
    if as_json and form not in (None, "json"):
        raise click.UsageError("choose one of --format and --json")
    if template is not None and (as_json or form or key_separator is not None or headers):
        raise click.UsageError("--template cannot go with --format, --json, --key-separator or --headers")
    form = "json" if as_json else form
    formatter = _formatter(form, template, key_separator, headers, null_marker.encode())
    if sys.stdout.isatty():
        formatter = for_terminals(formatter, "\\u{:04x}" if form == "json" else "\\x{:02x}")
    control_form = control_format(form, formatter) if shows_control else None
    printer = _Printer(formatter, limit, record_filter(key, with_headers, grep), control_form)
    session = _Session(
        client=client,
        topics=_matching(client, topics) if regex else list(dict.fromkeys(topics)),
        start=start,
        until=None if follow else until or "latest",
        isolation="read_committed" if committed else "read_uncommitted",
        printer=printer,
    )
    client.topics(session.topics)
    with Progress("reading", None, unit="records", output_on_stdout=True) as printer.progress:
        if group is None:
            session.read(session.partitions(only))
        else:
            session.read_as_member(group)


class _EnoughError(Exception):
    """As many records as asked for have been printed."""


class _Printer:
    """Records to standard output, in the batches in which they came."""

    def __init__(
        self, form: Formatter, limit: int | None, takes: Filter | None, control_form: ControlFormatter | None
    ) -> None:
        self.form = form
        self.control_form = control_form
        self.left = limit
        self.takes = takes
        self.progress: Progress | None = None
        self.printed: dict[TopicPartition, int] = {}

    def print(self, fetched: Fetched, committed: bool) -> None:
        """Raises `_EnoughError` at the limit. Remembers how far each partition has been printed."""
        from headrace.client.reading import visible_batches
        from headrace.wire.records import decode_batch

        at = (fetched.topic, fetched.partition)
        low, high = fetched.position, fetched.end
        out: list[bytes] = []
        try:
            for header, body in visible_batches(fetched, committed=committed, control=self.control_form is not None):
                kind = int(header.timestamp_type)
                takes, form = self._for_control(header) if header.is_control else (self.takes, self.form)
                for record in decode_batch(body):
                    if record.offset < low or (high is not None and record.offset >= high):
                        continue
                    if takes is not None and not takes(record):
                        continue
                    out.append(form(fetched.topic, fetched.partition, record, kind))
                    self.printed[at] = record.offset + 1
                    if self.left is not None:
                        self.left -= 1
                        if self.left == 0:
                            raise _EnoughError
                if len(out) >= WRITE_RECORDS:
                    self._write(out)
            self.printed[at] = fetched.next_position if high is None else min(fetched.next_position, high)
        except (_EnoughError, KeyboardInterrupt, SystemExit):
            self._write(out)
            raise
        self._write(out)

    def _for_control(self, header: BatchHeader) -> tuple[Filter | None, Formatter]:
        """Returns the filter and the format of the records of a control batch."""
        takes, form = self.takes, self.control_form
        assert form is not None
        return (
            None if takes is None else lambda record: takes(readable(header, record)),
            lambda topic, partition, record, _kind: form(topic, partition, record, header),
        )

    def _write(self, out: list[bytes]) -> None:
        stream = sys.stdout.buffer
        stream.write(b"".join(out))
        stream.flush()
        if self.progress is not None:
            self.progress.advance(len(out))
        out.clear()


@dataclass(slots=True)
class _Session:
    """One run of the command."""

    client: Client
    topics: list[str]
    start: str
    until: str | None
    isolation: Isolation
    printer: _Printer

    def partitions(self, only: Iterable[int]) -> list[TopicPartition]:
        every = [at for topic in self.topics for at in self.client.partitions(topic)]
        chosen = set(only)
        missing = chosen - {index for _, index in every}
        if missing:
            raise Failure(f"topic {', '.join(self.topics)} has no partition {min(missing)}", NOT_FOUND)
        return [at for at in every if not chosen or at[1] in chosen]

    def read(self, partitions: list[TopicPartition]) -> None:
        """Without a group: from --from to the end."""
        positions = places(self.client, partitions, self.start, self.isolation)
        fetcher = self.fetcher(partitions, positions)
        for (topic, index), end in () if self.until in (None, "latest") else (fetcher.ends or {}).items():
            if (begin := positions[topic, index]) > end:
                where = f"partition {index} of {topic}"
                raise click.UsageError(f"--from is at offset {begin} of {where}, after --until at offset {end}")
        committed = self.isolation == "read_committed"
        if self.printer.progress is not None and fetcher.ends and self.printer.takes is None:
            left = sum(max(0, end - fetcher.positions[at]) for at, end in fetcher.ends.items())
            self.printer.progress.total = left if self.printer.left is None else min(left, self.printer.left)
        try:
            while not fetcher.finished:
                for fetched in fetcher.poll(POLL_S):
                    self.printer.print(fetched, committed)
        except _EnoughError:
            return

    def fetcher(self, partitions: list[TopicPartition], positions: dict[TopicPartition, int]) -> Fetcher:
        from headrace.client.fetcher import Fetcher

        ends = None
        if self.until is not None:
            ends = places(self.client, partitions, self.until, self.isolation, "--until")
            latest = places(self.client, partitions, "latest", self.isolation)
            ends = {at: min(end, latest[at]) for at, end in ends.items()}
        reset: Reset = "latest" if self.start == "latest" else "earliest"
        return Fetcher(self.client, positions, ends=ends, isolation=self.isolation, reset=reset)

    def read_as_member(self, group: str) -> None:
        """As a member of a group: whatever is assigned, from the committed offsets on."""
        from headrace.client.membership import Member

        member = Member(self.client, group, self.topics)
        commits = _Commits(self.client, group, member, self.printer)
        member.on_rebalance = commits.commit
        # A SIGTERM ends like an interrupt: commit the printed records, leave the group.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            self._read_assignments(commits)
        except _EnoughError:
            commits.commit()
        except (KeyboardInterrupt, SystemExit):
            commits.commit()
            raise
        finally:
            member.leave()

    def _read_assignments(self, commits: _Commits) -> None:
        member = commits.member
        fetcher: Fetcher | None = None
        while True:
            if member.poll():
                fetcher = self._assigned(commits)
            if fetcher is None or fetcher.finished:
                commits.commit()
                if self.until is not None and fetcher is not None and member.joined:
                    return
                time.sleep(0.1)
                continue
            for fetched in fetcher.poll(POLL_S):
                self.printer.print(fetched, self.isolation == "read_committed")
            commits.commit_if_due()

    def _assigned(self, commits: _Commits) -> Fetcher:
        """A fetcher for a new assignment: committed offsets first, --from for the rest."""
        from headrace.client import groups

        partitions = commits.member.assigned
        self.printer.printed.clear()
        committed = groups.fetch_offsets(self.client, commits.group, partitions)
        positions = {at: found.offset for at, found in committed.items()}
        fresh = [at for at in partitions if at not in positions]
        positions.update(places(self.client, fresh, self.start, self.isolation))
        return self.fetcher(partitions, positions)


class _Commits:
    """What has been printed, committed from time to time."""

    def __init__(self, client: Client, group: str, member: Member, printer: _Printer) -> None:
        self.client = client
        self.group = group
        self.member = member
        self.printer = printer
        self._committed: dict[TopicPartition, int] = {}
        self._due_at = time.monotonic() + COMMIT_EVERY_S

    def commit_if_due(self) -> None:
        if time.monotonic() >= self._due_at:
            self.commit()

    def commit(self) -> None:
        """Commit what is new. A group that went on without us keeps its own offsets: records may be printed twice."""
        from headrace.client import groups
        from headrace.client.errors import BrokerError

        self._due_at = time.monotonic() + COMMIT_EVERY_S
        assigned = set(self.member.assigned)
        new = {
            at: offset
            for at, offset in self.printer.printed.items()
            if at in assigned and self._committed.get(at) != offset
        }
        if not new or not self.member.joined:
            return
        try:
            groups.commit_offsets(self.client, self.group, new, member=self.member.membership)
            self._committed.update(new)
        except BrokerError as error:
            if not self.member.lost_membership(error):
                raise


def _matching(client: Client, patterns: Iterable[str]) -> list[str]:
    """Returns the topics whose whole names a pattern matches; internal ones only if a pattern begins as they do.

    Raises BadParameter for a pattern that is no regular expression, and `Failure` if no topic matches one.
    """
    topics = client.topics()
    matching: dict[str, None] = {}
    for pattern in patterns:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}", param_hint="TOPIC") from error
        found = [
            each.name
            for each in topics
            if compiled.fullmatch(each.name) and (pattern.startswith("_") or not each.internal)
        ]
        if not found:
            raise Failure(f"no topic matches {pattern}; `headrace topic list` lists the topics", NOT_FOUND)
        matching.update(dict.fromkeys(found))
    return list(matching)


def _formatter(
    form: str | None, template: str | None, key_separator: str | None, headers: bool, null: bytes
) -> Formatter:
    if template is not None:
        return template_format(template, null)
    if form == "json":
        return json_line
    if form == "hex":
        return hex_line
    if form is None and key_separator is None and not headers and sys.stdout.isatty():
        return reading_format(null)
    separator = None if key_separator is None else parse_separator(key_separator, "--key-separator")
    return text_format(separator, headers, null)

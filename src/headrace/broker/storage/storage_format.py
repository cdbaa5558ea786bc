"""Formatting fresh log directories, and reading which cluster and node the formatted ones belong to.

What formatting leaves is what Apache Kafka's `kafka-storage format --standalone` leaves, so either may start on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from headrace.env import Disk
from headrace.metadata import batches, bootstrap, levels
from headrace.metadata.damage import INCOMPLETE_FILE, INCOMPLETE_TEXT
from headrace.metadata.framing import encode_record
from headrace.metadata.meta_properties import (
    FILE_NAME,
    MetaProperties,
    MetaPropertiesError,
    decode_meta_properties,
    encode_meta_properties,
)
from headrace.raft.control import (
    ControlRecord,
    Voter,
    VoterEndpoint,
    encode_control,
    kraft_version,
    snapshot_footer,
    snapshot_header,
    voters_record,
)
from headrace.wire import uuids
from headrace.wire.messages.metadata_records import UserScramCredentialRecord

METADATA_DIRECTORY = "__cluster_metadata-0"


class StorageError(Exception):
    """Log directories that a broker must not start on; the message is one line that says which and why."""


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """Formatted log directories: the cluster and node they belong to, and each directory's id (path -> 16 bytes)."""

    cluster_id: str
    node_id: int
    directory_ids: dict[str, bytes]
    metadata_directory: str
    was_formatted: bool
    failed: Mapping[str, OSError]
    """Directories that cannot be used, and why. They have no ids: what was in them is not known."""


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How to format. An empty cluster id is drawn; the controller endpoint goes into the voter set.

    `dynamic`: the voter set is metadata (kraft.version 1). Otherwise `controller.quorum.voters` names it for ever, or
    the node learns it from the leader. `voters` are the first ones, this node among them, which gets the directory id
    that they give it; without them this node is the only one. `levels` are the cluster's first feature levels, by
    default those of the newest metadata.version. `users` are in its first records too. `replaced` is what an operator
    can do whose metadata directory is not formatted where others are; None: it is to be formatted. `is_incomplete`:
    that directory takes the place of one whose log others count on.
    """

    cluster_id: str
    node_id: int
    controller: VoterEndpoint
    dynamic: bool = True
    levels: Mapping[str, int] | None = None
    voters: tuple[Voter, ...] = ()
    users: tuple[UserScramCredentialRecord, ...] = ()
    replaced: str | None = ""
    is_incomplete: bool = False

    @property
    def named(self) -> Voter | None:
        """What the first voters say of this node."""
        return next((voter for voter in self.voters if voter.id == self.node_id), None)


def open_storage(
    disk: Disk,
    directories: Sequence[str],
    metadata_directory: str,
    options: FormatOptions,
    new_id: Callable[[], bytes],
    now_ms: int,
    *,
    needs_all: bool = True,
) -> StorageLayout:
    """Reads meta.properties of every directory, and formats those that have none.

    `new_id` draws directory ids, and the cluster's where neither the options nor a directory name it. Unless it
    `needs_all`, directories whose disks fail are left out and named, but for the one of the metadata.
    Raises StorageError where directories disagree, or belong to another node or cluster; OSError.
    """
    known: dict[str, MetaProperties] = {}
    failed: dict[str, OSError] = {}

    def failing(directory: str, error: OSError) -> None:
        if needs_all or directory == metadata_directory:
            raise error
        failed[directory] = error

    for directory in directories:
        try:
            found_there = _read_properties(disk, directory)
        except OSError as error:
            failing(directory, error)
        else:
            if found_there is not None:
                known[directory] = found_there
    found = _agree(known, options)
    if not found.cluster_id:
        found = replace(found, cluster_id=uuids.to_text(new_id()))
    was_formatted = metadata_directory in known
    if known and not was_formatted and not disk.exists(f"{metadata_directory}/{METADATA_DIRECTORY}"):
        if options.replaced is not None or _elsewhere(disk, known) is not None:
            raise StorageError(unformatted(disk, metadata_directory, sorted(known), options.replaced or ""))
    taken = {properties.directory_id for properties in known.values()}
    result: dict[str, bytes] = {}
    for directory in [each for each in directories if each not in failed]:
        properties = known.get(directory)
        if properties is None or properties.directory_id == bytes(16):
            named = options.named if directory == metadata_directory else None
            fresh = new_id() if named is None else named.directory_id
            assert fresh not in taken, "directory ids are drawn fresh"
            properties = MetaProperties(found.cluster_id, found.node_id, fresh)
            try:
                if directory not in known:
                    _format(disk, directory, directory == metadata_directory, properties, options, now_ms)
                _write_properties(disk, directory, properties, now_ms)
            except OSError as error:
                failing(directory, error)
                continue
        taken.add(properties.directory_id)
        result[directory] = properties.directory_id
    return StorageLayout(found.cluster_id, found.node_id, result, metadata_directory, was_formatted, failed)


def _read_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Creates a missing directory; returns its meta.properties, None if it is not formatted. Raises StorageError,
    OSError."""
    disk.make_dirs(directory)
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        return decode_meta_properties(disk.read_file(path))
    except MetaPropertiesError as error:
        raise StorageError(f"{path} cannot be used: {error}") from error


def unformatted(disk: Disk, metadata_directory: str, formatted: Sequence[str], replaced: str) -> str:
    """Returns the error text for a metadata directory that is not formatted, though others of the node are; `replaced`
    is the remedy if its disk was replaced.
    """
    elsewhere = _elsewhere(disk, formatted)
    remedies = f"if its disk was replaced, {replaced}" if elsewhere is None else f"set metadata.log.dir={elsewhere}"
    return (
        f"the metadata directory {metadata_directory} is not formatted, but {formatted[0]} is (it is metadata.log.dir, "
        f"or the first of log.dirs where that is not set): {remedies}"
    )


def _elsewhere(disk: Disk, directories: Iterable[str]) -> str | None:
    """Which of these directories has metadata."""
    return next((each for each in directories if disk.exists(f"{each}/{METADATA_DIRECTORY}")), None)


def is_formatted(disk: Disk, directory: str) -> bool:
    """Whether a directory belongs to a cluster."""
    return disk.exists(f"{directory}/{FILE_NAME}")


def _agree(known: dict[str, MetaProperties], options: FormatOptions) -> FormatOptions:
    cluster_id = options.cluster_id
    for directory, properties in known.items():
        if cluster_id and properties.cluster_id != cluster_id:
            raise StorageError(
                f"{directory} belongs to cluster {properties.cluster_id}, not to {cluster_id}: do not mix log "
                "directories of different clusters"
            )
        cluster_id = properties.cluster_id
        if properties.node_id != options.node_id:
            raise StorageError(f"{directory} belongs to node {properties.node_id}, but node.id is {options.node_id}")
    ids = [p.directory_id for p in known.values() if p.directory_id != bytes(16)]
    if len(set(ids)) < len(ids):
        raise StorageError("two log directories have the same directory.id: one is a copy of the other")
    return replace(options, cluster_id=cluster_id)


def _write_properties(disk: Disk, directory: str, properties: MetaProperties, now_ms: int) -> None:
    moment = datetime.fromtimestamp(now_ms // 1000, tz=UTC)
    text = moment.strftime("%a %b %d %H:%M:%S UTC %Y")
    # Last of all, so that a directory counts as formatted only when all of it is there.
    disk.write_file_atomically(f"{directory}/{FILE_NAME}", encode_meta_properties(properties, text))


def _format(
    disk: Disk, directory: str, holds_metadata: bool, properties: MetaProperties, options: FormatOptions, now_ms: int
) -> None:
    found = options.levels or bootstrap.default_levels(levels.LATEST_METADATA_VERSION)
    records = [*bootstrap.bootstrap_records(found), *options.users]
    values = [encode_record(record, 0) for record in records]
    content = snapshot_bytes([snapshot_header(0)], values, epoch=0, now_ms=now_ms)
    disk.write_file_atomically(f"{directory}/{bootstrap.BOOTSTRAP_FILE_NAME}", content)
    if holds_metadata and options.is_incomplete:
        disk.write_file_atomically(f"{directory}/{INCOMPLETE_FILE}", INCOMPLETE_TEXT.encode())
    if not (holds_metadata and options.dynamic):
        return
    voters = options.voters or (Voter(options.node_id, properties.directory_id, (options.controller,)),)
    header = [snapshot_header(now_ms), kraft_version(1), voters_record(voters)]
    disk.make_dirs(f"{directory}/{METADATA_DIRECTORY}")
    disk.write_file_atomically(
        f"{directory}/{METADATA_DIRECTORY}/{snapshot_name(0, 0)}", snapshot_bytes(header, [], epoch=0, now_ms=now_ms)
    )


def snapshot_name(end_offset: int, epoch: int) -> str:
    """The file name of the snapshot of everything below `end_offset`, whose last record has that epoch."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch) of a finished snapshot's file name; None for any other name."""
    stem, dot, kind = name.partition(".")
    offset, dash, epoch = stem.partition("-")
    if kind != "checkpoint" or not dot or not dash or len(offset) != 20 or len(epoch) != 10:
        return None
    return (int(offset), int(epoch)) if offset.isdigit() and epoch.isdigit() else None


SNAPSHOT_BATCH_RECORDS = 1024
"""Records a batch in snapshots, as Kafka's controller writes them."""


def snapshot_bytes(header: Sequence[ControlRecord], values: Sequence[bytes], *, epoch: int, now_ms: int) -> bytes:
    """A whole snapshot: see `snapshot_batches`."""
    return b"".join(snapshot_batches(header, values, epoch=epoch, now_ms=now_ms))


def snapshot_batches(
    header: Sequence[ControlRecord], values: Iterable[bytes], *, epoch: int, now_ms: int
) -> Iterator[bytes]:
    """The batches of a snapshot: a control batch that starts with the header, the metadata records, and the footer.
    Values are taken as they are needed: all of them at once may be many megabytes."""

    def control(records: Sequence[ControlRecord], base_offset: int) -> bytes:
        entries = [encode_control(record) for record in records]
        return batches.control_batch(entries, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=now_ms)

    yield control(header, 0)
    offset, waiting = len(header), iter(values)
    while some := list(islice(waiting, SNAPSHOT_BATCH_RECORDS)):
        yield from batches.data_batches(some, base_offset=offset, leader_epoch=epoch, timestamp_ms=now_ms)
        offset += len(some)
    yield control([snapshot_footer()], offset)

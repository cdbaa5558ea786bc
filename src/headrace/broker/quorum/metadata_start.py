"""Bringing the metadata up: directories formatted or checked, the log replayed, the broker registered.

The order at start: lock the log directories; `open_quorum`; load the logs that the image names; bind the listeners;
`register`. At a clean stop: `deregister`, then close the quorum. Two brokers never share a directory: the locks see to
that, and they are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.log.metadata_log import MetadataLog
from headrace.broker.quorum.log.recovery_point import RecoveryPoint
from headrace.broker.quorum.log.snapshots import SnapshotPolicy
from headrace.broker.quorum.machine_loading import load_machine
from headrace.broker.quorum.port.controller import Controller, ControllerError
from headrace.broker.quorum.voters import Member
from headrace.broker.storage.storage_format import (
    METADATA_DIRECTORY,
    FormatOptions,
    StorageError,
    StorageLayout,
    is_formatted,
    open_storage,
    unformatted,
)
from headrace.config import BrokerConfig, topic_config
from headrace.controller.brokers import ElectReturned, FenceBroker, Registration, UnfenceBroker
from headrace.controller.membership import RegisterBroker
from headrace.controller.names import METADATA_TOPIC, METADATA_TOPIC_ID
from headrace.env import DiskLock, Environment, File, Node
from headrace.log.checkpoints import encode_partition_metadata
from headrace.log.filenames import LOCK, LOG, PARTITION_METADATA, parse_offset_name
from headrace.log.recovery import LogDamaged, open_log
from headrace.log.resources import Resources
from headrace.log.scan import Scan
from headrace.metadata import adoption
from headrace.metadata.damage import metadata_remedy
from headrace.metadata.image import ClusterImage, Endpoint
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.messages import ReplicaKey
from headrace.raft.peers import RaftSettings
from headrace.wire.batch import BATCH_OVERHEAD, read_header
from headrace.wire.messages.metadata_records import UserScramCredentialRecord

_SECURITY_PROTOCOLS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

EARLY_ELECTION_MS = 100
"""How long each next voter waits to become a candidate after the leader's process has died; the first does so at once.
"""
_MAX_BATCH_BYTES = 64 * 1024 * 1024


def open_quorum(node: Node, config: BrokerConfig, *, cluster_id: str = "") -> tuple[QuorumDriver, StorageLayout]:
    """Formats fresh directories, and replays the metadata; a node that votes alone takes the lead.

    Raises StorageError or OSError.
    """
    if config.waits_for_others and not is_formatted(node.disk, config.metadata_log_dir):
        formatted = [each for each in config.directories if is_formatted(node.disk, each)]
        if formatted:
            raise StorageError(unformatted(node.disk, config.metadata_log_dir, formatted, when_replaced(config)))
        others = "no vote" if config.is_broker_alone else "other controllers beside it"
        raise StorageError(
            f"{config.metadata_log_dir} is not formatted, and this node has {others}: format it for the cluster of the "
            f"others, `headrace storage format --cluster-id ID --config FILE{_joins(config)}`"
        )
    lock = None
    if config.metadata_log_dir not in config.log_dirs:
        # A lock of its own, as Kafka gives it one.
        lock = _lock(node, config.metadata_log_dir, "metadata.log.dir {} is in use by another broker")
    try:
        quorum, layout = _open(node, config, cluster_id)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    quorum.lock = lock
    return quorum, layout


def _joins(config: BrokerConfig) -> str:
    return "" if config.is_broker_alone or config.static_voters else " --no-initial-controllers"


def when_replaced(config: BrokerConfig) -> str:
    """What an operator can do where the disk of the metadata directory was replaced, and others were not."""
    if config.waits_for_others:
        return (
            f"run `headrace storage format --ignore-formatted --cluster-id ID --config FILE{_joins(config)}`: the node "
            "fetches the metadata from the other controllers"
        )
    return (
        "restore it from a copy, since this node names no other controller that has the metadata "
        "(controller.quorum.bootstrap.servers); a new cluster begins in empty directories alone"
    )


def format_storage(
    env: Environment,
    config: BrokerConfig,
    cluster_id: str,
    *,
    voters: Sequence[Voter] = (),
    joins: bool = False,
    levels: Mapping[str, int] | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
    replaces: bool = False,
) -> StorageLayout:
    """Formats the directories of a node for a cluster; those that are formatted for it stay. `voters` are the first
    ones of the cluster, without them this node is the only one; but one that `joins` others learns from them who votes.
    `levels` are the cluster's first feature levels, by default the newest, and `users` are in its first records.
    `replaces`: the metadata directory is a new disk in the place of one that is lost, and other controllers have what
    was on it; this one does not vote before it has it too. Raises StorageError."""
    is_dynamic = not config.controller_quorum_voters and not config.is_broker_alone and not joins
    endpoint = controller_endpoint(config)
    options = FormatOptions(
        cluster_id,
        config.node_id,
        endpoint,
        is_dynamic,
        levels,
        tuple(voters),
        tuple(users),
        replaced=None if replaces else when_replaced(config),
        is_incomplete=replaces and not config.is_broker_alone,
    )
    now_ms = env.clock.now_ms()
    return open_storage(env.disk, config.directories, config.metadata_log_dir, options, env.entropy.uuid, now_ms)


def _lock(env: Environment, directory: str, refusal: str) -> DiskLock:
    """Raises StorageError, `refusal` with the directory in it, where another process has it; OSError."""
    env.disk.make_dirs(directory)
    lock = env.disk.lock(f"{directory}/{LOCK}")
    if lock is None:
        raise StorageError(refusal.format(directory))
    return lock


def lock_directories(env: Environment, config: BrokerConfig) -> list[DiskLock]:
    """The log directories of a node without a log manager. Raises StorageError where another process has one, OSError,
    and then holds none."""
    locks: list[DiskLock] = []
    try:
        for directory in config.log_dirs:
            locks.append(_lock(env, directory, "log directory {} is in use by another process"))
    except BaseException:
        for taken in locks:
            taken.release()
        raise
    return locks


def _open_storage(node: Node, config: BrokerConfig, cluster_id: str) -> StorageLayout:
    """Reads the directories, and formats those that are fresh; without those whose disks fail, but for the one of the
    metadata. Raises StorageError, OSError."""
    is_dynamic = not config.controller_quorum_voters and not config.is_broker_alone
    endpoint = controller_endpoint(config)
    options = FormatOptions(cluster_id, config.node_id, endpoint, is_dynamic, replaced=when_replaced(config))
    now_ms, new_id = node.clock.now_ms(), node.entropy.uuid
    where = (node.disk, config.directories, config.metadata_log_dir)
    return open_storage(*where, options, new_id, now_ms, needs_all=False)


def _open(node: Node, config: BrokerConfig, cluster_id: str) -> tuple[QuorumDriver, StorageLayout]:
    layout = _open_storage(node, config, cluster_id)
    directory = f"{layout.metadata_directory}/{METADATA_DIRECTORY}"
    node.disk.make_dirs(directory)
    log = open_metadata_log(node, config, directory)
    policy = SnapshotPolicy(
        config.metadata_log_max_record_bytes_between_snapshots,
        config.metadata_log_max_snapshot_interval_ms,
        config.metadata_max_retention_bytes,
        config.metadata_max_retention_ms,
    )
    settings = RaftSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        early_election_ms=EARLY_ELECTION_MS if config.early_fencing_enable else 0,
        fetch_snapshot_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        auto_join=config.controller_quorum_auto_join_enable,
    )

    member = _member(config, layout)
    found = log.load(layout.cluster_id, member)
    obstacles = _obstacles(config, layout, found.image)
    min_insync_replicas = int(config.shown("min.insync.replicas"))
    loaded = load_machine(node, log, member, found, settings, min_insync_replicas, obstacles)
    quorum = QuorumDriver(node, loaded, policy=policy, settings=settings, has_observers=not config.is_by_itself)
    return quorum, layout


def _obstacles(config: BrokerConfig, layout: StorageLayout, image: ClusterImage) -> list[str]:
    """Returns what this node does not serve of an image that nobody else decides on."""
    unserved = adoption.obstacles(image, enforces_acls=bool(config.authorizer_class_name))
    if config.is_controller_alone or not config.is_by_itself:
        return unserved
    return unserved + adoption.foreign_replicas(image, layout.node_id)


def _member(config: BrokerConfig, layout: StorageLayout) -> Member:
    key = ReplicaKey(layout.node_id, layout.directory_ids[layout.metadata_directory])
    voters = static_voters(config)
    if not voters and not config.waits_for_others:
        voters = [Voter(layout.node_id, bytes(16), (controller_endpoint(config),))]
    return Member(
        key,
        tuple(voters),
        is_static=config.is_by_itself,
        own=None if config.is_by_itself or config.is_broker_alone else own_voter(config, key),
        bootstrap=() if config.is_by_itself else tuple(bootstrap_servers(config)),
    )


def static_voters(config: BrokerConfig) -> list[Voter]:
    """The voters that the settings name; they count until the metadata name others."""
    name = config.controller_listener
    return [
        Voter(voter.id, bytes(16), (VoterEndpoint(name, voter.host, voter.port),)) for voter in config.static_voters
    ]


def bootstrap_servers(config: BrokerConfig) -> list[VoterEndpoint]:
    """The other controllers through which a node finds the quorum."""
    return [VoterEndpoint(config.controller_listener, host, port) for host, port in config.other_bootstrap_servers]


def controller_endpoint(config: BrokerConfig) -> VoterEndpoint:
    """What the voter set says of this node: its controller listener, or where one would be."""
    for point in config.advertised_controllers:
        return VoterEndpoint(point.name, point.host or "localhost", point.port)
    host = next((point.host for point in config.advertised_listeners if point.host), "localhost")
    return VoterEndpoint("CONTROLLER", host, 9093)


def own_voter(config: BrokerConfig, key: ReplicaKey) -> Voter | None:
    """What the voter set is to say of a controller; None where its settings do not say at which address it is."""
    if not config.names_its_controller:
        named = next((voter for voter in static_voters(config) if voter.id == key.id), None)
        return None if named is None else named._replace(directory_id=key.directory_id)
    endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in config.advertised_controllers)
    return Voter(key.id, key.directory_id, endpoints)


def open_metadata_log(env: Environment, config: BrokerConfig, directory: str) -> MetadataLog:
    """Opens the log of a metadata directory with the settings that are its own: it keeps all until a snapshot."""
    settings = topic_config(
        config,
        {
            "segment.bytes": str(config.metadata_log_segment_bytes),
            "segment.ms": str(config.metadata_log_segment_ms),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
            "max.message.bytes": str(_MAX_BATCH_BYTES),
            "file.delete.delay.ms": "0",
        },
    )
    path = f"{directory}/{PARTITION_METADATA}"
    if not env.disk.exists(path):
        env.disk.write_file_atomically(path, encode_partition_metadata(METADATA_TOPIC_ID))
    point = RecoveryPoint(env.disk, directory.rpartition("/")[0])
    refuse_damage(env, directory, point.offset)
    try:
        resources = Resources(env.disk, env.lock)
        log = open_log(resources, directory, (METADATA_TOPIC, 0), settings, now_ms=env.clock.now_ms())
    except LogDamaged as error:
        remedy = metadata_remedy(directory, error.corrupt.offset)
        raise StorageError(f"the broker cannot trust the metadata log: {error}; {remedy}") from error
    return MetadataLog(env.disk, directory, log, point, env.lock())


def refuse_damage(env: Environment, directory: str, safe_end: int | None) -> None:
    """Raises StorageError where the metadata log is damaged below `safe_end`, up to which it was synced: cutting it
    there would lose topics. What lies above was never synced, and opening the log cuts it at the first bad batch.

    Where nothing says how far it was synced (None), damage is what sound batches follow.
    """
    names = [name for name in env.disk.list(directory) if parse_offset_name(name, LOG) is not None]
    end: int | None = None
    for name in names:
        path, base = f"{directory}/{name}", parse_offset_name(name, LOG)
        assert base is not None
        if end is not None and base > end and safe_end is not None and end < safe_end:
            raise StorageError(
                f"metadata log {path} begins at offset {base}, and the file before it ends at {end}: a file is "
                f"missing; {metadata_remedy(directory, end)}"
            )
        file = env.disk.open(path)
        try:
            scan, end = Scan(file, 0, file.size()), base
            for position, header, _ in scan:
                if header.base_offset < end:  # no checksum covers it: its page was lost alone
                    scan.stop(position, f"offset {header.base_offset} does not follow {end - 1}")
                    break
                end = header.next_offset
            if scan.problem is None:
                continue
            is_last = name == names[-1]
            if safe_end is None and (not is_last or _goes_on(file, scan.position)):
                why = "sound batches follow"
            elif safe_end is not None and end < safe_end:
                why = f"the log was synced up to offset {safe_end}"
            else:
                return
            raise StorageError(
                f"metadata log {path} is damaged at byte {scan.position}, offset {end} ({scan.problem}), and {why}, "
                f"so the broker does not cut it: {metadata_remedy(directory, end)}"
            )
        finally:
            file.close()


def _goes_on(file: File, position: int) -> bool:
    """Whether a sound batch follows a bad one whose length can still be read."""
    head = file.read(position, BATCH_OVERHEAD)
    if len(head) < BATCH_OVERHEAD:
        return False
    size = read_header(head).size
    if size < BATCH_OVERHEAD:
        return False
    following = Scan(file, min(position + size, file.size()), file.size())
    return next(iter(following), None) is not None


def registration(
    env: Environment,
    config: BrokerConfig,
    layout: StorageLayout,
    ports: Mapping[str, int],
    directories: Iterable[str],
    previous_broker_epoch: int = -1,
) -> Registration:
    """What this node registers: `ports` says on which port a listener came up, `directories` which log dirs work,
    `previous_broker_epoch` under which epoch it was stopped cleanly (-1: it was not)."""

    def port(name: str, configured: int) -> int:
        return configured or ports.get(name, 0)

    return Registration(
        node_id=layout.node_id,
        incarnation_id=env.entropy.uuid(),
        endpoints=tuple(
            Endpoint(
                point.name, point.host or "localhost", port(point.name, point.port), _SECURITY_PROTOCOLS[point.protocol]
            )
            for point in config.advertised_listeners
        ),
        controller_endpoints=controller_endpoints(config, ports),
        rack=config.broker_rack,
        directories=tuple(layout.directory_ids[directory] for directory in directories),
        cluster_id=layout.cluster_id,
        previous_broker_epoch=previous_broker_epoch,
    )


def controller_endpoints(config: BrokerConfig, ports: Mapping[str, int] | None = None) -> tuple[Endpoint, ...]:
    """Where this node's controller listeners are; `ports` as above."""
    return tuple(
        Endpoint(
            point.name,
            point.host or "localhost",
            point.port or (ports or {}).get(point.name, 0),
            _SECURITY_PROTOCOLS[point.protocol],
        )
        for point in config.advertised_controllers
    )


async def register(controller: Controller, node: Registration, *, was_clean: bool) -> int:
    """Registers this node, then lets it be seen, then lead its partitions; answers with its broker epoch.

    The epoch goes into `.kafka_cleanshutdown` at a clean stop: by it a controller knows the broker again. Raises
    ControllerError.
    """
    registered = await controller.ask(RegisterBroker(node))
    if registered.error:
        raise ControllerError(registered.error, registered.message or "")
    epoch = registered.broker_epoch
    error = await controller.ask(UnfenceBroker(node.node_id, epoch))
    if error:
        raise ControllerError(error)
    await controller.ask(ElectReturned(node.node_id, was_clean))
    return epoch


async def deregister(controller: Controller, node_id: int) -> None:
    """Fences this broker, so that its successor, ours or Kafka's, need not wait for a session to time out."""
    await controller.ask(FenceBroker(node_id))

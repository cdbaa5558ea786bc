"""`headrace topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import topic_names
from headrace.cli.failures import Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    cluster_options,
    confirm,
    json_option,
    parse_pairs,
    yes_option,
)
from headrace.cli.output import Done, counted, print_json, print_table, size_text, time_text
from headrace.cli.places import moment_ms

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.metadata import TopicInfo

partition_count = click.IntRange(1, INT32_MAX)


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--partitions", "-p", type=partition_count, help="Default: the brokers' num.partitions.")
@click.option("--replication-factor", "-r", type=click.IntRange(1, INT16_MAX), help="Default: the brokers' own.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A configuration; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Accept topics that already exist.")
@click.option("--dry-run", is_flag=True, help="Have the brokers check the request, and create nothing.")
@json_option
@cluster_options
def create(
    client: Client,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create topics, all with the same options, in the order given.

    The command ends at the first topic that a broker refuses; those before it exist. --json prints an object for one
    NAME, and a list of objects for several.
    """
    from headrace.client import admin

    configs = parse_pairs(settings, "--set")
    with Done(as_json, alone=len(names) == 1) as done:
        for name in dict.fromkeys(names):
            created = admin.create_topic(
                client,
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=configs,
                validate_only=dry_run,
                exist_ok=if_not_exists,
            )
            info = None if created and dry_run else client.topic(name)
            found = {} if info is None else _summary(info)
            done.add(
                {"topic": name, "created": created and not dry_run, "executed": not dry_run, **found},
                _creation_text(name, created, info),
            )


def _creation_text(name: str, created: bool, info: TopicInfo | None) -> str:
    if not created:
        return f"topic {name} already exists"
    if info is None:
        return f"could create topic {name}"
    return f"created topic {name} with {counted(len(info.partitions), 'partition')}"


@topic.command("list")
@click.option("--internal", is_flag=True, help="Include the brokers' own topics.")
@json_option
@cluster_options
def list_topics(client: Client, internal: bool, as_json: bool) -> None:
    """List topics."""
    topics = [found for found in client.topics() if internal or not found.internal]
    if as_json:
        print_json([_summary(found) for found in topics])
        return
    rows = [(t.name, len(t.partitions), _replication(t), "internal" if t.internal else "") for t in topics]
    columns = ["topic", "partitions", "replicas"]
    print_table([*columns, "kind"] if internal else columns, rows if internal else [row[:3] for row in rows])


def _replication(info: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in info.partitions), default=0)


def _summary(info: TopicInfo) -> dict[str, Any]:
    from headrace.wire import uuids

    return {
        "topic": info.name,
        "id": uuids.to_text(info.id),
        "internal": info.internal,
        "partitions": len(info.partitions),
        "replicas": _replication(info),
    }


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@json_option
@cluster_options
def describe(client: Client, names: tuple[str, ...], as_json: bool) -> None:
    """Describe topics: leaders, replicas, offsets and sizes, and the configurations that are set.

    Replicas are "eligible" if they may lead though they are not in sync, and "offline" if their brokers are down.
    """
    described = [_describe(client, info) for info in client.topics(names)]
    if as_json:
        print_json(described)
        return
    for each in described:
        internal = ", internal" if each["internal"] else ""
        click.echo(f"{each['topic']}  id {each['id']}{internal}")
        if each["configs"]:
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in each["configs"].items()))
        rows = [
            (
                p["partition"],
                p["leader"],
                p["replicas"],
                p["isr"],
                p["offline"],
                p["elr"],
                p["earliest"],
                p["latest"],
                _size(p["size"]),
            )
            for p in each["partitions"]
        ]
        columns = ["partition", "leader", "replicas", "in sync", "offline", "eligible", "earliest", "latest", "size"]
        print_table(columns, rows)


def _size(size: int | None) -> str | None:
    return None if size is None else size_text(size)


def _describe(client: Client, info: TopicInfo) -> dict[str, Any]:
    from headrace.client import admin, describe, reading
    from headrace.client.errors import BrokerError, ClientError
    from headrace.wire import uuids
    from headrace.wire.config_source import ConfigSource
    from headrace.wire.errors import ErrorCode

    led = [(info.name, p.index) for p in info.partitions if p.leader in client.nodes]
    try:
        earliest = reading.list_offsets(client, dict.fromkeys(led, reading.EARLIEST))
        latest = reading.list_offsets(client, dict.fromkeys(led, reading.LATEST))
    except BrokerError as error:
        if error.code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise
        # A leader has gone since: all but the offsets is to be seen then too. The cluster says now who leads.
        (info,) = client.topics([info.name])
        earliest = latest = {}
    sizes: dict[tuple[int, int], int] = {}
    try:
        for directory in describe.describe_log_dirs(client, [info.name]):
            for replica in directory.replicas:
                if not replica.future:
                    sizes[directory.broker, replica.partition] = replica.size
    except ClientError:
        sizes = {}
    eligible = describe.eligible_leaders(client, [info.name])
    configs = admin.describe_configs(client, admin.Resource.TOPIC, info.name)
    return {
        "topic": info.name,
        "id": uuids.to_text(info.id),
        "internal": info.internal,
        "configs": {entry.name: entry.value for entry in configs if entry.source == ConfigSource.TOPIC},
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader if p.leader >= 0 else None,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline": list(p.offline),
                "elr": list(eligible[info.name, p.index].eligible) if (info.name, p.index) in eligible else None,
                "last_known_elr": (
                    list(eligible[info.name, p.index].last_known) if (info.name, p.index) in eligible else None
                ),
                "earliest": earliest[info.name, p.index].offset if (info.name, p.index) in earliest else None,
                "latest": latest[info.name, p.index].offset if (info.name, p.index) in latest else None,
                "size": sizes.get((p.leader, p.index)),
            }
            for p in info.partitions
        ],
    }


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", "-p", type=partition_count, help="Grow to this many partitions.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a configuration; may be repeated.")
@click.option("--unset", multiple=True, metavar="KEY", help="Reset this configuration to its default; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Have the brokers check the request, and change nothing.")
@json_option
@cluster_options
def alter(
    client: Client,
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change the topic NAME: more partitions, other configurations."""
    from headrace.client import admin

    if partitions is None and not settings and not unset:
        raise click.UsageError("nothing to change: give --partitions, --set or --unset")
    changed = parse_pairs(settings, "--set")
    if changed or unset:
        admin.alter_configs(
            client,
            admin.Resource.TOPIC,
            name,
            set_values=changed,
            delete=unset,
            validate_only=dry_run,
        )
    if partitions is not None:
        now = len(client.topics([name])[0].partitions)
        if partitions < now:
            raise Failure(f"topic {name} has {counted(now, 'partition')}; their number can only grow")
        admin.add_partitions(client, name, partitions, validate_only=dry_run)
    if as_json:
        shown = {"topic": name, "executed": not dry_run, "partitions": partitions, "set": changed, "unset": unset}
        print_json(shown)
    else:
        click.echo(f"{'could alter' if dry_run else 'altered'} topic {name}")


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@yes_option
@json_option
@cluster_options
def delete(client: Client, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete topics with all their records."""
    from headrace.client import admin

    client.topics(names)
    what = f"topic {names[0]}" if len(names) == 1 else counted(len(names), "topic")
    confirm(f"Delete {what} with all records?", yes)
    with Done(as_json) as done:
        for name in dict.fromkeys(names):
            admin.delete_topic(client, name)
            done.add({"topic": name, "deleted": True}, f"deleted topic {name}")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--partition", "-p", type=click.IntRange(min=0), help="Trim only this partition.")
@click.option("--before", required=True, metavar="OFFSET|latest", help="Delete the records below this offset.")
@yes_option
@json_option
@cluster_options
def trim(client: Client, name: str, partition: int | None, before: str, yes: bool, as_json: bool) -> None:
    """Delete the oldest records of the topic NAME."""
    from headrace.client import admin

    if before != "latest" and not (before.isdecimal() and int(before) <= INT64_MAX):
        raise click.BadParameter(f"{before!r} is neither an offset nor latest", param_hint="--before")
    offset = -1 if before == "latest" else int(before)
    parts = client.partitions(name) if partition is None else [(name, partition)]
    confirm(f"Delete the records of topic {name} below offset {before}?", yes)
    with Done(as_json) as done:
        for (_, index), start in sorted(admin.delete_records(client, dict.fromkeys(parts, offset)).items()):
            shown = {"topic": name, "partition": index, "earliest": start}
            done.add(shown, f"topic {name} partition {index} begins at offset {start}")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--at", "where", default="latest", show_default=True, metavar="WHERE",
              help="earliest, latest, newest (by timestamp), a time, or how long ago: -1h.")  # fmt: skip
@click.option("--committed", is_flag=True, help="latest: the end of what readers of committed records see.")
@json_option
@cluster_options
def offsets(client: Client, name: str, where: str, committed: bool, as_json: bool) -> None:
    """Show the offset of the first record at or after a time, in each partition of the topic NAME.

    A partition whose records are all older has none.
    """
    from headrace.client import reading

    special = {"earliest": reading.EARLIEST, "latest": reading.LATEST, "newest": reading.MAX_TIMESTAMP}
    time_ms = special[where] if where in special else moment_ms(where, "--at")
    isolation: reading.Isolation = "read_committed" if committed else "read_uncommitted"
    found = reading.list_offsets(client, dict.fromkeys(client.partitions(name), time_ms), isolation=isolation)
    shown = [
        {
            "partition": index,
            "offset": None if at.offset < 0 else at.offset,
            "timestamp": None if at.timestamp < 0 else at.timestamp,
        }
        for (_, index), at in sorted(found.items())
    ]
    if as_json:
        print_json({"topic": name, "partitions": shown})
        return
    rows = [
        (each["partition"], each["offset"], None if each["timestamp"] is None else time_text(each["timestamp"]))
        for each in shown
    ]
    print_table(["partition", "offset", "timestamp"], rows)

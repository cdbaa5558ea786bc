"""`headrace group`: list, describe (with lag), reset, delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import group_names
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.naming import chosen_partitions
from headrace.cli.options import cluster_options, confirm, json_option, parse_time_ms, yes_option
from headrace.cli.output import Done, counted, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.groups import GroupDescription
    from headrace.client.metadata import TopicPartition


@click.group(cls=CommandGroup)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="List only groups in this state.")
@click.option("--type", "types", multiple=True, metavar="TYPE",
              help="List only groups of this type, such as classic or consumer.")  # fmt: skip
@json_option
@cluster_options
def list_groups(client: Client, states: tuple[str, ...], types: tuple[str, ...], as_json: bool) -> None:
    """List groups."""
    from headrace.client import groups

    found = [
        g
        for g in groups.list_groups(client)
        if (not states or g.state.lower() in map(str.lower, states))
        and (not types or g.type.lower() in map(str.lower, types))
    ]
    if as_json:
        print_json(
            [
                {
                    "group": g.group_id,
                    "type": g.type,
                    "state": g.state,
                    "protocol_type": g.protocol_type,
                    "coordinator": g.coordinator,
                }
                for g in found
            ]
        )
        return
    rows = [(g.group_id, g.type or None, g.state or None, g.protocol_type or None, g.coordinator) for g in found]
    print_table(["group", "type", "state", "protocol", "coordinator"], rows)


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@click.option("--members", "shows_members", is_flag=True,
              help="Show the members with their current and target partitions, instead of the partitions.")  # fmt: skip
@json_option
@cluster_options
def describe(client: Client, names: tuple[str, ...], shows_members: bool, as_json: bool) -> None:
    """Describe groups: state, epochs, members, and the lag in every partition."""
    from headrace.client import groups

    described = [_describe(client, groups.describe_group(client, name)) for name in names]
    if as_json:
        print_json(described)
        return
    for each in described:
        click.echo(
            f"{each['group']}: {each['state']}, {counted(len(each['members']), 'member')}, "
            f"coordinator {each['coordinator']}, total lag {each['lag']}{_epochs(each)}"
        )
        if shows_members:
            _print_members(each["members"])
            continue
        rows = [
            (p["topic"], p["partition"], p["committed"], p["latest"], p["lag"], p["member"], p["host"])
            for p in each["partitions"]
        ]
        print_table(["topic", "partition", "committed", "latest", "lag", "member", "host"], rows)


def _epochs(described: dict[str, Any]) -> str:
    """A consumer group's epochs; nothing of a classic group."""
    if described["epoch"] is None:
        return ""
    return f", epoch {described['epoch']}, targets of epoch {described['assignment_epoch']} by {described['assignor']}"


def _print_members(members: list[dict[str, Any]]) -> None:
    rows = [
        (m["member"], m["instance"], m["host"], m["protocol"], m["epoch"], _shown(m["partitions"]), _shown(m["target"]))
        for m in members
    ]
    print_table(["member", "instance", "host", "protocol", "epoch", "assigned", "target"], rows)


def _shown(partitions: list[dict[str, Any]] | None) -> str | None:
    """Partitions as Kafka's tools write them: orders:0,1 and so on for each topic."""
    if partitions is None:
        return None
    by_topic: dict[str, list[str]] = {}
    for each in partitions:
        by_topic.setdefault(each["topic"], []).append(str(each["partition"]))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items())


def _as_fields(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _describe(client: Client, found: GroupDescription) -> dict[str, Any]:
    from headrace.client import groups
    from headrace.client.errors import BrokerError
    from headrace.wire.errors import ErrorCode

    committed = groups.fetch_offsets(client, found.group_id)
    if found.state == "Dead" and not committed:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {found.group_id}")
    owner = {at: member for member in found.members for at in member.assigned}
    latest = _latest(client, {*committed, *owner})
    partitions = []
    for at in sorted({*committed, *owner}):
        position = committed.get(at)
        end = latest.get(at)
        lag = None if end is None or position is None else max(0, end - position.offset)
        member = owner.get(at)
        partitions.append(
            {
                "topic": at[0],
                "partition": at[1],
                "committed": None if position is None else position.offset,
                "latest": end,
                "lag": lag,
                "member": None if member is None else member.member_id,
                "client": None if member is None else member.client_id,
                "host": None if member is None else member.client_host,
            }
        )
    return {
        "group": found.group_id,
        "type": found.type,
        "state": found.state,
        "protocol_type": found.protocol_type,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "epoch": found.epoch,
        "assignment_epoch": found.assignment_epoch,
        "lag": sum(p["lag"] or 0 for p in partitions),
        "members": [
            {
                "member": m.member_id,
                "instance": m.instance_id,
                "client": m.client_id,
                "host": m.client_host,
                "protocol": m.protocol,
                "epoch": m.epoch,
                "partitions": _as_fields(m.assigned),
                "target": None if m.target is None else _as_fields(m.target),
            }
            for m in found.members
        ],
        "partitions": partitions,
    }


def _latest(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of these partitions; those of topics that are gone are left out."""
    from headrace.client import reading

    wanted = set(partitions)
    gone = client.refresh({topic for topic, _ in wanted})
    there = [at for at in wanted if at[0] not in gone and at[1] < len(client.topic(at[0]).partitions)]
    ends = reading.list_offsets(client, dict.fromkeys(there, reading.LATEST))
    return {at: end.offset for at, end in ends.items()}


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,P]",
              help="Reset only these. Default: all that have offsets.")  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="Reset to the first records.")
@click.option("--to-latest", is_flag=True, help="Reset to the end: skip everything.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Reset to this offset, within the log.")
@click.option("--to-datetime", metavar="TIME",
              help="Reset to the first record from this time on, such as 2026-11-21T08:00.")  # fmt: skip
@click.option("--shift-by", type=int, metavar="N", help="Move by N records; a negative N moves back.")
@click.option(
    "--to-current", is_flag=True, help="Keep the committed offsets, moved into the log if they are outside it."
)
@click.option("--to-group", metavar="GROUP", shell_complete=group_names,
              help="Copy the committed offsets of this group, in the topics that it has.")  # fmt: skip
@click.option("--execute", is_flag=True, help="Commit the new offsets. Without this, only show them.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets; the default.")
@json_option
@cluster_options
def reset(
    client: Client,
    name: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    to_current: bool,
    to_group: str | None,
    execute: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the committed offsets of a group that has no members.

    The command shows the new offsets; --execute commits them. With --to-group, partitions in which the other group has
    no committed offset keep theirs.
    """
    from headrace.client import groups

    chosen = [
        to_earliest,
        to_latest,
        to_current,
        *(x is not None for x in (to_offset, to_datetime, shift_by, to_group)),
    ]
    if sum(chosen) != 1:
        raise click.UsageError(
            "choose one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by, --to-current, --to-group"
        )
    if execute and dry_run:
        raise click.UsageError("choose one of --execute and --dry-run")
    if members := groups.describe_group(client, name).members:
        raise Failure(f"group {name} has {counted(len(members), 'member')}; stop its consumers first")
    committed = {at: position.offset for at, position in groups.fetch_offsets(client, name).items()}
    partitions = chosen_partitions(client, topics) if topics else sorted(committed)
    source = committed
    if to_group is not None:
        source = {at: position.offset for at, position in groups.fetch_offsets(client, to_group).items()}
        partitions = sorted(source.keys() & set(partitions)) if topics else sorted(source)
        if not partitions:
            raise Failure(f"group {to_group} has no committed offsets{' in these topics' if topics else ''}", NOT_FOUND)
    if not partitions:
        raise Failure(f"group {name} has no committed offsets; name the topics with --topic", NOT_FOUND)
    time_ms = None if to_datetime is None else parse_time_ms(to_datetime, "--to-datetime")
    target = _Target(to_earliest, to_latest, to_offset, time_ms, shift_by)
    new = _new_offsets(client, partitions, source, target)
    if execute:
        groups.commit_offsets(client, name, new)
    rows = [(topic, index, committed.get((topic, index)), new[topic, index]) for topic, index in partitions]
    if as_json:
        print_json(
            {
                "group": name,
                "executed": execute,
                "partitions": [{"topic": t, "partition": p, "from": old, "to": to} for t, p, old, to in rows],
            }
        )
        return
    print_table(["topic", "partition", "from", "to"], rows)
    if not execute:
        click.echo("nothing has changed yet; --execute commits these offsets", err=True)


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a reset goes; nothing chosen means the committed offsets themselves."""

    earliest: bool
    latest: bool
    offset: int | None
    time_ms: int | None
    shift_by: int | None


def _new_offsets(
    client: Client, partitions: list[TopicPartition], committed: dict[TopicPartition, int], target: _Target
) -> dict[TopicPartition, int]:
    """The offsets to commit, kept between the first and the end of each partition."""
    from headrace.client import reading

    earliest = reading.list_offsets(client, dict.fromkeys(partitions, reading.EARLIEST))
    latest = reading.list_offsets(client, dict.fromkeys(partitions, reading.LATEST))
    wanted: dict[TopicPartition, int] = {}
    if target.earliest:
        return {at: earliest[at].offset for at in partitions}
    if target.latest:
        return {at: latest[at].offset for at in partitions}
    if target.time_ms is not None:
        found = reading.list_offsets(client, dict.fromkeys(partitions, target.time_ms))
        wanted = {at: found[at].offset if found[at].offset >= 0 else latest[at].offset for at in partitions}
    elif target.offset is not None:
        wanted = dict.fromkeys(partitions, target.offset)
    else:
        missing = [at for at in partitions if at not in committed]
        if missing:
            topic, index = missing[0]
            raise Failure(f"the group has no committed offset in topic {topic} partition {index} to start from")
        wanted = {at: committed[at] + (target.shift_by or 0) for at in partitions}
    return {at: min(max(offset, earliest[at].offset), latest[at].offset) for at, offset in wanted.items()}


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,P]", help="Delete only the offsets in these.")
@yes_option
@json_option
@cluster_options
def delete(client: Client, names: tuple[str, ...], topics: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete groups that have no members, or only their offsets in some topics."""
    from headrace.client import groups

    what = f"group {names[0]}" if len(names) == 1 else counted(len(names), "group")
    confirm(f"Delete {'offsets of ' if topics else ''}{what}?", yes)
    with Done(as_json) as done:
        for name in dict.fromkeys(names):
            if topics:
                chosen = chosen_partitions(client, topics)
                groups.delete_offsets(client, name, chosen)
                gone = [{"topic": topic, "partition": index} for topic, index in chosen]
                done.add({"group": name, "deleted": False, "partitions": gone}, f"deleted offsets of group {name}")
            else:
                groups.delete_group(client, name)
                done.add({"group": name, "deleted": True}, f"deleted group {name}")

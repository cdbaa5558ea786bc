"""`headrace pipeline run mirror`: topics and consumer groups of one cluster to another."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.access import other_access
from headrace.cli.failures import Failure
from headrace.cli.options import connect, parse_pairs
from headrace_pipelines.commands.driving import (
    Drive,
    Report,
    claim_checkpoint,
    delivery_option,
    delivery_setting,
    drive,
    need_spark,
    run_options,
)

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.client.security import Security
    from headrace_pipelines.mirror import Mirror


@click.command()
@click.option("--topics", metavar="TOPIC[,...]", help="The topics to copy,")
@click.option("--pattern", metavar="REGEX", help="or a pattern for their whole names; new topics follow.")
@click.option("--to-bootstrap", metavar="HOST:PORT[,...]",
              help="Brokers of the cluster to copy to; --bootstrap is the one to copy from.")  # fmt: skip
@click.option("--to-command-config", metavar="FILE",
              help="The client properties of that cluster; --command-config is for the other.")  # fmt: skip
@click.option("--to-profile", metavar="NAME", help="Or the profile of that cluster; --profile is for the other.")
@click.option("--prefix", default="", metavar="TEXT", help="A prefix for the names of the copies.")
@click.option("--groups", default=".*", show_default=True, metavar="REGEX", help="The consumer groups to copy.")
@click.option("--sync-group-offsets/--no-sync-group-offsets", default=True, show_default=True,
              help="Commit the groups' offsets, translated, at the target.")  # fmt: skip
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="lz4",
              show_default=True, help="Compression of the copies.")  # fmt: skip
@click.option("--skip-lost", is_flag=True,
              help="Go on if the source deleted records before the run copied them (failOnDataLoss).")  # fmt: skip
@delivery_option("exactly-once: a batch of copies is one transaction.")
@run_options
def mirror(bootstrap: str, timeout: float, security: Security, **given: Any) -> None:
    """Copy topics of one cluster to another, with the offsets of their consumer groups.

    Partition, order, key, value, headers and timestamp of a record stay as they are. The run creates
    topics with the partitions and settings of their source, and adds partitions when the source gets more. Delivery
    is at least once, unless --delivery says otherwise. A group that moves to the copy goes on from its offset, or a
    little before.
    """
    settings = parse_pairs(given["settings"], "--set")
    chosen = _checked(bootstrap, security, given)
    from headrace_pipelines.mirror import Copier, CopiesFile
    from headrace_pipelines.mirror_groups import SYNC_S, GroupSync
    from headrace_pipelines.mirror_topics import TopicFollower

    with ExitStack() as clients:
        # a client is for one thread, and the query has its own; the work beside it must not delay a signal
        (source, target), (aside, there) = (
            [
                clients.enter_context(connect(at, time_s, how))
                for at, how in (
                    (bootstrap, chosen.source_security),
                    (chosen.target, chosen.target_security),
                )
            ]
            for time_s in (timeout, min(timeout, SYNC_S))
        )
        _check_clusters(chosen, source, target)
        ids = {"from": source.cluster_id, "to": target.cluster_id}
        what = {"topics": ",".join(chosen.topics)} if chosen.topics else {"pattern": chosen.pattern}
        ours = {"pipeline": "mirror", **ids, **what, "prefix": chosen.prefix, **delivery_setting(chosen.delivery)}
        claim_checkpoint(chosen.checkpoint, ours)
        copies = CopiesFile(chosen.checkpoint)
        topics = TopicFollower(source, target, chosen.subscription, chosen.prefix, _warn)
        topics.follow()
        groups = GroupSync(aside, there, given["groups"], chosen.prefix, _warn)
        run = Drive(
            start=Copier(chosen, copies, topics).start,
            route=f"{', '.join(chosen.topics) or chosen.pattern} from {bootstrap} to {chosen.target}",
            checkpoint=chosen.checkpoint,
            once=chosen.once,
            settings=settings,
            beside=(lambda: groups.look(copies.runs)) if given["sync_group_offsets"] else None,
        )
        drive(Report("mirror", given["as_json"]), run)
        if given["sync_group_offsets"]:
            groups.sync(copies.runs)


def _warn(text: str) -> None:
    click.echo(f"headrace: {text}", err=True)


def _checked(bootstrap: str, security: Security, given: dict[str, Any]) -> Mirror:
    """The mirror that is asked for, as far as it can be checked without a cluster."""
    if bool(given["topics"]) == bool(given["pattern"]):
        raise click.UsageError("give either --topics or --pattern")
    try:
        re.compile(given["groups"])
    except re.error as error:
        raise click.BadParameter(f"{given['groups']!r}: {error}", param_hint="--groups") from None
    target, target_security = other_access(given["to_bootstrap"], given["to_command_config"], given["to_profile"])
    if target is None:
        raise click.UsageError("give --to-bootstrap, or a --to-profile that names brokers")
    need_spark()
    from headrace.spark.options import sink_options
    from headrace_pipelines.mirror import COMMITS, Mirror

    topics = tuple(dict.fromkeys(name.strip() for name in (given["topics"] or "").split(",") if name.strip()))
    if COMMITS in topics:
        raise click.UsageError(f"--topics names {COMMITS}: mirrors write it themselves")
    try:
        chosen = Mirror(
            source=bootstrap,
            target=target,
            checkpoint=given["checkpoint"],
            topics=topics,
            pattern=given["pattern"] or "",
            prefix=given["prefix"],
            compression=given["compression"],
            starting=given["starting_offsets"],
            skip_lost=given["skip_lost"],
            once=given["once"],
            trigger_ms=given["trigger"],
            max_per_batch=given["max_per_batch"],
            delivery=given["delivery"],
            source_security=security,
            target_security=target_security,
        )
        sink_options(chosen.write_options())
        assert chosen.subscription
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return chosen


def _check_clusters(mirror: Mirror, source: Client, target: Client) -> None:
    """Checks that the topics to copy exist, and that copies are not copied back."""
    names = [topic.name for topic in source.topics(mirror.topics or None)]
    target.refresh([])
    if source.cluster_id is None or source.cluster_id != target.cluster_id:
        return
    if not mirror.prefix:
        raise Failure("--bootstrap and --to-bootstrap are one cluster: a copy there needs names of its own (--prefix)")
    copied = mirror.topics or [name for name in names if re.fullmatch(mirror.pattern, name)]
    wanted = set(mirror.topics)
    if again := [
        copy for copy in (mirror.prefix + name for name in copied)
        if copy in wanted or (mirror.pattern and re.fullmatch(mirror.pattern, copy))
    ]:  # fmt: skip
        copy = again[0]
        raise Failure(f"--bootstrap and --to-bootstrap are one cluster, and the run would copy its copy {copy} again")

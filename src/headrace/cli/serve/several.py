"""`headrace serve --brokers N`: the folder is prepared, the nodes are run, a table says where they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failures import Failure
from headrace.cli.output import print_table
from headrace.cli.serve.folder import (
    LOCK_FILE,
    METRICS,
    HeldPorts,
    Layout,
    format_nodes,
    hold_metrics_ports,
    hold_ports,
    lock_folder,
    new_cluster_id,
    node_directory,
    read_layout,
    remove_folder,
    write_layout,
    write_node_files,
)
from headrace.cli.serve.listeners import plan_nodes
from headrace.cli.serve.supervisor import supervise

if TYPE_CHECKING:
    from headrace.cli.serve.listeners import Plan


def serve_several(
    brokers: int,
    folder: Path,
    controller_port: int | None,
    given: Mapping[str, str],
    add_scram: Sequence[str],
    options: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Returns after a clean stop. Raises Failure with one line for whatever else ends it.

    `given` are the settings of all nodes, with the listeners of the first one; `add_scram` the users that a fresh
    cluster begins with, `options` those of `headrace serve`; with `as_json` every line that is written is JSON.
    """
    from headrace.config import ConfigError

    try:
        plan = plan_nodes(given, controller_port, brokers)
    except ConfigError as error:
        raise Failure(str(error)) from error
    was_there = folder.exists()
    held = HeldPorts()
    lock = lock_folder(folder)
    try:
        is_fresh = not was_there and [each.name for each in folder.iterdir()] == [LOCK_FILE]
        try:
            layout, files = _prepare(brokers, folder, plan, add_scram, held)
        except Failure:
            if is_fresh:
                remove_folder(folder)  # a refused start leaves nothing behind in a folder that was not there
            raise
        why = supervise(
            files, options, lambda processes: _tell(folder, plan, layout, processes, as_json), as_json=as_json
        )
        if why is not None:
            raise Failure(why)
    finally:
        lock.release()
        held.release()


def _prepare(
    brokers: int, folder: Path, plan: Plan, add_scram: Sequence[str], held: HeldPorts
) -> tuple[Layout, list[Path]]:
    """The folder with all that a start needs. Raises Failure."""
    from headrace.broker.storage.storage_format import StorageError
    from headrace.cli.storage import newest_users
    from headrace.config import ConfigError

    kept = read_layout(folder, brokers)
    users = newest_users(add_scram)
    ports = hold_ports(held, plan, brokers, kept)
    cluster_id = kept.cluster_id if kept else new_cluster_id()
    others = [port for each in ports.values() for port in each]
    try:
        host, metrics_ports = hold_metrics_ports(
            held, plan.settings.get(METRICS), brokers, free=not plan.clients.port, others=others, kept=kept
        )
        clients, controllers = ports.pop(plan.clients.name), ports.pop(plan.controllers.name)
        layout = Layout(cluster_id, clients, controllers, metrics_ports, host, ports)
        write_layout(folder, layout)
        files = write_node_files(folder, layout, plan)
        is_new = format_nodes(files, layout.cluster_id, users)
    except (ConfigError, StorageError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror}") from error
    if users and not is_new:
        click.echo(
            "headrace: the cluster has its users: --add-scram is for its first start; see `headrace user`", err=True
        )
    return layout, files


def _tell(folder: Path, plan: Plan, layout: Layout, processes: Sequence[int], as_json: bool) -> None:
    """Prints the table of the nodes, once they serve clients."""
    rows = [
        (
            node_id,
            plan.clients.shown(port),
            plan.controllers.shown(controller_port),
            layout.metrics_address(node_id) if layout.metrics_ports else "none",
            process,
            str(node_directory(folder, node_id)),
        )
        for node_id, port, controller_port, process in zip(
            layout.node_ids, layout.ports, layout.controller_ports, processes, strict=True
        )
    ]
    columns = ("node", "clients", "controllers", "metrics", "process", "folder")
    if as_json:
        click.echo(
            json.dumps({"event": "the cluster serves", "nodes": [dict(zip(columns, row, strict=True)) for row in rows]})
        )
    else:
        print_table(columns, rows)

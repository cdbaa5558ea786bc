"""`headrace serve --brokers N`: the folder is prepared, the nodes are run, a table says where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.failures import Failure
from headrace.cli.output import print_table
from headrace.cli.serve.folder import (
    CONTROLLER_HOST,
    METRICS,
    OWN,
    HeldPorts,
    Layout,
    format_nodes,
    hold_metrics_ports,
    hold_ports,
    lock_folder,
    new_cluster_id,
    node_directory,
    read_layout,
    write_layout,
    write_node_files,
)
from headrace.cli.serve.supervisor import supervise
from headrace.wire.address import address_text

if TYPE_CHECKING:
    from headrace.env import DiskLock


def serve_several(
    brokers: int,
    folder: Path,
    listen: tuple[str, int],
    controller_port: int | None,
    advertised: tuple[str, int] | None,
    given: Mapping[str, str],
    options: Sequence[str],
) -> None:
    """Returns after a clean stop. Raises Failure with one line for whatever else ends it.

    `listen` is the address of the first node, `given` the settings of all nodes, `options` those of `headrace serve`.
    """
    own = sorted(OWN & given.keys())
    if own:
        raise Failure(f"{own[0]} is each node's own with --brokers, and cannot be set for all")
    is_fresh = not folder.exists()
    held = HeldPorts()
    lock = lock_folder(folder)
    try:
        try:
            layout, files = _prepare(brokers, folder, listen, controller_port, advertised, given, held)
        except Failure:
            if is_fresh:
                _remove(folder, lock)
            raise
        why = supervise(files, options, lambda processes: _tell(folder, listen[0], layout, processes))
        if why is not None:
            raise Failure(why)
    finally:
        lock.release()
        held.release()


def _prepare(
    brokers: int,
    folder: Path,
    listen: tuple[str, int],
    controller_port: int | None,
    advertised: tuple[str, int] | None,
    given: Mapping[str, str],
    held: HeldPorts,
) -> tuple[Layout, list[Path]]:
    """The folder with all that a start needs. Raises Failure."""
    from headrace.broker.storage.storage_format import StorageError
    from headrace.config import ConfigError

    kept = read_layout(folder, brokers)
    ports, controller_ports = hold_ports(held, *listen, controller_port, brokers, kept)
    cluster_id = kept.cluster_id if kept else new_cluster_id()
    others = (*ports, *controller_ports)
    try:
        host, metrics_ports = hold_metrics_ports(held, given.get(METRICS), free=not listen[1], others=others, kept=kept)
        layout = Layout(cluster_id, ports, controller_ports, metrics_ports, host)
        write_layout(folder, layout)
        files = write_node_files(folder, layout, listen[0], advertised, given)
        format_nodes(files, layout.cluster_id)
    except (ConfigError, StorageError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror}") from error
    return layout, files


def _remove(folder: Path, lock: DiskLock) -> None:
    """A refused start leaves nothing behind in a folder that was not there."""
    import shutil

    lock.release()
    shutil.rmtree(folder, ignore_errors=True)


def _tell(folder: Path, host: str, layout: Layout, processes: Sequence[int]) -> None:
    """The table of the nodes, once they serve clients."""
    rows = [
        (
            node_id,
            address_text(host.strip("[]"), port),
            address_text(CONTROLLER_HOST, controller_port),
            layout.metrics_address(node_id) if layout.metrics_ports else "none",
            process,
            node_directory(folder, node_id),
        )
        for node_id, port, controller_port, process in zip(
            layout.node_ids, layout.ports, layout.controller_ports, processes, strict=True
        )
    ]
    print_table(("node", "clients", "controllers", "metrics", "process", "folder"), rows)

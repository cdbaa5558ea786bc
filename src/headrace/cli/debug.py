"""`headrace debug`: what somebody who is to find a fault needs to see."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, json_option
from headrace.cli.output import print_json
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.client.admin import Resource
    from headrace.client.cluster import Client

TEXT_BYTES_MAX = 10 << 20
"""Of a log its last bytes, of metrics the first."""
METRICS_PATIENCE_S = 5.0
REMOVED = "[removed]"
_SECRET = re.compile(
    r"""(?i)([\w.-]*(?:password|passwd|secret|jaas|credential|token|private[._-]?key)[\w.-]*["']?\s*[=:]\s*)"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;]+)"""
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+")


@click.group(cls=CommandGroup)
def debug() -> None:
    """Collect the information that a fault report needs."""


@debug.command()
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="The archive to write.  [default: headrace-debug-TIME.tar.gz]")  # fmt: skip
@click.option("--metrics", "pages", multiple=True, metavar="URL",
              help="A node's page of metrics, such as http://127.0.0.1:9404/metrics; repeatable.")  # fmt: skip
@click.option("--log", "logs", multiple=True, type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="A log file, of which the last 10 MB are taken; repeatable.")  # fmt: skip
@json_option
@cluster_options
def bundle(client: Client, output: Path | None, pages: tuple[str, ...], logs: tuple[Path, ...], as_json: bool) -> None:
    """Write an archive that describes a cluster: versions, metadata, settings, groups, health, metrics and logs.

    The archive holds no records and no secrets: brokers hide passwords, and what looks like one in a log is removed. It
    does hold names of topics, groups, users and hosts; check its content before you share it. It lists the information
    that could not be collected.
    """
    from headrace.client.admin import Resource

    path = output or Path(f"headrace-debug-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz")
    made = _Bundle()
    made.add("about.json", _about)
    made.add("cluster.json", partial(_cluster, client))
    made.add("health.json", partial(_health, client))
    made.add("topics.json", lambda: [asdict(topic) for topic in client.topics()])
    made.add("groups.json", partial(_groups, client))
    for broker in sorted(client.nodes):
        made.add(f"settings/broker-{broker}.json", partial(_settings, client, Resource.BROKER, str(broker)))
    made.add("settings/topics.json", partial(_topic_settings, client))
    for number, url in enumerate(pages, 1):
        made.add(f"metrics/{number}.txt", partial(_page, url))
    for number, log in enumerate(logs, 1):
        made.add(f"logs/{number}-{log.name}", partial(_end_of, log))
    try:
        made.write(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    if as_json:
        print_json({"file": str(path), "missing": made.missing})
    else:
        click.echo(f"wrote {path}" + (f"; not in it: {', '.join(made.missing)}" if made.missing else ""))


class _Bundle:
    """Files by name. One that cannot be made is replaced by the reason."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.missing: list[str] = []

    def add(self, name: str, make: Callable[[], Any]) -> None:
        from headrace.client.errors import ClientError

        try:
            found = make()
        except (ClientError, OSError, ValueError) as error:
            self.missing.append(name)
            name, found = f"{name}.error.txt", f"{type(error).__name__}: {error}\n"
        text = found if isinstance(found, str) else json.dumps(found, indent=2, default=_plain) + "\n"
        self.files[name] = text.encode(errors="replace")

    def write(self, path: Path) -> None:
        """Writes a new file, for its owner alone. Raises OSError, FileExistsError among them."""
        with (
            open(path, "xb", opener=_open_private) as stream,
            tarfile.open(fileobj=stream, mode="w:gz") as archive,
        ):
            for name, data in self.files.items():
                entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _plain(value: object) -> object:
    """What JSON does not know."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def without_secrets(text: str) -> str:
    """Returns a text with the values removed that follow names of passwords, keys, tokens and the like."""
    return _BEARER.sub(rf"\1 {REMOVED}", _SECRET.sub(rf"\1{REMOVED}", text))


def _about() -> dict[str, Any]:
    return {
        "headrace": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _cluster(client: Client) -> dict[str, Any]:
    from headrace.cli.cluster import describe_all

    return describe_all(client)[1]


def _health(client: Client) -> dict[str, Any]:
    from headrace.cli.cluster import health_json
    from headrace.client.health import examine

    return health_json(examine(client))


def _groups(client: Client) -> list[dict[str, Any]]:
    from headrace.client import groups

    return [
        {**asdict(groups.describe_group(client, each.group_id)), "offsets": _offsets(client, each.group_id)}
        for each in groups.list_groups(client)
    ]


def _offsets(client: Client, group: str) -> dict[str, int]:
    from headrace.client import groups

    return {f"{topic}-{index}": at.offset for (topic, index), at in groups.fetch_offsets(client, group).items()}


def _settings(client: Client, resource: Resource, name: str) -> list[dict[str, Any]]:
    from headrace.client.admin import describe_configs

    return [asdict(each) for each in describe_configs(client, resource, name)]


def _topic_settings(client: Client) -> dict[str, list[dict[str, Any]]]:
    from headrace.client.admin import Resource

    return {topic.name: _settings(client, Resource.TOPIC, topic.name) for topic in client.topics()}


def _page(url: str) -> str:
    """Raises OSError, and ValueError for a text that is no address."""
    from urllib.request import urlopen

    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not the address of a page")
    with urlopen(url, timeout=METRICS_PATIENCE_S) as answer:
        found: bytes = answer.read(TEXT_BYTES_MAX)
    return found.decode(errors="replace")


def _end_of(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TEXT_BYTES_MAX))
        return without_secrets(stream.read(TEXT_BYTES_MAX).decode(errors="replace"))

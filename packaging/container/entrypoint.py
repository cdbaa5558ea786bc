"""The entry point of the image: settings from variables as Apache Kafka's image takes them, then `headrace`.

    entrypoint.py serve [options]    a node: /etc/headrace/server.properties, if it is mounted, and variables
    entrypoint.py --health           what HEALTHCHECK asks: /livez of the node in this container
    entrypoint.py COMMAND ...        any other command of headrace

`KAFKA_LOG_DIRS` is `log.dirs` (`_` a dot, `__` an underscore, `___` a hyphen); `HEADRACE_SERVER_LOG_DIRS` is the same
and wins. CLUSTER_ID names the cluster of fresh directories, HEADRACE_ADD_SCRAM its users, a line each. What all of them
say together is written to /tmp/headrace, and nothing elsewhere: a file that is mounted stays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.cli.serve.environment import settings_of
from headrace.config import load_properties_file
from headrace.config.properties import properties_lines
from headrace.config.setting import parse_metrics_listener
from headrace.config.table import broker_setting

MOUNTED: Final = Path("/etc/headrace/server.properties")
SECRETS: Final = Path("/etc/kafka/secrets")
"""Where Apache Kafka's image looks for what the variables below name."""
MERGED: Final = Path("/tmp/headrace/server.properties")
KAFKA: Final = "KAFKA_"
DEFAULTS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "log.dirs": "/var/lib/headrace",
    "metrics.listener": "0.0.0.0:9404",
}
LISTENERS: Final = {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://localhost:9092"}
DEFAULT_CLUSTER: Final = "5L6g3nShT-eMCtK--X86sw"
"""The cluster of nodes that name other voters and no CLUSTER_ID: that of Apache Kafka's image."""
FILES: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
PASSWORDS: Final = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
HEALTH_TIMEOUT_S: Final = 5


def of_kafka(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What the variables of Kafka's image set, and the names of those that name no setting."""
    found: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in sorted(environment.items()):
        if name in FILES:
            found[FILES[name]] = str(SECRETS / value)
        elif name in PASSWORDS:
            found[PASSWORDS[name]] = (SECRETS / value).read_text().strip()
        elif name.startswith(KAFKA):
            settings = settings_of({name: value}, KAFKA)
            if settings and all(broker_setting(setting) is not None for setting in settings):
                found.update(settings)
            else:
                ignored.append(name)
    return found, ignored


def merged(file: Mapping[str, str], environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """All settings of the node, and the variables that are ignored."""
    kafka, ignored = of_kafka(environment)
    settings = {**file, **kafka, **settings_of(environment)}
    if "log.dir" in settings:
        settings.setdefault("log.dirs", settings["log.dir"])
    if "listeners" not in settings:
        settings.update({name: value for name, value in LISTENERS.items() if name not in settings})
    return {**DEFAULTS, **settings}, ignored


def write(settings: Mapping[str, str], path: Path = MERGED) -> None:
    """Writes what holds, readable by this user alone."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    text = "".join(f"{line}\n" for line in properties_lines(sorted(settings.items())))
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def cluster_of(settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The cluster to format fresh directories for; empty for a node by itself, which chooses one."""
    named = environment.get("CLUSTER_ID", "")
    voters = settings.get("controller.quorum.voters", "")
    return named or (DEFAULT_CLUSTER if "," in voters else "")


def serve(options: list[str]) -> int:
    """Becomes the node; returns an exit status if it cannot."""
    file = load_properties_file(str(MOUNTED)) if MOUNTED.exists() else {}
    settings, ignored = merged(file, os.environ)
    if ignored:
        print(f"headrace: these variables name no setting and are ignored: {', '.join(ignored)}", file=sys.stderr)
    write(settings)
    cluster = cluster_of(settings, os.environ)
    if cluster:
        users = [each for each in os.environ.pop("HEADRACE_ADD_SCRAM", "").splitlines() if each.strip()]
        options_of_users = [option for user in users for option in ("--add-scram", user.strip())]
        format_it = ["storage", "format", "--cluster-id", cluster, "--config", str(MERGED), "--ignore-formatted"]
        status = run([*format_it, *options_of_users])
        if status != 0:
            return status
    return become(["serve", str(MERGED), *options])


def command(arguments: list[str]) -> list[str]:
    """headrace, in this Python."""
    return [sys.executable, "-m", "headrace.cli", *arguments]


def run(arguments: list[str]) -> int:
    """Runs a command to its end."""
    import subprocess

    return subprocess.run(command(arguments), stdout=subprocess.DEVNULL, check=False).returncode


def become(arguments: list[str]) -> int:
    """Replaces this process, so that signals reach the node."""
    os.execv(sys.executable, command(arguments))


def health() -> int:
    """0 while the node is alive, or shows no pages."""
    from http.client import HTTPConnection, HTTPException

    settings = load_properties_file(str(MERGED))
    address = parse_metrics_listener(settings["metrics.listener"])
    if address is None:
        return 0
    host, port = address
    connection = HTTPConnection("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        print(answer.read().decode(errors="replace").strip())
    except (OSError, HTTPException) as error:
        print(error)
        return 1
    finally:
        connection.close()
    return 0 if answer.status == 200 else 1


def main(arguments: list[str]) -> int:
    if arguments == ["--health"]:
        return health()
    if arguments[:1] == ["serve"]:
        return serve(arguments[1:])
    return become(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

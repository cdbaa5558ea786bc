"""One and the same program in many clients: a producer that writes numbers, and a member of a group that reads them.

    PROGRAM BOOTSTRAP TOPIC GROUP PARTITIONS

Record N goes to partition N % PARTITIONS, and its value is N. The program prints, a line each:

    ack PARTITION OFFSET N    the producer was told so
    got PARTITION OFFSET N    the consumer was handed it
    error TEXT                what reached the application
    note TEXT                 what the client told of, and went on from by itself
    flushed COUNT             the producer has ended; so many records were sent
    closed                    the consumer has committed and left

The environment may say how it comes in: CLIENT_CA is a file of trusted certificates, CLIENT_PEM one with its own and
its key, CLIENT_USER and CLIENT_PASSWORD log in by SCRAM-SHA-256. The programs in Go, Rust and Node know that.

The first line on standard input ends the producer, the second the consumer.

    python -m tests.peers.programs          builds those that are built, so that no test waits for a compiler

Rust's needs OpenSSL's headers (libssl-dev) beside its compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from .jars import PEERS, ROOT
from .kafka import java

HERE: Final = Path(__file__).parent / "clients"
BUILT: Final = PEERS / "programs"
BUILD_PATIENCE_S: Final = 900
TOOLS: Final = {"go": "go", "rust": "cargo", "node": "npm"}
"""What builds the programs that are built, by language."""
BUILDS: Final = {
    "go": ["go", "build", "-o", "bin/", "./..."],
    "rust": ["cargo", "build", "--quiet"],
    "node": ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"],
}
PYTHONS: Final = ("librdkafka", "aiokafka", "kafka_python")
NAMES: Final = (*PYTHONS, "java", *TOOLS)


def missing(name: str) -> str:
    """Why a program cannot be had here, in one line; empty when it can."""
    tool = TOOLS.get(name)
    if tool is None or shutil.which(tool) is not None:
        return ""
    return f"{tool} is not installed: the client in {name} cannot be built"


def build(name: str) -> Path:
    """The folder of a built program; builds it where its text is another than the built one's. Raises RuntimeError."""
    folder, mark = BUILT / name, BUILT / name / "complete.txt"
    sources = sorted(path for path in (HERE / name).rglob("*") if path.is_file())
    text = "".join(f"{path.relative_to(HERE)}\n{path.read_text()}" for path in sources)
    if mark.exists() and mark.read_text() == text:
        return folder
    mark.unlink(missing_ok=True)
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
    done = subprocess.run(
        BUILDS[name], check=False, cwd=folder, capture_output=True, text=True, timeout=BUILD_PATIENCE_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"the client in {name} cannot be built: " + "\n".join(done.stderr.splitlines()[-15:]))
    mark.write_text(text)
    return folder


def command(name: str) -> list[str]:
    """How a program is started, in the project's folder; its arguments come after."""
    if name in PYTHONS:
        return [sys.executable, "-m", f"tests.peers.clients.client_{name}"]
    if name == "java":
        return java(str(HERE / "Client.java"))
    folder = build(name)
    paths = {"go": ["bin", "client"], "rust": ["target", "debug", "client"], "node": ["client.js"]}
    program = str(folder.joinpath(*paths[name]))
    return ["node", program] if name == "node" else [program]


if __name__ == "__main__":
    for each in TOOLS:
        print(missing(each) or f"the client in {each} is built: {build(each).relative_to(ROOT)}")

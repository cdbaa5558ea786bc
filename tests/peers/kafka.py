"""Apache Kafka beside ours: a combined node in a process of its own, and Kafka's Java tools.

Ports are picked free, everything listens on 127.0.0.1, and the data lives in a directory that the caller gives or in a
temporary one that goes with the node.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from . import class_archive, jars

OWN = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""The heap and the flags of a node that Kafka comes with."""
NODE_HEAP, TOOL_HEAP = "-Xmx1G", "-Xmx256M"
JAVA_MIN = 17
START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 60.0
SHELL_STARTS = 6
SHELL_PATIENCE_S = 30.0
TOOL_PATIENCE_S = 120.0
PORTS = 10_000, 32_768
"""Linux gives outgoing connections those from the second one on. A fixed port of a test lies below the first one."""
PORTS_GIVEN_MAX = 10_000
PORT_LOCKS = Path(tempfile.gettempdir()) / f"headrace-test-ports-{os.getuid()}"
"""Each port is a byte of this file, which a process that was given the port keeps locked."""
_chance = random.SystemRandom()
_given: set[int] = set()
_may_start = True
CLUSTER_ID = "aGVhZHJhY2UtdGVzdHMtMQ"

LOG4J = (
    '<Configuration><Appenders><Console name="out" target="SYSTEM_ERR"><PatternLayout pattern="%d %p %m (%c)%n"/>'
    '</Console></Appenders><Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers></Configuration>'
)


@functools.cache
def java_major(command: str) -> int:
    """The major version of `java` or `javac`; 0 where it does not say. Java 8 calls itself 1.8."""
    said = subprocess.run([command, "-version"], check=False, capture_output=True, text=True)
    found = re.search(r'(?:version "|javac )(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0


def missing() -> str:
    """Why Apache Kafka cannot be run here, in one line; empty when it can."""
    for command in ("java", "javac"):  # some tests compile, as Java's own runner of a source file does
        if shutil.which(command) is None:
            return f"{command} is not installed: a JDK {JAVA_MIN} or later is needed (make system-deps)"
        major = java_major(command)
        if major < JAVA_MIN:
            return f"{command} is of version {major}: {JAVA_MIN} or later is needed (make system-deps)"
    if not jars.KAFKA.complete() and shutil.which("mvn") is None:
        return "Apache Kafka's jars are not here and Maven is not installed (make system-deps)"
    return ""


def class_path(of: jars.JarSet = jars.KAFKA) -> str:
    """The class path of every Kafka tool and of the broker, or of other jars; brings them at the first call."""
    return f"{jars.ensure(of)}/*"


def free_port() -> int:
    """A port as those of `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int) -> range:
    """Consecutive ports that nobody listens on now, and none that the system gives to outgoing connections: a broker
    that stops finds its port free when it starts again. This process is given each once, and while it lives no other
    process of tests is given any of them."""
    if len(_given) > PORTS_GIVEN_MAX:
        fcntl.lockf(_port_locks(), fcntl.LOCK_UN)
        _given.clear()
    while True:
        first = _chance.randrange(PORTS[0], PORTS[1] - count + 1)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and _lock_ports(ports):
            if all(map(_is_free, ports)):
                _given.update(ports)
                return ports
            fcntl.lockf(_port_locks(), fcntl.LOCK_UN, count, first)


def _lock_ports(ports: range) -> bool:
    """Whether no other process has any of them. Before a look at them, which would itself take a port for a moment from
    a broker that starts."""
    try:
        fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports[0])
    except (BlockingIOError, PermissionError):  # either may say that another process has it
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@functools.cache
def _port_locks() -> int:
    """Open as long as this process lives: the system gives its locks up when it closes the file."""
    return os.open(PORT_LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def quick(heap: str = TOOL_HEAP) -> tuple[str, ...]:
    """What Java is told to start Kafka's classes quickly."""
    return (heap, *class_archive.options(class_archive.of_kafka()))


def allow(allowed: bool) -> None:
    """Says whether Java may be started from now on: by tests that are marked `jvm` alone, as `make check` has none."""
    global _may_start
    _may_start = allowed


def java(*arguments: str, flags: tuple[str, ...] | None = None, of: jars.JarSet = jars.KAFKA) -> list[str]:
    """The command line that runs a class of Kafka's, its warnings on standard error; by default `quick`."""
    assert _may_start, "a test that starts Java is marked jvm"
    path = class_path(of)
    logging = jars.PEERS / of.name / "log4j2.xml"
    if not logging.exists():
        logging.write_text(LOG4J)
    options = quick() if flags is None else flags
    return ["java", *options, f"-Dlog4j2.configurationFile={logging}", "-cp", path, *arguments]


def kafka_tool(
    name: str,
    *arguments: str,
    stdin: str | None = None,
    check: bool = True,
    patience_s: float = TOOL_PATIENCE_S,
    flags: tuple[str, ...] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a Java tool, `org.apache.kafka.tools.TopicCommand` for one; `flags` as for `java`. Raises AssertionError with
    its output when it fails and `check` is set."""
    command = java(name, *arguments, flags=flags)
    done = subprocess.run(command, check=False, input=stdin, capture_output=True, text=True, timeout=patience_s)
    if check and done.returncode != 0:
        raise AssertionError(f"{name} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def metadata_shell(snapshot: Path, *commands: str) -> str:
    """What Kafka's MetadataShell says of a snapshot to commands that are typed.

    It is started again where it hangs, as 3 of 15 starts did on one and the same file of Kafka's own format tool: its
    main thread stands in `waitUntilCaughtUp` for ever when the file was read before it began to listen.
    """
    arguments = ("org.apache.kafka.shell.MetadataShell", "--snapshot", str(snapshot))
    typed = "\n".join([*commands, "exit", ""])
    for _ in range(SHELL_STARTS - 1):
        with suppress(subprocess.TimeoutExpired):
            return kafka_tool(*arguments, stdin=typed, patience_s=SHELL_PATIENCE_S).stdout
    return kafka_tool(*arguments, stdin=typed).stdout


class KafkaPeer:
    """One combined Kafka node: formatted if its directory is empty, started, ready when the block is entered.

    `settings` come on top of the smallest sensible server.properties. `directory` outlives the node when it is given.
    `flags` are Java's, by default those of a quick start.
    """

    def __init__(
        self,
        directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        flags: tuple[str, ...] | None = None,
    ) -> None:
        self._own = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="kafka-peer-"))
        self.port = free_port()
        self.controller_port = free_port()
        self.settings = dict(settings or {})
        self.flags = quick(NODE_HEAP) if flags is None else flags
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0

    @property
    def bootstrap(self) -> str:
        """What clients are given to connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """Where the node's own log lines go."""
        return self.directory / "kafka.out"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def properties(self) -> dict[str, str]:
        """The node's server.properties."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }

    def write_properties(self) -> Path:
        """server.properties on disk, for the node and for whoever adopts its directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))
        return path

    def start(self, patience_s: float = START_PATIENCE_S) -> None:
        """Format if need be, start, and wait for the first answer; `started_s` says how long that took."""
        path = self.write_properties()
        if not (self.data / "meta.properties").exists():
            arguments = ("format", "-t", CLUSTER_ID, "-c", str(path))
            kafka_tool("kafka.tools.StorageTool", *arguments)
        command = java("kafka.Kafka", str(path), flags=self.flags)
        before = time.monotonic()
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.directory)
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() - before > patience_s:
                raise RuntimeError("Apache Kafka did not start:\n" + self.log.read_text()[-3000:])
            time.sleep(0.01)
        self.started_s = time.monotonic() - before

    def stop(self) -> None:
        """SIGTERM, and wait: a clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean()

    def _clean(self) -> None:
        if self.process is not None:
            self.kill() if self._own else self.stop()
        if self._own:
            shutil.rmtree(self.directory, ignore_errors=True)


# One Metadata v1 request for no topics: header (key 3, version 1, correlation 7, client id "p"), an empty array.
_METADATA = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x01p\x00\x00\x00\x00"
PROBE = len(_METADATA).to_bytes(4, "big") + _METADATA


def answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether a broker on this port answers a Metadata request and knows a broker."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as link:
            link.sendall(PROBE)
            head = _receive(link, 4)
            body = _receive(link, int.from_bytes(head, "big"))
    except OSError:
        return False
    brokers = int.from_bytes(body[4:8], "big", signed=True)
    return brokers > 0


def _receive(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

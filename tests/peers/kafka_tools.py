"""Kafka's own tools in one Java machine that stays (`KafkaTools.java`): each start takes seconds."""

from __future__ import annotations

import re
import struct
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .kafka import java, quick

PATIENCE_S: Final = 90.0
"""How long one tool may take."""
TOOLS: Final = {
    "acls": "AclCommand",
    "broker-api-versions": "BrokerApiVersionsCommand",
    "client-metrics": "ClientMetricsCommand",
    "cluster": "ClusterTool",
    "console-consumer": "consumer.ConsoleConsumer",
    "console-producer": "ConsoleProducer",
    "console-share-consumer": "consumer.ConsoleShareConsumer",
    "consumer-groups": "consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "ConsumerPerformance",
    "delegation-tokens": "DelegationTokenCommand",
    "delete-records": "DeleteRecordsCommand",
    "dump-log": "DumpLogSegments",
    "e2e-latency": "EndToEndLatency",
    "features": "FeatureCommand",
    "get-offsets": "GetOffsetShell",
    "groups": "GroupsCommand",
    "leader-election": "LeaderElectionCommand",
    "log-dirs": "LogDirsCommand",
    "metadata-quorum": "MetadataQuorumCommand",
    "producer-perf-test": "ProducerPerformance",
    "reassign-partitions": "reassign.ReassignPartitionsCommand",
    "replica-verification": "ReplicaVerificationTool",
    "share-groups": "consumer.group.ShareGroupCommand",
    "streams-application-reset": "StreamsResetter",
    "streams-groups": "streams.StreamsGroupCommand",
    "topics": "TopicCommand",
    "transactions": "TransactionsCommand",
    "verifiable-consumer": "VerifiableConsumer",
    "verifiable-producer": "VerifiableProducer",
}
"""The scripts of Kafka's bin, without `kafka-`, and the class behind each, within org.apache.kafka.tools."""
OTHERS: Final = {"configs": "kafka.admin.ConfigCommand", "storage": "kafka.tools.StorageTool"}


def class_of(tool: str) -> str:
    """The Java class that a script of Kafka's runs."""
    return OTHERS.get(tool) or f"org.apache.kafka.tools.{TOOLS[tool]}"


@dataclass(frozen=True)
class Done:
    """How a tool ended, and what it said on both of its outputs."""

    status: int
    text: str


class KafkaTools:
    """The machine; within a `with` block it runs. What its loggers and its Java say goes to a file of `folder`."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "kafka-tools.out"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = java(str(Path(__file__).with_name("KafkaTools.java")), flags=quick("-Xmx512M"))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def run(self, tool: str, *arguments: str, stdin: str = "", patience_s: float = PATIENCE_S) -> Done:
        """Runs one to its end. Raises AssertionError where it does not end in time: the machine is gone then."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        words = (class_of(tool), *arguments)
        parts = [struct.pack(">i", len(words))]
        for part in (*words, stdin):
            data = part.encode()
            parts += [struct.pack(">i", len(data)), data]
        guard = threading.Timer(patience_s, process.kill)
        guard.start()
        try:
            process.stdin.write(b"".join(parts))
            process.stdin.flush()
            head = process.stdout.read(8)
            assert len(head) == 8, (
                f"{tool} {' '.join(arguments)} did not end in {patience_s} s: {self._log.read_text()}"
            )
            status, size = struct.unpack(">ii", head)
            return Done(status, process.stdout.read(size).decode())
        finally:
            guard.cancel()

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Runs one that succeeds; what it said. Raises AssertionError with that where it fails."""
        done = self.run(tool, *arguments, stdin=stdin)
        assert done.status == 0, f"{tool} {' '.join(arguments)}: exit {done.status}\n{done.text}"
        return done.text


TOKEN = re.compile(r"^(\S{22})\s+(\S{88})\s", re.MULTILINE)
"""A token's id and its HMAC, in what kafka-delegation-tokens prints."""

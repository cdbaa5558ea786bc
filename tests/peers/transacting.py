"""Kafka's own transactional producer in Java, in a process of its own, behind the calls of librdkafka's.

It speaks the `transaction.version` of the cluster, 2 for one, where librdkafka speaks 0: its epoch is raised by the end
of each transaction, and the leader of a partition adds that to the transaction by itself.

The process is told one line a call, and answers one: `done`, or what is to be done about an error (`retriable`,
`abortable`, `fatal`) and its text. Between them it says `ack VALUE` for each record that a leader has taken.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from .jars import ROOT
from .kafka import java, quick
from .programs import HERE

HEAP: Final = "-Xmx96M"

Delivered = Callable[[object, object], None]


def insist(call: Callable[[float], object], patience_s: float) -> None:
    """Calls again where the error says that this is to be done: librdkafka gives up where a coordinator dies."""
    while True:
        try:
            call(patience_s)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class JavaProducer:
    """One producer until `kill`. A record's value is unique in its transaction. Every call raises KafkaException that
    says what is to be done, as librdkafka's does."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._name = settings["transactional.id"]
        self._delivered: dict[str, Delivered] = {}
        arguments = [f"{name}={value}" for name, value in settings.items() if name != "log_level"]
        self._process = subprocess.Popen(
            java(str(HERE / "Transacting.java"), *arguments, flags=quick(HEAP)),
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
        )  # fmt: skip

    def kill(self) -> None:
        """Its process ends as by a power loss: what it has open stays open."""
        self._process.kill()
        self._process.communicate()

    def init_transactions(self, _patience_s: float) -> None:
        """See Producer."""
        self._call("init")

    def begin_transaction(self) -> None:
        """See Producer."""
        self._delivered.clear()
        self._call("begin")

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Delivered) -> None:
        """See Producer; `on_delivery` is called within a later call, and not for a record that failed."""
        self._delivered[value.decode()] = on_delivery
        self._call(f"send {topic} {partition} {value.decode()}")

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], _metadata: object, _patience_s: float) -> None:
        """See Producer; the group has the name of the transactional id, and no members."""
        for each in offsets:
            self._call(f"offset {self._name} {each.topic} {each.partition} {each.offset}")

    def commit_transaction(self, _patience_s: float) -> None:
        """See Producer."""
        self._call("commit")

    def abort_transaction(self, _patience_s: float) -> None:
        """See Producer."""
        self._call("abort")

    def _call(self, line: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        while True:
            said, _, text = self._process.stdout.readline().rstrip("\n").partition(" ")
            if said == "ack":
                self._delivered[text](None, None)
            elif said == "done":
                return
            else:
                assert said, f"the producer's process has ended: {self._process.wait()}"
                raise KafkaException(
                    KafkaError(
                        KafkaError._FAIL, text, fatal=said == "fatal", retriable=said == "retriable",
                        txn_requires_abort=said == "abortable",
                    )
                )  # fmt: skip

"""A broker that coordinates transactions as a test says, on a socket of its own; and a cluster in which it does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Self

from broker.raw import Raw

from headrace.broker.broker import Broker
from headrace.broker.coordinators.verifier import TRANSACTIONS_TOPIC, Verifier
from headrace.broker.telemetry.metrics import Registry
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import decode_request_header, encode_response
from headrace.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

COORDINATOR = 99
PATIENCE_S = 60
NONE = ErrorCode.NONE

Verdict = Callable[[AddPartitionsToTxnTransaction, str, int], ErrorCode | None]
"""What is said of a partition of a transaction; None: nothing is."""


class ScriptedCoordinator:
    """Answers every question as `says`, once `gate` is open."""

    def __init__(self, newest: int = 5) -> None:
        """`newest`: the newest version of AddPartitionsToTxn that it knows."""
        self.says: Verdict = lambda *_: NONE
        self.error = NONE
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.came = threading.Semaphore(0)
        self._newest = newest
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        for each in (self._listening, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def transactions(self) -> list[tuple[str, bool, list[tuple[str, list[int]]]]]:
        """(transactional id, verify only, partitions) of all that was asked."""
        return [
            (each.transactional_id, each.verify_only, [(topic.name, list(topic.partitions)) for topic in each.topics])
            for request in self.asked
            for each in request.transactions
        ]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        link = Raw.__new__(Raw)
        link.socket = connection
        try:
            while True:
                frame = link.receive_frame()
                header, at = decode_request_header(frame)
                if header.api_key == ApiKey.API_VERSIONS:
                    versions = [
                        ApiVersion(api_key=int(ApiKey.API_VERSIONS), min_version=0, max_version=4),
                        ApiVersion(api_key=int(ApiKey.ADD_PARTITIONS_TO_TXN), min_version=0, max_version=self._newest),
                    ]
                    answer: Any = ApiVersionsResponse(api_keys=versions)
                else:
                    assert header.api_key == ApiKey.ADD_PARTITIONS_TO_TXN
                    request = AddPartitionsToTxnRequest.decode(memoryview(frame), header.api_version, at)
                    self.asked.append(request)
                    self.came.release()
                    assert self.gate.wait(PATIENCE_S)
                    answer = self._answer(request)
                reply = encode_response(header.api_key, header.api_version, header.correlation_id, answer)
                connection.sendall(reply)
        except (OSError, ConnectionError):
            return

    def _answer(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if self.error:
            return AddPartitionsToTxnResponse(error_code=self.error)
        results = []
        for each in request.transactions:
            topics = []
            for topic in each.topics:
                said = [(index, self.says(each, topic.name, index)) for index in topic.partitions]
                found = [AddPartitionsToTxnPartitionResult(index, error) for index, error in said if error is not None]
                topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=found))
            results.append(AddPartitionsToTxnResult(each.transactional_id, topics))
        return AddPartitionsToTxnResponse(results_by_transaction=results)


def cluster_of(port: int, leader: int = COORDINATOR, partitions: int = 3) -> Any:
    """An image in which `leader`, at a port, leads all of `__transaction_state`."""
    topic = SimpleNamespace(partitions=[SimpleNamespace(leader=leader)] * partitions)
    endpoint = SimpleNamespace(host="127.0.0.1", port=port)
    return SimpleNamespace(
        topics=SimpleNamespace(by_name=lambda name: topic if name == TRANSACTIONS_TOPIC else None),
        brokers={COORDINATOR: SimpleNamespace(endpoint=lambda _: endpoint)},
    )


def ask_there(broker: Broker, port: int) -> None:
    """From here on `broker` asks the coordinator at a port."""
    broker.verifier.close()
    image = cluster_of(port)
    broker.verifier = Verifier(broker.node, broker.node_id, lambda: broker.config, lambda: image, Registry())

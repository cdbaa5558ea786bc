"""A broker that says what a test tells it to: real sockets and frames, made-up answers.

`FakeBroker` answers ApiVersions and Metadata by itself (one node, one topic) and hands everything else to `answers`,
one callable an API key that takes (request, version) and returns a response, None for silence, or `HANG_UP`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, Final, Self

from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import decode_request_header, encode_response
from headrace.wire.messages import request_class
from headrace.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from headrace.wire.messages.k22_init_producer_id import InitProducerIdResponse

HANG_UP: Final = object()

Answer = Callable[[Any, int], Any]


class FakeBroker:
    """One node with one topic."""

    def __init__(self, *, topic: str = "events", partitions: int = 1, answers: dict[int, Answer] | None = None) -> None:
        self.topic = topic
        self.topic_id = b"headrace-topic-1"
        self.partitions = partitions
        self.answers: dict[int, Answer] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.INIT_PRODUCER_ID: lambda _request, _version: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            **(answers or {}),
        }
        self.seen: list[int] = []
        self.leaderless: set[int] = set()
        self.versions_max: dict[int, int] = {}
        self.features: dict[str, int] = {}
        self.api_versions_max = APIS[ApiKey.API_VERSIONS].max_version
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self._thread.join(5)

    def hang_up(self) -> None:
        """Close every connection."""
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._sockets.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while True:
                try:
                    head = stream.read(4)
                    if len(head) < 4:
                        return
                    frame = stream.read(int.from_bytes(head, "big"))
                    reply = self._reply(frame)
                    if reply is HANG_UP:
                        return
                    if reply is not None:
                        connection.sendall(reply)
                except OSError:
                    return

    def _reply(self, frame: bytes) -> Any:
        header, at = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        self.seen.append(key)
        if key == ApiKey.API_VERSIONS:
            return self._api_versions(version, header.correlation_id)
        request = request_class(key).decode(memoryview(frame), version, at)
        response = self.answers[key](request, version)
        if response is None or response is HANG_UP:
            return response
        return bytes(encode_response(key, version, header.correlation_id, response))

    def _api_versions(self, version: int, correlation_id: int) -> bytes:
        keys = {ApiKey.API_VERSIONS, *self.answers}
        body = ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=APIS[key].min_version,
                    max_version=self.versions_max.get(key, APIS[key].max_version),
                )
                for key in sorted(keys)
            ],
            finalized_features_epoch=1,
            finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in self.features.items()],
        )
        if version > self.api_versions_max:
            body.error_code = ErrorCode.UNSUPPORTED_VERSION
            version = 0
        return bytes(encode_response(ApiKey.API_VERSIONS, version, correlation_id, body))

    def _metadata(self, request: MetadataRequest, _version: int) -> MetadataResponse:
        names = [self.topic] if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            cluster_id="fake",
            controller_id=1,
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            topics=[self._topic(name) for name in names if name is not None],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name != self.topic:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=-1 if index in self.leaderless else 1,
                leader_epoch=3,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for index in range(self.partitions)
        ]
        return MetadataResponseTopic(name=name, topic_id=self.topic_id, partitions=partitions)

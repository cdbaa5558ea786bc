"""Profiles one request of each kind on a broker in this process, and checks how its answer travels back.

A step is one call by the event loop or by the completion queue, or one turn of a coroutine; it belongs to the package
whose code is called. The way down is the step that reads the request. The way back is found from its end: the step that
sends the answer, the step that asked for that step, and so on, up to the report of a worker or to a step that reads.
No package is entered twice on it, and at most two kinds of completion occur. What does not meet that is listed below
with the reason; an entry that is no longer needed is an error too.

    python -m tools.request_paths
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from headrace.broker.net.connection import Connection
from headrace.env.completion import Completion, CompletionQueue
from headrace.env.posix_network import PosixStream
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages import k00_produce as k00
from headrace.wire.messages import k01_fetch as k01
from headrace.wire.messages import k10_find_coordinator as k10
from headrace.wire.messages import k17_sasl_handshake as k17
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k22_init_producer_id as k22
from headrace.wire.messages import k24_add_partitions_to_txn as k24
from headrace.wire.messages import k26_end_txn as k26
from headrace.wire.messages import k36_sasl_authenticate as k36
from headrace.wire.messages import k68_consumer_group_heartbeat as k68
from headrace.wire.messages import response_class
from headrace.wire.records import Record, build_batch

KINDS_MAX: Final = 2
"""Kinds of completion on the way back."""
ATTEMPTS: Final = 4
"""Requests of each kind; the shortest path counts, as work of the broker's own may come between the steps of one."""
PATIENCE_S: Final = 30.0
QUIET_S: Final = 0.05
"""How long the loop is left alone before a request, so that the work of the last one is over."""

EXCEPTIONS: Final[Mapping[str, str]] = {}
"""Paths that do not meet the rules, and why."""

SETTINGS: Final = {
    "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="inside" password="x" user_ann="pencil";'
    ),
    "acks.flush": "before-reply",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Acknowledgements wait for the disk, so that a produce request has a way back on a single broker."""

_SOURCE: Final = f"{Path(inspect.getfile(Connection)).parents[2]}/"
_PLUMBING: Final = frozenset({"env", "wire", "testing", "config"})
"""Packages whose code runs between others, such as completions, and enters none of them for itself."""
_HANDLE_RUN: Final = asyncio.Handle._run.__code__  # noqa: SLF001 - calls every callback of the loop
_HANDLE_MADE: Final = asyncio.Handle.__init__.__code__
_DELIVER: Final = CompletionQueue._deliver.__code__  # noqa: SLF001 - calls every receiver
_ADD: Final = CompletionQueue.add.__code__
_AFTER: Final = CompletionQueue.after.__code__
_TAKE: Final = Completion.take.__code__
_READABLE: Final = Connection._readable.__code__  # noqa: SLF001 - reads every request
_SENDS: Final = (PosixStream.send.__code__, PosixStream.send_slice.__code__)
_RESUMABLE: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@dataclass
class Step:
    """One call by the loop or the completion queue, or one turn of a coroutine."""

    kind: str
    packages: list[str]
    """Of the code that it enters; those of a coroutine and of the coroutines that await it, from the innermost on."""
    functions: list[str]
    """The functions that it enters, one for each of the packages."""
    cause: Step | None
    """The step that asked for this one; None for the report of a worker, for a timer and for one that reads."""
    files: set[str] = field(default_factory=set)


@dataclass
class RequestPath:
    """One request: the step that reads it, and the steps of its way back."""

    name: str
    down: Step
    back: list[Step]

    @property
    def entered(self) -> list[str]:
        """The packages that the way back enters, in order."""
        entered: list[str] = []
        for step in self.back:
            for package in step.packages:
                if package not in _PLUMBING and entered[-1:] != [package]:
                    entered.append(package)
        return entered

    @property
    def kinds(self) -> list[str]:
        """The kinds of completion on the way back."""
        return sorted({step.kind for step in self.back if set(step.packages) - _PLUMBING})

    def violations(self) -> Iterator[str]:
        """Yields the rules that the way back does not meet."""
        twice = sorted({package for package in self.entered if self.entered.count(package) > 1})
        if twice:
            yield f"enters {', '.join(twice)} twice"
        if len(self.kinds) > KINDS_MAX:
            yield f"has {len(self.kinds)} kinds of completion"

    def lines(self) -> Iterator[str]:
        """Yields the text of the path."""
        back = self.back
        yield self.name
        yield f"  down  {_listed(self.down.files)}"
        if not back:
            yield "  back  answered at once"
            return
        yield f"  back  {_listed(set().union(*(step.files for step in back)))}"
        for step in back:
            if set(step.packages) - _PLUMBING:
                entered = [f"{package} ({name})" for package, name in zip(step.packages, step.functions, strict=True)]
                yield f"        {step.kind}: {', '.join(entered)}"


def _listed(files: set[str]) -> str:
    packages = sorted({package_of(each) for each in files} - _PLUMBING)
    return f"{len(files)} files in {len(packages)} packages: {', '.join(packages)}"


def package_of(file: str) -> str:
    """Returns the package of a file below the source folder: that of the broker's packages is the inner one."""
    parts = file.split("/")
    if parts[0] == "broker":
        return parts[1] if len(parts) > 2 else "broker"
    return parts[0]


def name_of(frame: FrameType) -> str:
    """Returns the name of the function that a frame runs, with its class if it has one."""
    owner = frame.f_locals.get("self")
    name = frame.f_code.co_name
    return name if owner is None or name.startswith("<") else f"{type(owner).__name__}.{name}"


class Recorder:
    """The profile function of the loop's thread: collects the steps of one request until its answer is sent."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.is_complete = False
        self._stream: object = None
        self._step: Step | None = None
        self._seen: dict[FrameType, None] = {}
        self._causes: dict[object, Step | None] = {}
        """The steps that asked for what is to run, by handle of the loop, completion, or code and object of a
        callback."""
        self._chain: list[FrameType] = []
        """The coroutines that this turn has resumed, from the outermost on, while it resumes further ones."""

    @property
    def path_back(self) -> list[Step]:
        """The way back: the last step, what caused it, and so on, without a step that reads."""
        back: list[Step] = []
        step: Step | None = self.steps[-1]
        while step is not None and step.kind != "read":
            back.insert(0, step)
            step = step.cause
        return back

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or self.is_complete:
            return
        if frame.f_code is _HANDLE_MADE:
            handle = frame.f_locals["self"]
            if type(handle) is asyncio.Handle:  # not a timer
                self._causes[handle] = self._step
        elif frame.f_code is _HANDLE_RUN:  # a callback of asyncio's own hands the cause on
            handle = frame.f_locals["self"]
            self._step = self._causes.pop(handle, None) if type(handle) is asyncio.Handle else None
        elif frame.f_code.co_filename.startswith(_SOURCE):
            self._enter(frame)

    def _enter(self, frame: FrameType) -> None:
        caller = frame.f_back
        file = frame.f_code.co_filename.removeprefix(_SOURCE)
        called_by = None if caller is None else caller.f_code
        if called_by is _HANDLE_RUN:
            self._begin(frame, file, "" if frame.f_code is _DELIVER else self._kind_of(frame), self._step)
        elif called_by is _DELIVER and frame.f_code is not _TAKE:
            assert caller is not None
            shared = frame.f_code, id(frame.f_locals.get("self"))
            delivered = shared if shared in self._causes else caller.f_locals.get("completion")
            self._begin(frame, file, "completion", self._causes.pop(delivered, None))
        elif called_by is _TAKE and caller is not None and caller.f_back is not None:
            if caller.f_back.f_code is _DELIVER:  # the shape of the answer, and then its receiver
                completion = caller.f_locals["self"]
                self._begin(frame, file, "completion", self._causes.get(completion))
                self._causes[completion] = self._step
        elif self._chain:
            self._resume(frame, file)
        if frame.f_code is _ADD:
            self._causes[frame.f_locals["completion"]] = self._step
        elif frame.f_code is _AFTER:
            callback = frame.f_locals["callback"]
            code = getattr(callback, "__func__", callback).__code__
            self._causes[code, id(getattr(callback, "__self__", None))] = self._step
        if self._step is None:
            return
        self._step.files.add(file)
        if frame.f_code.co_flags & _RESUMABLE:
            self._seen[frame] = None
        if frame.f_code in _SENDS and frame.f_locals["self"] is self._stream:
            self.is_complete = True

    def _kind_of(self, frame: FrameType) -> str:
        if frame.f_code is _READABLE:
            if self._stream is None:
                self._stream = frame.f_locals["self"].stream
            return "read"
        return "coroutine" if frame.f_code.co_flags & inspect.CO_COROUTINE else "callback"

    def _begin(self, frame: FrameType, file: str, kind: str, cause: Step | None) -> None:
        """Begins a step; none with an empty kind, nor before the request is read."""
        self._chain = [frame] if kind == "coroutine" and frame in self._seen else []
        self._step = None
        if kind and self._stream is not None:
            self._step = Step(kind, [package_of(file)], [name_of(frame)], None if kind == "read" else cause)
            self.steps.append(self._step)

    def _resume(self, frame: FrameType, file: str) -> None:
        """Adds a coroutine that the last one awaits."""
        if frame.f_back is self._chain[-1] and frame in self._seen and self._step is not None:
            self._chain.append(frame)
            self._step.packages.insert(0, package_of(file))
            self._step.functions.insert(0, name_of(frame))
        else:
            self._chain = []


class Client:
    """A blocking connection to a broker in this process."""

    def __init__(self, served: TestBroker, listener: str = "INSIDE") -> None:
        port = served.call(lambda broker: next(each.port for each in broker.listeners if each.name == listener))
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._sent = 0

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def send(self, request: Any, version: int) -> None:
        """Sends a request."""
        self._sent += 1
        header = RequestHeader(request.API_KEY, version, self._sent, "paths")
        self._socket.sendall(encode_request(header, request))

    def receive(self, key: int, version: int) -> Any:
        """Returns the next response."""
        frame = self._bytes(int.from_bytes(self._bytes(4), "big"))
        _, at = decode_response_header(frame, key, version)
        return response_class(key).decode(frame, version, at)

    def ask(self, request: Any, version: int) -> Any:
        """Sends a request and returns its response."""
        self.send(request, version)
        return self.receive(request.API_KEY, version)

    def _bytes(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self._socket.recv(size - len(data))
            assert got, "the broker has closed the connection"
            data += got
        return data


@contextmanager
def recorded(served: TestBroker) -> Iterator[Recorder]:
    """Records what the loop of a broker does in the block, once it is quiet."""
    recorder = Recorder()
    time.sleep(QUIET_S)
    served.call(lambda _: sys.setprofile(recorder))
    try:
        yield recorder
    finally:
        served.call(lambda _: sys.setprofile(None))


def _produce(value: bytes) -> k00.ProduceRequest:
    batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
    data = [k00.PartitionProduceData(index=0, records=batch)]
    return k00.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[k00.TopicProduceData("t", partition_data=data)])


def _fetch(offset: int, **fields: Any) -> k01.FetchRequest:
    asked = [k01.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [k01.FetchTopic(topic="t", partitions=asked)]
    return k01.FetchRequest(topics=topics, min_bytes=1, max_bytes=1 << 20, **fields)


def _create(name: str) -> k19.CreateTopicsRequest:
    topic = k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return k19.CreateTopicsRequest(topics=[topic], timeout_ms=5000)


def _until_loaded(ask: Callable[[], Any]) -> Any:
    """Returns the first response without an error: a coordinator may have to load."""
    deadline = time.monotonic() + PATIENCE_S
    while (response := ask()).error_code:
        assert time.monotonic() < deadline, f"error {response.error_code}"
        time.sleep(QUIET_S)
    return response


class Requests:
    """The requests whose paths are recorded, on one broker. Each method returns the recorder of one request."""

    def __init__(self, served: TestBroker) -> None:
        self._served = served
        self._client = Client(served)
        self._number = 0
        assert self._client.ask(_create("t"), 7).topics[0].error_code == 0
        self._ask_until_ready(k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        self._ask_until_ready(k10.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))

    def _ask_until_ready(self, request: k10.FindCoordinatorRequest) -> None:
        _until_loaded(lambda: self._client.ask(request, 4).coordinators[0])

    def _record(self, request: Any, version: int) -> Recorder:
        with recorded(self._served) as recorder:
            response = self._client.ask(request, version)
        assert not getattr(response, "error_code", 0), f"{type(request).__name__}: error {response.error_code}"
        return recorder

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def produce(self) -> Recorder:
        """A batch with acks=all that is acknowledged once it is on disk."""
        return self._record(_produce(b"value"), 9)

    def fetch(self) -> Recorder:
        """A read of records that are there, which opens a session."""
        self._client.ask(_produce(b"value"), 9)
        return self._record(_fetch(0, session_epoch=0), 11)

    def waiting_fetch(self) -> Recorder:
        """A read at the end of the log, which another client's batch ends."""
        end_offset = self._client.ask(_produce(b"value"), 9).responses[0].partition_responses[0].base_offset + 1
        writer = Client(self._served)
        with recorded(self._served) as recorder:
            self._client.send(_fetch(end_offset, max_wait_ms=20_000), 11)
            deadline = time.monotonic() + PATIENCE_S
            while not self._served.call(lambda broker: broker.fetches.waiting):
                assert time.monotonic() < deadline, "the fetch does not wait"
            writer.ask(_produce(b"value"), 9)
            self._client.receive(k01.FetchRequest.API_KEY, 11)
        writer.close()
        return recorder

    def create_topic(self) -> Recorder:
        """A topic of one partition."""
        self._number += 1
        return self._record(_create(f"new-{self._number}"), 7)

    def end_transaction(self) -> Recorder:
        """The commit of a transaction with one partition."""
        self._number += 1
        name = f"x-{self._number}"
        begun = _until_loaded(lambda: self._client.ask(k22.InitProducerIdRequest(name, 60_000), 4))
        producer = begun.producer_id, begun.producer_epoch
        topics = [k24.AddPartitionsToTxnTopic("t", [0])]
        added = self._client.ask(k24.AddPartitionsToTxnRequest([], name, *producer, topics), 3)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        return self._record(k26.EndTxnRequest(name, *producer, True), 4)

    def group_heartbeat(self) -> Recorder:
        """The heartbeat with which a member joins a group (KIP-848)."""
        self._number += 1
        _until_loaded(lambda: self._client.ask(self._join(), 0))
        self._number += 1
        return self._record(self._join(), 0)

    def _join(self) -> k68.ConsumerGroupHeartbeatRequest:
        return k68.ConsumerGroupHeartbeatRequest(
            f"g-{self._number}", "", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        )

    def login(self) -> Recorder:
        """The password of a login by SASL."""
        client = Client(self._served, "CLIENTS")
        assert client.ask(k17.SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        with recorded(self._served) as recorder:
            response = client.ask(k36.SaslAuthenticateRequest(b"\0ann\0pencil"), 2)
        client.close()
        assert response.error_code == 0, response.error_message
        return recorder


RECORDED: Final[Mapping[str, Callable[[Requests], Recorder]]] = {
    "produce": Requests.produce,
    "fetch": Requests.fetch,
    "fetch that waits": Requests.waiting_fetch,
    "create topic": Requests.create_topic,
    "commit of a transaction": Requests.end_transaction,
    "group heartbeat": Requests.group_heartbeat,
    "login": Requests.login,
}


def paths() -> list[RequestPath]:
    """Returns the path of one request of each kind: of several attempts the one with the fewest steps."""
    found: list[RequestPath] = []
    with running_broker(SETTINGS) as served:
        requests = Requests(served)
        for name, record in RECORDED.items():
            attempts = [record(requests) for _ in range(ATTEMPTS)]
            assert all(attempt.is_complete for attempt in attempts), f"{name}: no answer was seen"
            best = min(attempts, key=lambda attempt: len(attempt.path_back))
            found.append(RequestPath(name, best.steps[0], best.path_back))
        requests.close()
    return found


def violations(found: list[RequestPath], exceptions: Mapping[str, str]) -> Iterator[str]:
    """Yields what does not meet a rule, and exceptions that are no longer needed."""
    for path in found:
        wrong = list(path.violations())
        if wrong and path.name not in exceptions:
            yield f"{path.name}: the way back {' and '.join(wrong)}"
        elif not wrong and path.name in exceptions:
            yield f"{path.name}: meets the rules, and is listed still"


def main() -> int:
    """Prints the paths and what does not meet a rule; returns 1 if anything does not."""
    found = paths()
    for path in found:
        for line in path.lines():
            print(line)
        if path.name in EXCEPTIONS:
            print(f"        listed: {EXCEPTIONS[path.name]}")
    wrong = list(violations(found, EXCEPTIONS))
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

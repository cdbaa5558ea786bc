"""No client writes lines of its own into the log, or a terminal's control codes, or fills the disk with it.

Every request of every API, with each of its texts hostile; then what the coordinators have to say of such groups.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import re
import socket
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from broker.raw import Raw
from broker.sasl import SETTINGS, handshake, open_port

from headrace.broker.requests.apis import SERVED
from headrace.broker.telemetry.log_format import TEXT, JsonLines, TextLines
from headrace.broker.telemetry.pace import SUBJECT_LINES_PER_S
from headrace.env.posix_node import VALUE_CHARS_MAX, fields_text
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages import request_class
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.primitives import EncodeError

FORGED = "2026-01-01 00:00:00,000 INFO headrace.authorizer: ACL created by=User:evil"
HOSTILE = (
    f"x\n{FORGED}\r{FORGED}\u2028{FORGED}\u2029{FORGED}"
    "\x85\x0b\x0c\x1c\x1b[2J\x1b]0;owned\x07\x9b31m\x7fa\0b\u202eright to left",
    f"\n{FORGED}",
    'quoted" why="because',
    "e" * 30_000,
)
IDS = ("controls", "newline", "quote", "long")
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ headrace(\.\w+)*: ")
LINE_CHARS_MAX = 20 * VALUE_CHARS_MAX


class Written:
    """What the broker has logged, in both formats."""

    def __init__(self) -> None:
        self.text, self.json = io.StringIO(), io.StringIO()
        self.handlers = [logging.StreamHandler(self.text), logging.StreamHandler(self.json)]
        for handler, formatter in zip(self.handlers, (TextLines(TEXT), JsonLines()), strict=True):
            handler.setFormatter(formatter)

    def check(self) -> list[str]:
        """The lines of the text, each of which is the broker's own."""
        text, lines = self.text.getvalue(), self.text.getvalue().split("\n")[:-1]
        assert text.splitlines() == lines, "a character ends a line"
        for line in lines:
            assert line.isprintable() and len(line) < LINE_CHARS_MAX, line[:200]
            assert LINE.match(line) and not line.startswith(FORGED[:30]), line[:200]
        logged = self.json.getvalue().split("\n")[:-1]
        assert self.json.getvalue().splitlines() == logged and len(logged) == len(lines)
        for line in logged:
            assert line.isascii() and line.isprintable() and len(line) < 6 * LINE_CHARS_MAX
            assert json.loads(line)["event"].isascii()
        return lines


@contextmanager
def lines_of(logger: str) -> Iterator[Written]:
    log, made = logging.getLogger(logger), Written()
    level = log.level
    log.setLevel(logging.DEBUG)
    for handler in made.handlers:
        log.addHandler(handler)
    yield made
    for handler in made.handlers:
        log.removeHandler(handler)
    log.setLevel(level)


@pytest.fixture
def written() -> Iterator[Written]:
    with lines_of("headrace") as made:
        yield made


@pytest.fixture
def quoted() -> Iterator[Written]:
    """The lines of a logger that no broker of this process writes to."""
    with lines_of("headrace.quoted") as made:
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker({**SETTINGS, "group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def hostile(kind: Any, text: str) -> Any:
    """A value of a field, hostile wherever it may be text."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        return [hostile(get_args(kind)[0], text)]
    if kind is str:
        return text
    if kind in (bytes, bytearray, memoryview):
        return text.encode()
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, None, {"Field": list})
        assert isinstance(kind, type)
        return kind(
            **{each.name: hostile(hints.get(each.name, str), text) for each in dataclasses.fields(kind) if each.init}
        )
    return kind() if kind in (int, float, bool) else None


def send(port: int, request: Any, version: int, client_id: str) -> None:
    """Sends a request, and waits until it is answered or refused."""
    header = RequestHeader(request.API_KEY, version, 1, client_id)
    try:
        frame = encode_request(header, request)
    except (EncodeError, OverflowError, TypeError, AttributeError, ValueError):
        return  # the version cannot say it
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(frame)
        link.shutdown(socket.SHUT_WR)
        while link.recv(65_536):
            pass


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_every_api(served: TestBroker, written: Written, text: str) -> None:
    sent = 0
    for key in sorted(SERVED):
        api = APIS[key]
        if "broker" not in api.listeners:
            continue
        request = hostile(request_class(key), text)
        for version in sorted({api.min_version, api.max_version}):
            send(open_port(served), request, version, text[:30_000])
            sent += 1
    assert sent > 50
    written.check()


def told(raw: Raw, group: str) -> None:
    answer = raw.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    assert answer.coordinators[0].error_code == 0


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_groups(served: TestBroker, written: Written, text: str) -> None:
    text = text[:20_000]
    with Raw(open_port(served)) as raw:
        told(raw, text)
        protocol = JoinGroupRequestProtocol(text, b"")
        join = JoinGroupRequest(text, 10_000, 10_000, "", text, text, [protocol], reason=text)
        joined = raw.ask(join, 9)
        assert ErrorCode(joined.error_code) is ErrorCode.NONE
        raw.ask(SyncGroupRequest(text, joined.generation_id, joined.member_id, text, text, text, []), 5)
        again = raw.ask(join, 9)
        assert ErrorCode(again.error_code) is ErrorCode.NONE
        gone = LeaveGroupRequest(text, members=[MemberIdentity(again.member_id, text, text)])
        assert ErrorCode(raw.ask(gone, 5).error_code) is ErrorCode.NONE
        group = "c" + text
        told(raw, group)
        beat = ConsumerGroupHeartbeatRequest(
            group, text, 0, text, None, 10_000, [text], None, None, topic_partitions=[]
        )  # fmt: skip
        assert ErrorCode(raw.ask(beat, 1).error_code) is ErrorCode.NONE
        beat.member_epoch = -1
        assert ErrorCode(raw.ask(beat, 1).error_code) is ErrorCode.NONE
    lines = written.check()
    assert any("group rebalances" in line for line in lines) and any("member is out" in line for line in lines)


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_logins(served: TestBroker, written: Written, text: str) -> None:
    for attempt in (
        lambda raw: raw.ask(ApiVersionsRequest(text, text), 3),
        lambda raw: handshake(raw, text),
        lambda raw: (handshake(raw), raw.ask(request_class(36)(b"\0" + text.encode()[:3_000] + b"\0x"), 2)),
        lambda raw: (handshake(raw, "SCRAM-SHA-256"), raw.ask(request_class(36)(b"n,,n=" + text.encode()[:3_000]), 2)),
    ):
        with Raw(served.port) as raw:
            try:
                attempt(raw)
            except ConnectionError:
                continue
    written.check()


def test_a_group_has_so_many_lines_a_second(served: TestBroker, written: Written) -> None:
    rounds = 200
    with Raw(open_port(served)) as raw:
        told(raw, "chatty")
        for _ in range(rounds):
            protocol = JoinGroupRequestProtocol("p", b"")
            join = JoinGroupRequest("chatty", 10_000, 10_000, "", "i", "consumer", [protocol])
            joined = raw.ask(join, 9)
            left = raw.ask(LeaveGroupRequest("chatty", members=[MemberIdentity(joined.member_id, "i", "r")]), 5)
            assert left.error_code == 0
    lines = [line for line in written.check() if "group=chatty" in line]
    seconds = len({line[:19] for line in lines}) + 1
    assert 0 < len(lines) <= SUBJECT_LINES_PER_S * seconds < rounds


def test_a_traceback_that_quotes_a_client(quoted: Written) -> None:
    log = logging.getLogger("headrace.quoted")
    try:
        raise ValueError(f"no such name: x\n{FORGED}\x1b[2J")
    except ValueError as error:
        log.error("defect in %s: %s", "a test", fields_text(f"{error!r}", {"client": FORGED}), exc_info=error)
    first, *others = quoted.text.getvalue().splitlines()
    assert LINE.match(first) and first.isprintable()
    assert others and all(line.startswith("    ") and line.isprintable() for line in others)
    assert any(FORGED in line for line in others), "it is quoted, and looks like no line of the log"


def test_a_traceback_that_another_handler_has_formatted() -> None:
    """Python keeps its text in the record: that of a handler of the program which runs the broker is not escaped."""
    try:
        raise ValueError(f"no such name: x\n{FORGED}\x1b[2J")
    except ValueError:
        record = logging.LogRecord("headrace.defects", logging.ERROR, "", 0, "defect", (), sys.exc_info())
    others_text = logging.Formatter().format(record)
    _, *lines = TextLines(TEXT).format(record).splitlines()
    assert lines and all(line.startswith("    ") and line.isprintable() for line in lines)
    assert logging.Formatter().format(record) == others_text


def test_a_line_of_another_library(quoted: Written) -> None:
    logging.getLogger("headrace.quoted").warning("quoted: %s", HOSTILE[1])
    (line,) = quoted.check()
    assert line.endswith(f"quoted: \\n{FORGED}")

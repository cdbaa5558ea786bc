"""The process beside the broker's: answers, refusals, deaths, and an end without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.waiting import until

from headrace.env.posix_helper import NICENESS, PosixHelper
from headrace.env.workers import HelperDied

PATIENCE_S = 60.0


@pytest.fixture
def helper() -> Iterator[PosixHelper]:
    helper = PosixHelper()
    yield helper
    helper.close()


def test_a_function_runs_in_one_other_process_at_a_low_priority(helper: PosixHelper) -> None:
    there = helper.call(os.getpid)
    assert there != os.getpid()
    assert helper.call(os.getpid) == there
    assert helper.call(os.getpriority, os.PRIO_PROCESS, 0) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)


def test_large_arguments_and_results(helper: PosixHelper) -> None:
    data = os.urandom(3_000_000)
    assert helper.call(bytes.join, b"", [data, data]) == data + data


def test_what_the_function_raises_is_raised(helper: PosixHelper) -> None:
    with pytest.raises(FileNotFoundError):
        helper.call(os.stat, "/no/such/file")
    assert helper.call(len, "abc") == 3


def test_its_death_is_said_and_the_next_call_starts_another(helper: PosixHelper) -> None:
    there = helper.call(os.getpid)
    with pytest.raises(HelperDied, match="status 3"):
        helper.call(os._exit, 3)
    assert helper.call(os.getpid) != there


def test_one_that_was_killed_between_two_calls_is_replaced(helper: PosixHelper) -> None:
    there = helper.call(os.getpid)
    os.kill(there, signal.SIGKILL)
    until(lambda: "Z" in Path(f"/proc/{there}/stat").read_text().split(")")[1])
    assert helper.call(os.getpid) != there
    assert not Path(f"/proc/{there}").exists(), "it was reaped"


def test_one_without_work_ends() -> None:
    helper = PosixHelper(idle_s=0.05)
    there = helper.call(os.getpid)
    until(lambda: "Z" in Path(f"/proc/{there}/stat").read_text().split(")")[1])
    assert helper.call(len, "abc") == 3
    helper.close()


def test_signals_of_the_terminal_are_not_for_it(helper: PosixHelper) -> None:
    there = helper.call(os.getpid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(there, number)
    assert helper.call(os.getpid) == there


def test_closing_ends_it_at_once_and_tells_those_that_wait(helper: PosixHelper) -> None:
    there = helper.call(os.getpid)
    told: list[BaseException] = []

    def wait() -> None:
        try:
            helper.call(time.sleep, 600)
        except HelperDied as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(helper._lock.locked)
    begun = time.monotonic()
    helper.close()
    waiting.join(PATIENCE_S)
    assert told
    assert time.monotonic() - begun < PATIENCE_S
    assert not Path(f"/proc/{there}").exists()
    with pytest.raises(HelperDied):
        helper.call(len, "abc")


def test_no_process_can_be_started(helper: PosixHelper, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", none)
        with pytest.raises(OSError, match="Too many") as raised:
            helper.call(len, "abc")
        assert not isinstance(raised.value, HelperDied)
    assert helper.call(len, "abc") == 3


def test_it_ends_with_a_broker_that_was_killed(tmp_path: Path) -> None:
    program = "import os; from headrace.env.posix_helper import PosixHelper as H; h = H()\n"
    program += "print(h.call(os.getpid), flush=True); os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    there = int(done.stdout)
    until(lambda: not Path(f"/proc/{there}").exists())

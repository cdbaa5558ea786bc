"""How commands start and end, without a broker or as real processes."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.cli import COMMANDS, main

HEAVY = (
    "rich",
    "headrace.client",
    "headrace.wire",
    "headrace.broker",
    "headrace.log",
    "cramjam",
    "re2",
    "asyncio",
    "json",
)


def test_help_imports_next_to_nothing() -> None:
    code = "import sys; from headrace.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not {name for name in loaded if name.startswith(HEAVY)}


def test_help_shows_whole_sentences() -> None:
    for name in COMMANDS:
        assert "..." not in CliRunner().invoke(main, [name, "--help"]).stdout.partition("Commands:")[2]


def test_every_command_has_help() -> None:
    for name in COMMANDS:
        done = CliRunner().invoke(main, [name, "--help"])
        assert done.exit_code == 0
        assert "Usage:" in done.stdout
    done = CliRunner().invoke(main, ["--help"])
    for name, (_, about) in COMMANDS.items():
        assert name in done.stdout
        assert about in done.stdout


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*path, name))


def test_every_command_that_says_something_says_it_in_json_too() -> None:
    found = dict(leaves(main, ()))
    assert len(found) > 15
    without = {path for path, command in found.items() if all("--json" not in each.opts for each in command.params)}
    assert without == {("serve",), ("completion",)}


def test_nobody_there_is_one_line_and_exit_code_3() -> None:
    started = time.monotonic()
    done = CliRunner().invoke(main, ["topic", "list", "-b", "127.0.0.1:1"])
    assert done.exit_code == 3
    assert done.stderr.startswith("headrace: no broker answers: 127.0.0.1:1")
    assert len(done.stderr.splitlines()) == 1
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("address", ["nonsense:port", ":", "", "a:b:c", "host:99999", "::1:9092", "fe80::1"])
def test_an_address_that_is_none_is_wrong_usage(address: str) -> None:
    assert CliRunner().invoke(main, ["topic", "list", "-b", address]).exit_code == 2


def test_unknown_commands_and_options_are_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["tpoic"]).exit_code == 2
    assert CliRunner().invoke(main, ["topic", "list", "--colour"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "command", "words"),
    [
        (["tpoic"], "headrace", "No such command 'tpoic'. Did you mean 'topic'?"),
        (["--colour"], "headrace", "No such option '--colour'"),
        (["topic", "lst"], "headrace topic", "No such command 'lst'. Did you mean 'list'?"),
        (["topic", "create"], "headrace topic create", "Missing argument 'NAME...'"),
        (["topic", "create", "t", "-p", "99999999999"], "headrace topic create", "is not in the range"),
        (["topic", "create", "t", "--set", "x"], "headrace topic create", "'x' is not KEY=VALUE"),
        (["topic", "trim", "t", "--before", "9" * 20, "-y"], "headrace topic trim", "neither an offset nor latest"),
        (["group", "delete", "g"], "headrace group delete", "Add --yes"),
        (["produce", "t", "-k", "\\"], "headrace produce", "write a backslash as"),
        (["produce", "t", "--timeout", "inf"], "headrace produce", "is not in the range"),
        (["consume", "t", "--json", "--format", "hex"], "headrace consume", "choose one of --format and --json"),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_to_read_on(arguments: list[str], command: str, words: str) -> None:
    done = CliRunner(env={"HEADRACE_BOOTSTRAP": "127.0.0.1:1"}).invoke(main, arguments, prog_name="headrace")
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("headrace: ") and words in line
    assert line.endswith(f"{' ' if words.endswith('?') else '; '}`{command} --help` lists what the command takes")


def test_a_broken_pipe_is_silent(bootstrap: str, topic: str) -> None:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-m", "headrace.cli"]
    subprocess.run([*command, "topic", "create", topic, "-p", "1"], env=environment, check=True, capture_output=True)
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    subprocess.run([*command, "produce", topic], env=environment, check=True, input=lines, capture_output=True)
    reader = subprocess.Popen(
        [*command, "consume", topic], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"0\n"
    reader.stdout.close()
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    assert reader.wait(60) == 141


FULL = Path("/dev/full")
"""Linux: a file on a full disk."""


@pytest.mark.parametrize("arguments", [["consume", "{topic}"], ["topic", "list", "--json"], ["--help"]])
def test_a_full_disk_is_one_line(bootstrap: str, topic: str, arguments: list[str]) -> None:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-m", "headrace.cli"]
    subprocess.run([*command, "topic", "create", topic, "-p", "1"], env=environment, check=True, capture_output=True)
    subprocess.run([*command, "produce", topic], env=environment, check=True, input=b"a\n", capture_output=True)
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*command, *(text.format(topic=topic) for text in arguments)],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "headrace: cannot write the output: No space left on device\n")


def on_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        written = bytearray()
        try:
            while part := os.read(ours, 1 << 16):
                written += part
        except OSError as error:  # so Linux says that nobody has the other end any more
            assert error.errno == errno.EIO
        finally:
            os.close(ours)
        assert process.wait(60) == 0
    return bytes(written).replace(b"\r\n", b"\n")


def test_bytes_that_a_terminal_would_obey_are_shown_and_not_sent(bootstrap: str, topic: str) -> None:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-m", "headrace.cli"]
    subprocess.run([*command, "topic", "create", topic, "-p", "1"], env=environment, check=True, capture_output=True)
    lines = "plain\tand zürich\n".encode() + b"\x1b[2Jcleared\xff\x00\n" + "c1 \x9b and \x7f\n".encode()
    subprocess.run([*command, "produce", topic], env=environment, check=True, input=lines, capture_output=True)
    shown = on_a_terminal([*command, "consume", topic, "--format", "text"], environment)
    assert shown == "plain\tand zürich\n\\x1b[2Jcleared\\xff\\x00\nc1 \\x9b and \\x7f\n".encode()
    (first, *_) = on_a_terminal([*command, "consume", topic], environment).decode().splitlines()
    assert first.endswith(f"  {topic}[0]@0  plain\tand zürich"), "a person reads when and where by default"
    for form in ("json", "hex"):
        shown = on_a_terminal([*command, "consume", topic, "--format", form], environment)
        assert not set(shown.decode()) & set("\x1b\x00\x9b\x7f")
    raw = subprocess.run([*command, "consume", topic], env=environment, check=True, capture_output=True)
    assert raw.stdout == lines, "what is no terminal gets the bytes as they are"


@pytest.mark.slow
def test_an_interrupted_member_commits_and_leaves(bootstrap: str, topic: str) -> None:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-m", "headrace.cli"]
    subprocess.run([*command, "topic", "create", topic, "-p", "1"], env=environment, check=True, capture_output=True)
    for signal, lines in ((2, [b"a\n", b"b\n"]), (15, [b"c\n"])):
        subprocess.run([*command, "produce", topic], env=environment, check=True, input=b"".join(lines))
        follower = subprocess.Popen(
            [*command, "consume", topic, "-f", "-g", topic], env=environment, stdout=subprocess.PIPE
        )
        assert follower.stdout is not None
        assert [follower.stdout.readline() for _ in lines] == lines
        follower.send_signal(signal)
        assert follower.wait(60) in (130, 143)
        follower.stdout.close()
        shown = subprocess.run(
            [*command, "group", "describe", topic], env=environment, check=True, capture_output=True, text=True
        )
        assert ": Empty, 0 members" in shown.stdout
        assert "total lag 0" in shown.stdout

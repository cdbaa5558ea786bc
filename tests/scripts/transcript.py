"""Transcripts: what a machine is told, and beneath it what came of that. The scripts lie in folders beside this file.

    # What the block is about, for people.
    join g a topics=t
    time 5000
    ----
    a joins: MEMBER_ID_REQUIRED member=a-1
    at 3000
    # group g is empty

A block is commands, a line `----` and the trace that all of them left; an empty line ends it. Lines that begin with `#`
and stand before a block are comments. A command is a verb and words, parted and quoted as in a shell: a word NAME=VALUE
is an argument of that name, a word --NAME a switch, and all others are plain. A verb `delete-offsets` is the method
`do_delete_offsets` of the folder's machine, see `test_transcripts.MACHINES`.

`pytest tests/scripts --rewrite` writes the traces of now into the scripts; the difference is what to review.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

DIVIDER = "----"


class Words:
    """What stands behind a command's verb.

    `ordered` is all of it; `plain`, `named` and `switches` (without their dashes) are its words by kind.
    """

    def __init__(self, ordered: list[str]) -> None:
        self.ordered = ordered
        self.switches = {word[2:] for word in ordered if word.startswith("--")}
        arguments = [word for word in ordered if not word.startswith("--")]
        self.plain = [word for word in arguments if "=" not in word]
        self.named = dict(word.split("=", 1) for word in arguments if "=" in word)


class Scripted:
    """A machine that scripts drive: a method `do_VERB(words)` for each command, which says what came of it."""

    def __init__(self) -> None:
        self.trace: list[str] = []

    def do(self, line: str) -> list[str]:
        """Runs one command; returns its trace."""
        self.trace = []
        verb, *words = shlex.split(line)
        getattr(self, f"do_{verb.replace('-', '_')}")(Words(words))
        self.after_each()
        return self.trace

    def say(self, line: str) -> None:
        self.trace.append(line)

    def after_each(self) -> None:
        """What happens behind every command, whatever it is."""

    @contextmanager
    def at(self, now_ms: int) -> Iterator[None]:
        """The time stands above what is said meanwhile, if anything is."""
        before = len(self.trace)
        yield
        if len(self.trace) > before:
            self.trace.insert(before, f"at {now_ms}")


def rewritten(text: str, machine: Scripted) -> str:
    """The script `text` with the traces that a fresh machine leaves."""
    out: list[str] = []
    for prose, commands in _blocks(text):
        out.extend(prose)
        if not commands:
            continue
        out.extend([*commands, DIVIDER])
        for command in commands:
            out.extend(machine.do(command))
        out.append("")
    while out and not out[-1].strip():
        out.pop()
    return "\n".join(out).replace("\n\n\n", "\n\n") + "\n"


def commands_of(text: str) -> list[str]:
    """The commands of a script, without what came of them."""
    return [command for _, commands in _blocks(text) for command in commands]


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """(comments and empty lines, commands) of each block."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        prose: list[str] = []
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith("#")):
            prose.append(lines[at])
            at += 1
        commands: list[str] = []
        while at < len(lines) and lines[at] != DIVIDER:
            commands.append(lines[at])
            at += 1
        while at < len(lines) and lines[at].strip():
            at += 1
        yield prose, commands

"""Asks KafkaNames, a small Java program beside this file, what Java and Kafka make of names."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from peers import kafka

PATIENCE_S = 120


def word(of: bytes | str) -> str:
    """A word of a question."""
    data = of.encode() if isinstance(of, str) else of
    return data.hex() or "-"


def ask(questions: Sequence[str]) -> list[str]:
    """The answers, one a question: `=` and a text, or one word."""
    source = Path(__file__).with_name("KafkaNames.java")
    command = kafka.java(str(source), flags=kafka.quick("-Xmx512M"))
    done = subprocess.run(
        command, input="\n".join(questions), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions), done.stderr[-2000:]
    return ["=" + bytes.fromhex(each[1:]).decode() if each.startswith("=") else each for each in answers]

"""TAB in a real shell: commands, options, and the names of topics and groups of both brokers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.completion import SHELLS


def completed(bootstrap: str, *words: str) -> list[str]:
    """What bash offers for the last of `words`, by the script that the command prints."""
    script = CliRunner().invoke(main, ["completion", "bash"], prog_name="headrace").stdout
    quoted = " ".join(f"'{word}'" for word in ("headrace", *words))
    asked = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _headrace_completion headrace\n"
    asked += "printf '%s\\n' \"${COMPREPLY[@]}\""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", asked], env={**os.environ, "PATH": path, "HEADRACE_BOOTSTRAP": bootstrap},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str) -> None:
    assert "_HEADRACE_COMPLETE" in CliRunner().invoke(main, ["completion", shell], prog_name="headrace").stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed (make system-deps)")
def test_commands_options_topics_and_groups(run: Any, bootstrap: str, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin="a\n")
    run("consume", topic, "--group", topic)
    assert completed(bootstrap, "cons") == ["consume"]
    assert "--from" in completed(bootstrap, "consume", "--f")
    assert topic in completed(bootstrap, "consume", topic[:-1])
    assert topic in completed(bootstrap, "topic", "describe", topic)
    assert topic in completed(bootstrap, "group", "describe", topic)
    assert "__consumer_offsets" not in completed(bootstrap, "consume", "")
    assert "__consumer_offsets" in completed(bootstrap, "consume", "__cons")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed (make system-deps)")
def test_a_cluster_that_is_away_offers_no_names_and_no_error() -> None:
    assert completed("127.0.0.1:1", "consume", "") == []
    assert completed("nonsense", "group", "describe", "") == []

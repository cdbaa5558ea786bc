"""`headrace pipeline run mirror`, as far as it goes without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace.testing
from headrace.cli import main
from headrace.client import admin


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker, broker.client() as client:
        for name in ("rides", "fares", "old.rides"):
            admin.create_topic(client, name, partitions=1)
        yield broker.bootstrap


def refused(checkpoint: Path, *arguments: str, code: int) -> str:
    command = ["pipeline", "run", "mirror", "--checkpoint", str(checkpoint), *arguments]
    done = CliRunner().invoke(main, command, prog_name="headrace")
    assert done.exit_code == code, (done.output, done.exception)
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either --topics or --pattern"),
        (["--topics", "a", "--pattern", "b"], "give either --topics or --pattern"),
        (["--topics", " , "], "The option 'subscribePattern' is empty"),
        (["--pattern", "("], "The option 'subscribePattern' is not a regular expression"),
        (["--topics", "a", "--groups", "["], "--groups: '['"),
        (["--topics", "a", "--starting-offsets", "first"], "'startingOffsets' must be 'earliest' or 'latest'"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], words: str) -> None:
    assert words in refused(tmp_path, "--to-bootstrap", "127.0.0.1:1", *arguments, code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topics", "rides"], "are one cluster: a copy there needs names of its own (--prefix)"),
        (["--pattern", ".*", "--prefix", "copy."], "the run would copy its copy copy.fares again"),
        (["--topics", "rides,old.rides", "--prefix", "old."], "the run would copy its copy old.rides again"),
    ],
)
def test_a_copy_onto_itself_is_refused(bootstrap: str, tmp_path: Path, arguments: list[str], words: str) -> None:
    assert words in refused(tmp_path, "-b", bootstrap, "--to-bootstrap", bootstrap, *arguments, code=1)
    assert not (tmp_path / "pipeline.json").exists()


def test_a_topic_that_is_not_there_and_a_cluster_that_is_not_there(bootstrap: str, tmp_path: Path) -> None:
    arguments = ["-b", bootstrap, "--to-bootstrap", "127.0.0.1:1", "--topics"]
    assert "topic nowhere" in refused(tmp_path, *arguments, "nowhere", code=4)
    assert "no broker answers" in refused(tmp_path, *arguments, "rides", code=3)

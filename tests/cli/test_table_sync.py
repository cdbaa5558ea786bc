"""`headrace pipeline run table-sync`, as far as it goes without Spark: what is wrong is said before it starts."""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace.testing
from headrace.cli import main
from headrace.client import admin

VALUE = ("--value-schema", "name STRING")
BY = ("--key-column", "id", "--by", "at")
NOBODY = ("-b", "127.0.0.1:1")


def run(*arguments: str, code: int) -> Result:
    done = CliRunner().invoke(main, ["pipeline", "run", "table-sync", *arguments], prog_name="headrace")
    assert done.exit_code == code, (done.output, done.exception)
    assert len(done.stderr.splitlines()) == 1
    return done


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "a", "--to", "b"], "--from and --to are both topics"),
        (["--from", "sqlite:a#b", "--to", "parquet:c"], "--from and --to are both tables"),
        (["--from", "a", "--to", "mysql:b#c"], "mysql: is not the address of a table"),
        (["--from", "a", "--to", "postgresql://u:secret@h/d"], "the address names no table"),
        (["--from", "a", "--to", "parquet:b"], "the columns of the value are missing"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "--key-schema", "id"], "the key's columns must look like"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "--by", "at"], "--by works only from a table"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "-p", "2"], "--partitions works only from a table"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "--starting-offsets", "x"], "'startingOffsets' must be"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "--set", "x"], "'x' is not KEY=VALUE"),
        (["--from", "sqlite:a#b", "--to", "c"], "give --key-column and --by"),
        (["--from", "sqlite:a#b", "--to", "c", *BY, *VALUE], "--value-schema works"),
        (["--from", "sqlite:a#b", "--to", "c", "--starting-offsets", "latest"], "--starting-offsets works only to"),
        (["--from", "sqlite:a#b", "--to", "c", *BY, "--look-back", "x"], "neither a time"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "--exclude-column", "x"], "--exclude-column works only from"),
        (["--from", "a", "--to", "parquet:b", *VALUE, "--dead-letters", "a"], "--dead-letters names the topic that"),
        (["--from", "sqlite:a#b", "--to", "c", *BY, "--dead-letters", "d"], "--dead-letters works only to a table"),
        (
            ["--from", "sqlite:a#b", "--to", "c", *BY, "--include-column", "x", "--exclude-column", "y"],
            "choose one of --include-column and --exclude-column",
        ),
        (["--from", "parquet:a", "--to", "c", *BY], "cannot read from a table of Parquet files"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run(*arguments, "--checkpoint", str(tmp_path), *NOBODY, code=2)
    assert words in done.stderr and "secret" not in done.stderr


def test_without_psycopg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    without = lambda name, *rest: None if name == "psycopg" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    done = run("--from", "a", "--to", "postgresql://h/d#t", "--checkpoint", str(tmp_path), code=1)
    assert done.stderr == "headrace: psycopg is not installed; `pip install headrace-pipelines[postgres]` installs it\n"


def test_a_table_that_does_not_fit_and_nobody_there(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    arguments = ("--from", "items", "--to", f"sqlite:{file}#items", *VALUE, "--checkpoint", str(tmp_path / "state"))
    with headrace.testing.broker({"auto.create.topics.enable": "false"}) as broker:
        done = run(*arguments, "-b", broker.bootstrap, code=4)
        assert "topic items" in done.stderr
        with broker.client() as client:
            admin.create_topic(client, "items")
        done = run(*arguments, "--key-schema", "id BIGINT", "-b", broker.bootstrap, code=1)
        assert done.stderr == f"headrace: sqlite:{file}#items has no column 'name'; it has id\n"
        back = ("--from", f"sqlite:{file}#things", "--to", "new", "--key-column", "id", "--by", "id")
        done = run(*back, "--checkpoint", str(tmp_path / "other"), "-b", broker.bootstrap, code=1)
        assert done.stderr == f"headrace: sqlite:{file}#things does not exist\n"
        with broker.client() as client:
            assert [topic.name for topic in client.topics()] == ["items"]
    run(*arguments, *NOBODY, code=3)


def test_a_checkpoint_of_another_table(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "offsets").mkdir(parents=True)
    (state / "pipeline.json").write_text('{"pipeline": "table-sync", "from": "a", "to": "parquet:/elsewhere"}')
    done = run("--from", "a", "--to", f"parquet:{tmp_path}", *VALUE, "--checkpoint", str(state), *NOBODY, code=1)
    assert f"the checkpoint {state} belongs to " in done.stderr and "parquet:/elsewhere" in done.stderr

"""`headrace storage`: what formatting leaves and refuses, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.broker.quorum.metadata_start import open_quorum
from headrace.broker.storage.storage_format import StorageError
from headrace.cli import main
from headrace.config import BrokerConfig
from headrace.env.posix import PosixDisk
from headrace.env.posix_node import PosixNode
from headrace.metadata.bootstrap import BOOTSTRAP_FILE_NAME
from headrace.metadata.framing import decode_record
from headrace.metadata.scram_credentials import SCRAM_SHA_256, credential_in, make_credential
from headrace.raft.messages import Position
from headrace.raft.voter_set import VoterSet
from headrace.wire import uuids
from headrace.wire.batch import iter_headers
from headrace.wire.messages.metadata_records import UserScramCredentialRecord
from headrace.wire.records import decode_batch

CLUSTER = "dGhyZWUtY29udHJvbGxlcg"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "node.id=2\nprocess.roles=controller\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=2@127.0.0.1:9093,3@127.0.0.1:9094\n"
        f"log.dirs={tmp_path / 'one'},{tmp_path / 'two'}\n"
    )
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["storage", *map(str, arguments)])


def test_a_node_is_formatted_once(file: Path, tmp_path: Path) -> None:
    done = run("format", "-t", CLUSTER, "-c", file)
    assert done.exit_code == 0, done.output
    assert [line.split()[1] for line in done.stdout.splitlines()] == [str(tmp_path / "one"), str(tmp_path / "two")]
    again = run("format", "-t", CLUSTER, "-c", file)
    assert again.exit_code == 1 and len(again.stderr.splitlines()) == 1 and "--ignore-formatted" in again.stderr
    ignored = run("format", "-t", CLUSTER, "-c", file, "-g", "--json")
    assert json.loads(ignored.stdout) == {"cluster": CLUSTER, "formatted": []}
    other = run("format", "-t", "another", "-c", file, "-g")
    assert other.exit_code == 1 and f"belongs to cluster {CLUSTER}" in other.stderr


def test_a_directory_that_was_added_is_formatted_beside_the_others(file: Path, tmp_path: Path) -> None:
    assert run("format", "-t", CLUSTER, "-c", file).exit_code == 0
    file.write_text(file.read_text().rstrip() + f",{tmp_path / 'three'}\n")
    done = run("format", "-t", CLUSTER, "-c", file, "-g", "--json")
    assert json.loads(done.stdout)["formatted"] == [str(tmp_path / "three")]


async def test_a_replaced_first_disk_is_formatted_beside_the_others(file: Path, tmp_path: Path) -> None:
    """What `format` says leads out, and the node does not vote before it has what the other controllers have."""
    note = tmp_path / "one" / "metadata-incomplete"
    assert run("format", "-t", CLUSTER, "-c", file).exit_code == 0
    assert not note.exists()
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(StorageError, match=r"or the first of log\.dirs .*headrace storage format --ignore-formatted"):
        open_quorum(PosixNode(), BrokerConfig.load(properties_of(file)))
    done = run("format", "-t", CLUSTER, "-c", file, "-g", "--json")
    assert json.loads(done.stdout)["formatted"] == [str(tmp_path / "one")]
    quorum, _ = open_quorum(PosixNode(), BrokerConfig.load(properties_of(file)))
    assert note.exists() and not quorum.raft.may_campaign


async def test_a_replaced_first_disk_of_a_voter_that_the_metadata_name_joins(dynamic: Path, tmp_path: Path) -> None:
    assert run("format", "-t", CLUSTER, "-c", dynamic).exit_code == 0
    shutil.rmtree(tmp_path / "one")
    alone = run("format", "-t", CLUSTER, "-c", dynamic, "-g")
    assert alone.exit_code == 1 and "restore it from a copy" in alone.stderr and "log.dirs" in alone.stderr
    with dynamic.open("a") as stream:
        stream.write("controller.quorum.bootstrap.servers=127.0.0.1:9094\n")
    for options in ((), ("--standalone",)):
        founds = run("format", "-t", CLUSTER, "-c", dynamic, "-g", *options)
        assert founds.exit_code == 1 and "--no-initial-controllers" in founds.stderr
    assert run("format", "-t", CLUSTER, "-c", dynamic, "-g", "--no-initial-controllers").exit_code == 0
    quorum, _ = open_quorum(PosixNode(), BrokerConfig.load(properties_of(dynamic)))
    assert not quorum.voters and not quorum.raft.may_campaign


def test_directories_in_another_order_are_named(file: Path, tmp_path: Path) -> None:
    assert run("format", "-t", CLUSTER, "-c", file).exit_code == 0
    (tmp_path / "one" / "__cluster_metadata-0").mkdir(exist_ok=True)
    file.write_text(file.read_text().replace(f"log.dirs={tmp_path / 'one'}", f"log.dirs={tmp_path / 'zero'}"))
    file.write_text(file.read_text().rstrip() + f",{tmp_path / 'one'}\n")
    moved = run("format", "-t", CLUSTER, "-c", file, "-g")
    assert moved.exit_code == 1 and f"set metadata.log.dir={tmp_path / 'one'}" in moved.stderr
    assert not (tmp_path / "zero" / "metadata-incomplete").exists()


def properties_of(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_info_says_what_a_directory_belongs_to(file: Path, tmp_path: Path) -> None:
    before = json.loads(run("info", "-c", file, "--json").stdout)
    assert before == [{"directory": str(tmp_path / name), "formatted": False} for name in ("one", "two")]
    run("format", "-t", CLUSTER, "-c", file)
    found = json.loads(run("info", "-c", file, "--json").stdout)
    assert {(each["cluster"], each["node"], each["formatted"]) for each in found} == {(CLUSTER, 2, True)}
    assert len({uuids.from_text(each["directory_id"]) for each in found}) == 2
    shown = run("info", "-c", file)
    assert shown.exit_code == 0 and CLUSTER in shown.stdout
    (tmp_path / "one" / "meta.properties").write_text("nonsense")
    damaged = run("info", "-c", file)
    assert damaged.exit_code == 1 and "meta.properties" in damaged.stderr


def test_an_id_is_drawn() -> None:
    drawn = {run("random-uuid").stdout.strip(), json.loads(run("random-uuid", "--json").stdout)["id"]}
    assert len(drawn) == 2 and all(len(uuids.from_text(each)) == 16 for each in drawn)


@pytest.mark.parametrize("cluster_id", ["", "a b", "a\nnode.id=9", "a/b"])
def test_an_id_that_is_none_is_wrong_usage(file: Path, tmp_path: Path, cluster_id: str) -> None:
    assert run("format", "-t", cluster_id, "-c", file).exit_code == 2
    assert not (tmp_path / "one").exists()


def test_a_file_that_is_not_there_or_cannot_be(file: Path, tmp_path: Path) -> None:
    assert run("format", "-t", CLUSTER, "-c", tmp_path / "none").exit_code == 4
    file.write_text(file.read_text().replace("2@", "4@"))
    wrong = run("format", "-t", CLUSTER, "-c", file)
    assert wrong.exit_code == 1 and "controller.quorum.voters" in wrong.stderr


def test_a_place_that_takes_no_directory_is_one_line(file: Path, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a file")
    done = run("format", "-t", CLUSTER, "-c", file)
    assert done.exit_code == 1 and done.stderr == f"headrace: {tmp_path / 'one'}: {os.strerror(17)}\n"


DIRECTORIES = [uuids.to_text(bytes([node]) * 16) for node in range(4)]
SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture
def dynamic(file: Path) -> Path:
    """The same node without fixed voters."""
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{line}\n" for line in lines if not line.startswith("controller.quorum.voters")))
    return file


def first_voters(directory: Path) -> VoterSet:
    return SnapshotFiles(PosixDisk(), str(directory / "__cluster_metadata-0")).read(Position(0, 0), CLUSTER).voter_set


def test_a_lone_voter_is_named_by_the_first_snapshot(dynamic: Path, tmp_path: Path) -> None:
    done = run("format", "-t", CLUSTER, "-c", dynamic, "--standalone", "--feature", "kraft.version=1")
    assert done.exit_code == 0, done.output
    said = first_voters(tmp_path / "one")
    assert [voter.id for voter in said.voters] == [2] and said.kraft_version == 1
    info = json.loads(run("info", "-c", dynamic, "--json").stdout)
    assert uuids.from_text(info[0]["directory_id"]) == said.voters[0].directory_id


def test_the_first_voters_are_named_by_the_first_snapshot_of_each(dynamic: Path, tmp_path: Path) -> None:
    named = f"3@three:9094:{DIRECTORIES[3]},2@127.0.0.1:9093:{DIRECTORIES[2]}"
    done = run("format", "-t", CLUSTER, "-c", dynamic, "--initial-controllers", named)
    assert done.exit_code == 0, done.output
    said = first_voters(tmp_path / "one").voters
    assert [(voter.id, voter.directory_id, *voter.endpoints) for voter in said] == [
        (2, bytes([2]) * 16, ("CONTROLLER", "127.0.0.1", 9093)),
        (3, bytes([3]) * 16, ("CONTROLLER", "three", 9094)),
    ]
    info = json.loads(run("info", "-c", dynamic, "--json").stdout)
    assert info[0]["directory_id"] == DIRECTORIES[2]


def test_whoever_joins_names_no_voter(dynamic: Path, tmp_path: Path) -> None:
    assert run("format", "-t", CLUSTER, "-c", dynamic, "--no-initial-controllers").exit_code == 0
    assert not (tmp_path / "one" / SNAPSHOT).exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("-s", "-N"), "give one of"),
        (("-I", "2@here:9093"), "is not id@host:port:directory-id"),
        (("-I", f"3@here:9093:{DIRECTORIES[3]}"), "does not name this node, which is 2"),
        (("-I", ",".join([f"2@here:9093:{DIRECTORIES[2]}"] * 2)), "names a node twice"),
        (("-f", "kraft.version=0"), "takes controller.quorum.voters"),
    ],
)
def test_voters_that_cannot_be_are_refused(dynamic: Path, options: tuple[str, ...], why: str) -> None:
    refused = run("format", "-t", CLUSTER, "-c", dynamic, *options)
    assert refused.exit_code == 1 and why in refused.stderr


@pytest.mark.parametrize("options", [("-s",), ("-N",), ("-f", "kraft.version=1")])
def test_fixed_voters_are_those_of_the_settings(file: Path, options: tuple[str, ...]) -> None:
    refused = run("format", "-t", CLUSTER, "-c", file, *options)
    assert refused.exit_code == 1 and "controller.quorum.voters" in refused.stderr


def first_records(directory: Path) -> list[Any]:
    """What formatting left for the first leader."""
    data = (directory / BOOTSTRAP_FILE_NAME).read_bytes()
    batches = [at for at, header in iter_headers(data) if not header.is_control]
    values = [record.value for at in batches for record in decode_batch(data, at)]
    return [decode_record(value) for value in values if value]


def levels_of(directory: Path) -> dict[str, int]:
    """The feature levels that formatting left for the first leader."""
    return {found.name: found.feature_level for found in first_records(directory)}


def test_a_cluster_begins_with_the_levels_of_a_release(file: Path, tmp_path: Path) -> None:
    done = run("format", "-t", CLUSTER, "-c", file, "--release-version", "4.0", "--feature", "transaction.version=1")
    assert done.exit_code == 0, done.output
    assert levels_of(tmp_path / "one") == {"metadata.version": 25, "group.version": 1, "transaction.version": 1}
    file.write_text(file.read_text().replace(str(tmp_path / "one"), str(tmp_path / "four")))
    file.write_text(file.read_text().replace(str(tmp_path / "two"), str(tmp_path / "five")))
    done = run("format", "-t", CLUSTER, "-c", file, "--release-version", "3.9-IV0", "--feature", "group.version=0")
    assert done.exit_code == 0, done.output
    assert levels_of(tmp_path / "four") == {"metadata.version": 21}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--release-version", "2.8"], "3.3-IV3 to 4.3-IV0"),
        (["--feature", "group.version"], "NAME=LEVEL"),
        (["--feature", "nothing.version=1"], "no feature"),
        (["--feature", "group.version=7"], "levels 0 to 1"),
        (["--release-version", "3.9", "--feature", "eligible.leader.replicas.version=1"], "needs metadata.version"),
        (["--release-version", "4.2", "--feature", "metadata.version=20"], "leave --feature metadata.version out"),
    ],
)
def test_levels_that_cannot_be_are_refused_in_one_line(
    file: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    refused = run("format", "-t", CLUSTER, "-c", file, *options)
    assert refused.exit_code == 1 and words in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "one").exists()


def test_a_cluster_begins_with_users(file: Path, tmp_path: Path) -> None:
    done = run(
        "format", "-t", CLUSTER, "-c", file, "--add-scram", "SCRAM-SHA-256=[name=ann,password=pencil]",
        "-S", "SCRAM-SHA-512=[name=bob,password=pen,iterations=8192]",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    users = [each for each in first_records(tmp_path / "one") if isinstance(each, UserScramCredentialRecord)]
    assert [(each.name, each.mechanism, each.iterations) for each in users] == [("ann", 1, 4096), ("bob", 2, 8192)]
    ann = credential_in(users[0])
    assert ann == make_credential(SCRAM_SHA_256, "pencil", ann.salt, 4096) and len(ann.salt) >= 20


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--add-scram", "SCRAM-SHA-1=[name=ann,password=pencil]"), "SCRAM-SHA-1 is not supported"),
        (("--add-scram", "SCRAM-SHA-256=[name=ann,password=pencil]", "-r", "3.5-IV1"), "3.5-IV2"),
    ],
)
def test_users_that_cannot_be_are_refused_in_one_line(file: Path, options: tuple[str, ...], why: str) -> None:
    done = run("format", "-t", CLUSTER, "-c", file, *options)
    assert done.exit_code == 1 and why in done.stderr and len(done.stderr.splitlines()) == 1
    assert "pencil" not in done.stderr

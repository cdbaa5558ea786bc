"""Pages that a newcomer follows word for word: each command prints what the page says."""

from __future__ import annotations

import random
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.snippets import Session, Shell, blocks_of, commands_of
from peers.kafka import free_port, kafka_tool

import headrace.testing

DOCS = Path(__file__).parents[2] / "docs"


def test_commands_are_read_with_their_output() -> None:
    page = "x\n```console\n$ one | two\n1\n2\n$ three\n```\n\n```\nplain\n```\n\n```python\nprint(1)\n```\n"
    assert blocks_of(page) == [("console", "$ one | two\n1\n2\n$ three\n"), ("python", "print(1)\n")]
    assert commands_of("$ one | two\n1\n2\n$ three\n") == [("one | two", "1\n2\n"), ("three", "")]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "blocks"), [("quickstart.md", 2), ("operations/limits.md", 1)])
def test_a_page_for_one_broker(page: str, blocks: int, tmp_path: Path) -> None:
    consoles = [text for language, text in blocks_of((DOCS / page).read_text("utf-8")) if language == "console"]
    assert len(consoles) >= blocks
    with headrace.testing.broker() as broker:
        shell = Shell(tmp_path, broker.bootstrap)
        for console in consoles:
            shell.follow(console)


def loopback_net() -> str:
    """Three numbers and their dots, as long as those of 127.0.0.1: a part of the loopback network that nobody uses."""
    while True:
        net = f"127.{random.randint(1, 9)}.{random.randint(1, 9)}."
        with socket.socket() as probe:
            try:
                probe.bind((f"{net}1", 9093))
            except OSError:
                continue
        return net


@pytest.mark.slow
def test_a_cluster_that_is_built_changed_and_repaired(tmp_path: Path) -> None:
    session, net = Session(tmp_path), loopback_net()
    monitoring = ["monitoring"] if shutil.which("curl") else []
    for name in ("clusters", *monitoring, "change", "recovery"):
        session.add((DOCS / "operations" / f"{name}.md").read_text("utf-8").replace("127.0.0.", net))
    session.run()


@pytest.mark.slow
def test_metadata_that_are_backed_up_lost_and_restored(tmp_path: Path) -> None:
    session, net = Session(tmp_path), loopback_net()
    for name in ("clusters", "backup"):
        session.add((DOCS / "operations" / f"{name}.md").read_text("utf-8").replace("127.0.0.", net))
    session.run()


@pytest.mark.slow
def test_three_nodes_with_tls_passwords_and_acls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (make system-deps)")
    session = Session(tmp_path)
    session.add((DOCS / "security" / "three-nodes.md").read_text("utf-8").replace("127.0.0.", loopback_net()))
    session.run()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The page of security was followed, and its broker runs: the folder, and the port that stands for its 9093."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (make system-deps)")
    folder, port = tmp_path_factory.mktemp("page"), free_port()
    session = Session(folder)
    session.add((DOCS / "security.md").read_text("utf-8").replace("9093", str(port)))
    with session.followed():
        yield folder, port


@pytest.mark.slow
def test_the_page_of_security(secured: tuple[Path, int]) -> None:
    log = (secured[0] / "followed.log").read_text()
    assert "User:ann may write topic orders" in log


@pytest.mark.jvm
@pytest.mark.slow
def test_kafkas_tools_take_the_clients_file_of_the_page(secured: tuple[Path, int]) -> None:
    folder, port = secured
    file = folder / "of-kafka.properties"
    file.write_text((folder / "client.properties").read_text().replace("cert.pem", str(folder / "cert.pem")))
    where = ("--bootstrap-server", f"localhost:{port}", "--command-config", str(file))
    assert "orders" in kafka_tool("org.apache.kafka.tools.TopicCommand", *where, "--list").stdout

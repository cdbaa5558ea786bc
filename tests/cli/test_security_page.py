"""The commands of docs/security.md, as they stand there, in a shell and a fresh directory."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.kafka import free_port, kafka_tool

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PATIENCE_S = 60.0
SERVES = "headrace serve"


def blocks(kind: str, port: int) -> list[str]:
    """The page's blocks of a kind; its port is one that is free."""
    found = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [text.replace("9093", str(port)) for text in found]


class Shell:
    """What a newcomer has: a directory, `headrace`, `openssl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "headrace"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace.cli "$@"\n')
        program.chmod(0o755)
        self._path = f'export PATH="{program.parent}:$PATH" HEADRACE_PROFILES="{folder}/profiles.json"\n'

    def run(self, commands: str) -> str:
        """Runs them, each of which has to succeed."""
        done = subprocess.run(
            ["sh", "-e", "-c", self._path + commands], cwd=self.folder, timeout=PATIENCE_S, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout}"
        return done.stdout

    def serve(self, command: str) -> subprocess.Popen[bytes]:
        """Runs one that stays."""
        log = (self.folder / "serve.log").open("wb")
        return subprocess.Popen(
            ["sh", "-c", f"{self._path}exec {command}"], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
        )


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, int]]:
    """The page was followed as far as its broker serves."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (make system-deps)")
    shell, port = Shell(tmp_path_factory.mktemp("page")), free_port()
    commands, files = blocks("sh", port), blocks("properties", port)
    for name, text in zip(("server.properties", "client.properties"), files[:2], strict=True):
        (shell.folder / name).write_text(text)
    shell.run(commands[0])
    first, _, last = commands[1].rstrip().rpartition("\n")
    assert last.startswith(SERVES)
    shell.run(first)
    process = shell.serve(last)
    try:
        where = f"--bootstrap localhost:{port} --command-config client.properties"
        until = time.monotonic() + PATIENCE_S
        while b"serves" not in (shell.folder / "serve.log").read_bytes():
            assert process.poll() is None and time.monotonic() < until, (shell.folder / "serve.log").read_text()
            time.sleep(0.05)
        shell.run(f"headrace topic create {where} orders")
        yield shell, port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_every_further_command_of_the_page_works(followed: tuple[Shell, int]) -> None:
    shell, port = followed
    for commands in blocks("sh", port)[2:]:
        shell.run(commands)
    listed = shell.run(f"headrace acl list --bootstrap localhost:{port} --command-config client.properties")
    assert "User:ann" in listed and "orders" in listed


def test_the_user_that_the_page_makes_can_log_in(followed: tuple[Shell, int]) -> None:
    shell, port = followed
    (made,) = [commands for commands in blocks("sh", port) if "headrace user create" in commands]
    shell.run(made)
    (name,) = re.findall(r"user create (\w+)", made)
    (password,) = re.findall(r"echo '(.*)' >", made)
    of_admin = (shell.folder / "client.properties").read_text()
    of_user = of_admin.replace('"admin"', f'"{name}"').replace('"change-me"', f'"{password}"')
    assert f'username="{name}" password="{password}"' in of_user
    (shell.folder / "user.properties").write_text(of_user)
    shell.run(f"headrace topic list --bootstrap localhost:{port} --command-config user.properties")


def test_the_file_leaves_nothing_open(followed: tuple[Shell, int]) -> None:
    assert "Nothing beyond this machine is open" in followed[0].run("headrace security check server.properties")


def test_a_certificate_is_renewed_as_the_page_says(followed: tuple[Shell, int]) -> None:
    """A new store in the old one's place, and the place set again; by our command, as Kafka's needs a JVM."""
    shell, port = followed
    (said,) = re.findall(r"`kafka-configs (--alter[^`]*)`", PAGE.read_text())
    name, value = said.rpartition("--add-config ")[2].split("=")
    before = shell.run(f"openssl s_client -connect localhost:{port} -showcerts < /dev/null 2>/dev/null")
    shell.run(blocks("sh", port)[0])
    where = f"--bootstrap localhost:{port} --command-config old.properties"
    shell.run("sed s/cert.pem/old.pem/ client.properties > old.properties")
    (shell.folder / "old.pem").write_text(re.findall(r"-----BEGIN.*?-----END CERTIFICATE-----\n", before, re.DOTALL)[0])
    shell.run(f"headrace config alter broker 1 --set {name}={value} {where}")
    after = shell.run(f"openssl s_client -connect localhost:{port} -showcerts < /dev/null 2>/dev/null")
    assert shell.run("openssl x509 -in cert.pem -noout -fingerprint") in shell.run(
        f"openssl s_client -connect localhost:{port} < /dev/null 2>/dev/null | openssl x509 -noout -fingerprint"
    )
    assert before != after


@pytest.mark.jvm
@pytest.mark.slow
def test_kafkas_tools_take_the_clients_file(followed: tuple[Shell, int]) -> None:
    shell, port = followed
    text = (shell.folder / "client.properties").read_text()
    file = shell.folder / "of-kafka.properties"
    file.write_text(text.replace("cert.pem", str(shell.folder / "cert.pem")))
    where = ("--bootstrap-server", f"localhost:{port}", "--command-config", str(file))
    assert "orders" in kafka_tool("org.apache.kafka.tools.TopicCommand", *where, "--list").stdout

"""`headrace acl` and `headrace user`: what they change, and who may do what then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from cli.commanding import Run, as_user, command, one_line
from peers.secured import Secured

from headrace.client.cluster import Client


def test_users_and_rights_from_nothing(secured: Secured, root: Run, root_json: Callable[..., Any]) -> None:
    """A user is made, may do nothing, is given rights, uses them, loses them, and is gone."""
    root("topic", "create", "orders", "-p", "1")
    password = secured.folder / "ann.password"
    password.write_text("the secret of ann\n")
    done = root("user", "create", "ann", "--password-file", str(password))
    assert done.stdout == "user ann logs in by SCRAM-SHA-256\nuser ann logs in by SCRAM-SHA-512\n"
    ann = as_user(secured, secured.properties("ann", "the secret of ann"), "ann")
    denied = one_line(ann("produce", "orders", "--timeout", "5", stdin="x\n", code=1))
    assert "TOPIC_AUTHORIZATION_FAILED" in denied and "`headrace acl list`" in denied
    made = root("acl", "create", "--allow", "User:ann", "--producer", "--topic", "orders").stdout.splitlines()
    assert made == [
        "User:ann may write topic orders",
        "User:ann may describe topic orders",
        "User:ann may create topic orders",
    ]
    ann("produce", "orders", stdin="x\n")
    root("acl", "create", "--allow", "User:ann", "--consumer", "--topic", "ord", "--group", "g", "--prefixed")
    assert ann("consume", "orders", "--group", "g1", "-n", "1").stdout == "x\n"
    listed = root_json("acl", "list", "--topic", "orders", "--matching")
    assert {(each["name"], each["pattern"], each["operation"]) for each in listed} >= {
        ("orders", "literal", "write"),
        ("ord", "prefixed", "read"),
    }
    root("acl", "create", "--deny", "User:ann", "--topic", "orders", "--operation", "Write")
    ann("produce", "orders", "--timeout", "5", stdin="x\n", code=1)
    assert "--yes" in root("acl", "delete", "--deny", "User:ann", code=2).stderr
    gone = root("acl", "delete", "--deny", "User:ann", "-y").stdout
    assert gone == "deleted: User:ann may not write topic orders\n"
    ann("produce", "orders", stdin="x\n")
    root("acl", "delete", "--allow", "User:ann", "-y")
    assert root_json("acl", "list", "--principal", "User:ann") == []
    assert "no ACL is like that" in root("acl", "delete", "--allow", "User:ann", "-y", code=4).stderr
    password.write_text("another one")
    assert "has another password" in root("user", "create", "ann", "--password-file", str(password)).stdout
    ann("topic", "list", code=1)
    assert root_json("user", "list", "ann") == [
        {"user": "ann", "mechanism": mechanism, "iterations": 4096} for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    assert "no longer logs in" in root("user", "delete", "ann", "-y").stdout
    assert "there is no user ann" in root("user", "delete", "ann", "-y", code=4).stderr
    assert "there is no user ann" in root("user", "list", "ann", code=4).stderr


def test_who_may_not_change_rights_hears_so(secured: Secured, root: Run) -> None:
    root("user", "create", "bob", "--password-env", "BOBS", BOBS="b0b")
    bob = as_user(secured, secured.properties("bob", "b0b"), "bob")
    for arguments in (
        ["acl", "list"],
        ["acl", "create", "--allow", "User:bob", "--cluster"],
        ["acl", "delete", "--allow", "User:bob", "-y"],
        ["user", "list"],
        ["user", "create", "eve", "--password-env", "BOBS"],
        ["quota", "list"],
        ["quota", "set", "--user", "bob", "producer_byte_rate=1"],
    ):
        line = one_line(bob(*arguments, code=1, BOBS="b0b"))
        assert "CLUSTER_AUTHORIZATION_FAILED" in line


def test_a_password_comes_from_a_file_a_variable_or_standard_input(secured: Secured, root: Run) -> None:
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512", "--iterations", "5000")
    assert root("user", "create", "eve", *both, "--password-file", "-", stdin="from stdin\n").exit_code == 0
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        properties = secured.properties("eve", "from stdin", mechanism)
        with Client(secured.bootstrap(), security=properties, timeout_s=10) as client:
            client.refresh([])
    rows = [line.split() for line in root("user", "list", "eve").stdout.splitlines()]
    assert rows[1:] == [["eve", "SCRAM-SHA-256", "5000"], ["eve", "SCRAM-SHA-512", "5000"]]
    root("user", "delete", "eve", "--mechanism", "SCRAM-SHA-256", "-y")
    assert root("user", "list", "eve").stdout.count("eve") == 1
    empty = secured.folder / "empty"
    empty.write_text("\nsecond line")
    assert "is empty" in root("user", "create", "x", "--password-file", str(empty), code=1).stderr
    empty.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in root("user", "create", "x", "--password-file", str(empty), code=1).stderr
    empty.write_bytes(b"x" * 5000)
    assert "longer than 4096 bytes" in root("user", "create", "x", "--password-file", str(empty), code=1).stderr
    assert "give --password-file or --password-env" in root("user", "create", "x", code=2).stderr
    assert "there is no variable NOPE" in root("user", "create", "x", "--password-env", "NOPE", code=2).stderr
    assert "ASCII" in root("user", "create", "zoë", "--password-env", "P", code=2, P="p").stderr
    assert "--password " not in root("user", "create", "--help").stdout


SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
"""Runs a command on a terminal of its own."""


def test_a_terminal_is_asked_twice_and_shows_nothing(secured: Secured, root_json: Callable[..., Any]) -> None:
    config = secured.file(secured.root(), "on-a-terminal.properties")
    create = [sys.executable, "-m", "headrace.cli", "user", "create", "tty", "-b", secured.bootstrap()]
    process = subprocess.Popen(
        [sys.executable, "-c", SPAWN, *create, "--command-config", config],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    shown = b""
    with process:
        for prompt in (b"Password of tty: ", b"confirmation: "):
            while not shown.endswith(prompt):
                byte = process.stdout.read(1)
                assert byte, shown
                shown += byte
            # what is typed before the terminal stops showing it is thrown away
            process.stdin.write(b"typed-in\n")
            process.stdin.flush()
        shown += process.stdout.read()
    assert process.returncode == 0, shown
    assert b"typed-in" not in shown and b"user tty logs in by SCRAM-SHA-512" in shown
    with Client(secured.bootstrap(), security=secured.properties("tty", "typed-in"), timeout_s=10) as client:
        client.refresh([])
    assert root_json("user", "list", "tty")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--topic", "t"], "give --allow or --deny"),
        (["create", "--allow", "User:a"], "give --topic, --group, --transactional-id or --cluster"),
        (["create", "--allow", "ann", "--topic", "t"], "write User:ann"),
        (["create", "--allow", "User:a", "--topic", "t", "--operation", "fly"], "'fly' is none of all, read"),
        (["create", "--allow", "User:a", "--group", "g", "--operation", "write"], "there is no write of a group"),
        (["create", "--allow", "User:a", "--topic", "t", "--host", "example.org"], "brokers look up no names"),
        (["create", "--allow", "User:a", "--topic", "t", "--consumer"], "--consumer needs --topic and --group"),
        (["create", "--allow", "User:a", "--group", "g", "--producer"], "--producer needs --topic"),
        (["create", "--allow", "User:a", "--topic", "t", "--group", "g", "--producer"], "says nothing of --group"),
        (["create", "--deny", "User:a", "--topic", "t", "--producer"], "leave --operation and --deny out"),
        (["create", "--allow", "User:a", "--cluster", "--prefixed"], "--prefixed needs a name"),
        (["delete", "-y"], "say which"),
        (["list", "--matching"], "--matching needs a name"),
    ],
)
def test_wrong_usage_of_acl(arguments: list[str], words: str) -> None:
    assert words in one_line(command("acl", *arguments, "-b", "127.0.0.1:1", code=2))


def test_addresses_are_written_as_brokers_compare_them(root: Run, root_json: Callable[..., Any]) -> None:
    root(
        "acl",
        "create",
        "--allow",
        "User:*",
        "--topic",
        "*",
        "--operation",
        "read",
        "--host",
        "::1",
        "--host",
        "10.0.0.7",
    )
    found = root_json("acl", "list", "--host", "::1")
    assert [each["host"] for each in found] == ["0:0:0:0:0:0:0:1"]
    lines = root("acl", "delete", "--topic", "*", "-y").stdout.splitlines()
    assert lines == [
        "deleted: everyone may read every topic from 0:0:0:0:0:0:0:1",
        "deleted: everyone may read every topic from 10.0.0.7",
    ]


def test_a_literal_name_does_not_delete_what_a_prefix_says(root: Run, root_json: Callable[..., Any]) -> None:
    root("acl", "create", "--allow", "User:kim", "--topic", "pre", "--prefixed")
    root("acl", "create", "--allow", "User:kim", "--topic", "pre", "--operation", "describe-configs")
    root("acl", "delete", "--topic", "pre", "-y")
    (left,) = root_json("acl", "list", "--principal", "User:kim")
    assert (left["pattern"], left["operation"]) == ("prefixed", "all")
    assert root("acl", "delete", "--topic", "pre", "--prefixed", "-y").stdout.count("deleted") == 1

"""`headrace token` against both brokers: what users make, see and end, and what a login by a token may not."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker.tokens import MAX_MS, RENEWAL_MS, SECRET, SETTINGS, kafka_peer
from cli.commanding import command, one_line
from peers.either import BROKERS

from headrace.client.cluster import Client
from headrace.client.security import security_of
from headrace.client.tokens import create_token, list_tokens
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import broker as running_broker

PATIENCE_S = 60.0


class Served(NamedTuple):
    """A broker whose clients log in, and a folder for their files."""

    bootstrap: str
    folder: Path

    def by(self, name: str) -> dict[str, str]:
        """Client properties of a user, whose password is the name."""
        return properties("PLAIN", f'{PLAIN_MODULE} required username="{name}" password="{name}";')

    def run(self, name: str, *arguments: str, code: int = 0, own: dict[str, str] | None = None) -> Any:
        """Runs `headrace token` as a user, or with these properties."""
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in (own or self.by(name)).items()))
        return command("token", *arguments, "-b", self.bootstrap, "--command-config", str(path), code=code)

    def run_json(self, name: str, *arguments: str) -> Any:
        return json.loads(self.run(name, *arguments, "--json").stdout)


def properties(mechanism: str, jaas: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def by_token(token_id: str, hmac: str) -> dict[str, str]:
    """Client properties of whoever has a token."""
    jaas = f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
    return properties("SCRAM-SHA-256", jaas)


@pytest.fixture(scope="module", params=BROKERS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tokens")
    if request.param == "kafka":
        peer, port = kafka_peer(SECRET)
        with peer:
            yield Served(f"127.0.0.1:{port}", folder)
    else:
        with running_broker(SETTINGS) as ours:
            yield Served(ours.bootstrap, folder)


def settled(act: Callable[[], Any]) -> Any:
    """The outcome, once Kafka's controller has heard of what it decided: its broker tells of it before."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except AssertionError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_the_life_of_a_token(served: Served) -> None:
    made = served.run_json("ann", "create", "--renewer", "User:bob", "--renewer", "User:bob")
    hmac = made.pop("hmac")
    assert len(base64.b64decode(hmac)) == 64
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:ann", "User:ann", ["User:bob"])
    assert made["last_ms"] - made["issued_ms"] == MAX_MS and made["expires_ms"] - made["issued_ms"] == RENEWAL_MS
    for name in ("ann", "bob", "cy"):  # nobody decides there who may see what
        assert made in served.run_json(name, "list", "--owner", "User:ann")
    assert made not in served.run_json("ann", "list", "--owner", "User:cy")
    listed = served.run("ann", "list").stdout
    assert made["token"] in listed and hmac not in listed and listed.startswith("TOKEN ")

    (renewed,) = settled(lambda: served.run_json("bob", "renew", made["token"], "--for", "1h"))
    assert renewed["token"] == made["token"] and renewed["expires_ms"] < made["expires_ms"]
    said = served.run("ann", "renew", made["token"]).stdout
    assert re.fullmatch(rf"token {made['token']} of User:ann lasts until \S+\n", said)
    assert "--yes" in one_line(served.run("ann", "expire", made["token"], code=2))
    (later,) = served.run_json("ann", "expire", made["token"], "--in", "10m")
    assert later["expires_ms"] < renewed["expires_ms"]

    with Client(served.bootstrap, timeout_s=10, security=security_of(by_token(made["token"], hmac))) as client:
        client.refresh([])
    assert served.run("bob", "expire", made["token"], "-y").stdout == f"token {made['token']} of User:ann has ended\n"
    line = one_line(served.run("ann", "renew", made["token"], code=4))
    assert f"there is no token {made['token']} that you may see" in line and "`headrace token list`" in line
    assert made["token"] not in served.run("ann", "list").stdout


def test_a_table_shows_the_hmac_once(served: Served) -> None:
    done = served.run("ann", "create", "--max-lifetime", "10m")
    heading, row = done.stdout.splitlines()
    assert heading.split()[0] == "TOKEN" and heading.split()[-1] == "HMAC"
    token_id, hmac = row.split()[0], row.split()[-1]
    assert "nobody is shown the HMAC again" in done.stderr and hmac not in done.stderr
    with Client(served.bootstrap, timeout_s=10, security=security_of(by_token(token_id, hmac))) as client:
        settled(lambda: client.refresh([]))
    (found,) = [each for each in served.run_json("ann", "list") if each["token"] == token_id]
    assert found["last_ms"] - found["issued_ms"] == 600_000 == found["expires_ms"] - found["issued_ms"]


def test_a_token_for_somebody_else(served: Served) -> None:
    made = served.run_json("ann", "create", "--owner", "User:cy")
    assert (made["owner"], made["requester"]) == ("User:cy", "User:ann")
    line = settled(lambda: one_line(served.run("ann", "renew", made["token"], code=1)))
    assert "DELEGATION_TOKEN_OWNER_MISMATCH" in line and "only its owner and its renewers may" in line
    served.run("cy", "expire", made["token"], "-y")


def test_a_login_by_a_token_may_not_ask_for_tokens(served: Served) -> None:
    made = served.run_json("ann", "create")
    own = by_token(made["token"], made["hmac"])
    for arguments in (["create"], ["list"], ["renew", made["token"]], ["expire", made["token"], "-y"]):
        line = one_line(served.run("token", *arguments, code=1, own=own))
        assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in line and "log in as a user and not by a token" in line
        assert made["hmac"] not in line


def test_the_client_shows_no_hmac_by_chance(served: Served) -> None:
    with Client(served.bootstrap, timeout_s=10, security=security_of(served.by("ann"))) as client:
        made = create_token(client, renewers=["User:bob"])
        assert base64.b64encode(made.hmac).decode() not in repr(made) and str(made.hmac) not in repr(made)
        assert made in list_tokens(client, ["User:bob"])
        assert list_tokens(client, []) == []


def test_a_listener_where_nobody_logs_in_says_so() -> None:
    without = {name: text for name, text in SETTINGS.items() if name != "delegation.token.secret.key"}
    with running_broker(without) as ours:
        (inside,) = ours.call(lambda broker: [each.port for each in broker.listeners if each.name == "INSIDE"])
        line = one_line(command("token", "list", "-b", f"127.0.0.1:{inside}", code=1))
        assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--owner", "ann"], "write User:ann"),
        (["create", "--renewer", ":ann"], "write User:ann"),
        (["create", "--max-lifetime", "0s"], "--max-lifetime is no time at all"),
        (["create", "--max-lifetime", "long"], "'long' is not a time"),
        (["list", "--owner", "ann"], "write User:ann"),
        (["renew"], "TOKEN"),
        (["renew", "x", "--for", "0h"], "`headrace token expire` ends tokens"),
        (["expire", "-y"], "TOKEN"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    assert words in one_line(command("token", *arguments, "-b", "127.0.0.1:1", code=2))

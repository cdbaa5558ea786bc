"""Clients in Go, Rust and Node over TLS: by SCRAM, and by their own certificate, while a node is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli.supervised import Running, serving
from peers import programs
from peers.certificates import Authority, write_trust_pem
from peers.failing_over import Program

from headrace.config import BrokerConfig, load_properties_file
from headrace.config.security_table import STANDARD_AUTHORIZER

pytestmark = pytest.mark.soak

WAYS = ("SCRAM", "CERTIFICATE")


@dataclass
class Place:
    """Three nodes with a listener for each way, and what a client brings there."""

    running: Running
    bootstraps: Mapping[str, str]
    environments: Mapping[str, Mapping[str, str]]
    settings: Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority.new()
    ca = str(write_trust_pem(folder / "ca.pem", [authority]))
    own = str(authority.client("ann").write_pem(folder / "ann.pem"))
    given = {
        "listeners": ",".join(f"{way}://127.0.0.1:0" for way in WAYS),
        "advertised.listeners": ",".join(f"{way}://localhost:0" for way in WAYS),
        "listener.security.protocol.map": "SCRAM:SASL_SSL,CERTIFICATE:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write_pem(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.certificate.ssl.client.auth": "required",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ann;User:CN=ann",
        "offsets.topic.num.partitions": "3",
    }
    file = folder / "all.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    users = ("--add-scram", "SCRAM-SHA-256=[name=ann,password=secret-1]")
    with serving(folder / "cluster", str(file), *users, listen=()) as running:
        tls = {"ssl.ca.location": ca}
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ann", "sasl.password": "secret-1"}
        settings = {
            "SCRAM": {"security.protocol": "SASL_SSL", **tls, **login},
            "CERTIFICATE": {
                "security.protocol": "SSL",
                **tls,
                "ssl.certificate.location": own,
                "ssl.key.location": own,
            },
        }
        running.host, running.security = "localhost", settings["SCRAM"]
        yield Place(
            running,
            {way: bootstrap_of(folder / "cluster", way) for way in WAYS},
            {
                "SCRAM": {"CLIENT_CA": ca, "CLIENT_USER": "ann", "CLIENT_PASSWORD": "secret-1"},
                "CERTIFICATE": {"CLIENT_CA": ca, "CLIENT_PEM": own},
            },
            settings,
        )
        assert running.end() == 0


def bootstrap_of(folder: Path, way: str) -> str:
    files = sorted(folder.glob("node-*/server.properties"))
    points = [point for file in files for point in BrokerConfig.load(load_properties_file(str(file))).listeners]
    return ",".join(f"localhost:{point.port}" for point in points if point.name == way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", programs.TOOLS)
def test_a_client_comes_in_and_goes_on_when_a_node_is_killed(place: Place, name: str, way: str, tmp_path: Path) -> None:
    if why := programs.missing(name):
        pytest.skip(why)
    topic = f"{name}-{way.lower()}"
    place.running.create(topic, 3)
    with Program(
        name, place.bootstraps[way], topic, 3, tmp_path / "stderr", place.environments[way], place.settings[way]
    ) as program:
        program.goes_on()
        os.kill(child_of(place.running.process.pid, "node-2"), signal.SIGKILL)
        program.goes_on()
        program.finish()
    program.check(once=name != "node")


def child_of(parent: int, word: str) -> int:
    """The process of that parent with the word in its command."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if word.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError(f"no process of {parent} has {word} in its command")


@pytest.mark.parametrize("name", programs.TOOLS)
@pytest.mark.parametrize(
    ("way", "wrong"),
    [
        ("SCRAM", {"CLIENT_PASSWORD": "wrong"}),
        ("CERTIFICATE", {"CLIENT_PEM": ""}),
    ],
)
def test_nobody_comes_in_with_a_wrong_password_or_without_a_certificate(
    place: Place, name: str, way: str, wrong: Mapping[str, str], tmp_path: Path
) -> None:
    if why := programs.missing(name):
        pytest.skip(why)
    topic = f"closed-{name}-{way.lower()}"
    place.running.create(topic, 1)
    environment = {name: text for name, text in {**place.environments[way], **wrong}.items() if text}
    with Program(name, place.bootstraps[way], topic, 1, tmp_path / "stderr", environment) as program:
        with pytest.raises((AssertionError, OSError)):
            program.patience_s = 5
            program.goes_on()
    assert program.acknowledged == {} and not program.got

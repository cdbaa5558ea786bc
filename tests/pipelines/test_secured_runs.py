"""Pipelines whose clusters want TLS and a login: source and sink log in by --command-config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.secured import ROOT_PASSWORD, Secured, secured_broker

import headrace
import headrace.testing
from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.producer import Producer

from .drivers import drive, finish
from .expected import T0_S

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        with Client(made.bootstrap(), security=made.root()) as client, Producer(client) as producer:
            admin.create_topic(client, "rides", partitions=1)
            for number in range(50):
                producer.send("rides", b'{"zone": "z", "time": %d, "supply": true}' % (T0_S + number))
        yield made


def no_secret_in(folder: Path) -> bool:
    return not [path for path in folder.rglob("*") if path.is_file() and ROOT_PASSWORD.encode() in path.read_bytes()]


def test_surge(secured: Secured, tmp_path: Path) -> None:
    config = secured.file(secured.root())
    arguments = ["surge", "--from", "rides", "--to", "surges", "--time-unit", "s", "--once", "--command-config", config]
    arguments += ["--delivery", "exactly-once", "--plot", str(tmp_path / "surge.png")]
    batches = finish(drive(secured.bootstrap(), tmp_path / "state", *arguments))
    assert sum(batch["rows"] for batch in batches) == 50
    assert headrace.scan("surges", bootstrap=secured.bootstrap(), security=secured.root()).num_rows >= 1
    assert (tmp_path / "surge.png").exists() and no_secret_in(tmp_path)


@pytest.mark.soak
def test_mirror_to_a_cluster_that_asks_nobody(secured: Secured, tmp_path: Path) -> None:
    config = secured.file(secured.root())
    with headrace.testing.broker() as plain:
        arguments = ["mirror", "--topics", "rides", "--to-bootstrap", plain.bootstrap, "--once"]
        finish(drive(secured.bootstrap(), tmp_path / "there", *arguments, "--command-config", config))
        assert headrace.scan("rides", bootstrap=plain.bootstrap).num_rows == 50
        back = ["mirror", "--topics", "rides", "--prefix", "back.", "--to-bootstrap", secured.bootstrap(), "--once"]
        finish(drive(plain.bootstrap, tmp_path / "back", *back, "--to-command-config", config))
    copied = headrace.scan("back.rides", bootstrap=secured.bootstrap(), security=secured.root())
    assert copied.num_rows == 50 and no_secret_in(tmp_path)

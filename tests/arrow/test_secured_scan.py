"""`headrace.scan` where brokers want TLS and a login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.secured import Secured, secured_broker

import headrace
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.login import NotLoggedInError
from headrace.client.producer import Producer
from headrace.client.security import security_of
from headrace.config import ConfigError


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        with Client(made.bootstrap(), security=made.root()) as client, Producer(client) as producer:
            create_topic(client, "private", partitions=1)
            for number in range(5):
                producer.send("private", b"%d" % number)
        yield made


def test_by_a_mapping_a_file_and_a_value(secured: Secured) -> None:
    for security in (secured.root(), secured.file(secured.root()), security_of(secured.root())):
        table = headrace.scan("private", bootstrap=secured.bootstrap(), security=security)
        assert table["value"].to_pylist() == [b"%d" % number for number in range(5)]


def test_what_is_wrong_is_said_without_secrets(secured: Secured) -> None:
    wrong = secured.properties("root", "hunter2", "PLAIN")
    with pytest.raises(NotLoggedInError, match="refuses the login") as failed:
        headrace.scan("private", bootstrap=secured.bootstrap(), security=wrong)
    assert "hunter2" not in str(failed.value)
    with pytest.raises(ConfigError) as refused:
        headrace.scan("private", bootstrap=secured.bootstrap(), security={**wrong, "sasl.jaas.config": "x hunter2"})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(FileNotFoundError):
        headrace.scan("private", bootstrap=secured.bootstrap(), security="/nowhere/client.properties")

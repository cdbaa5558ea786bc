"""A new store of the nodes' listener shakes hands with the old one before it is taken, each as the server once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.certificates import EXPIRED, SERVER_NAMES, Authority, Identity, named, write_trust_pem
from peers.kafka import free_port

import headrace.client.stores as stores_module
from headrace.client.admin import Resource, alter_configs
from headrace.client.errors import BrokerError
from headrace.client.stores import KEY_STORE, Stores
from headrace.security.stores import pem
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode

KEYS = f"listener.name.inside.{KEY_STORE}"
TRUST = "listener.name.inside.ssl.truststore.location"
OUTSIDE_KEYS = f"listener.name.outside.{KEY_STORE}"
CONTROLLER_KEYS = f"listener.name.controller.{KEY_STORE}"
OUTSIDE, INSIDE, CONTROLLERS, TO_BROKERS, TO_CONTROLLERS = 1, 2, 3, 4, 5
"""Of `Node.stores`."""


class Node:
    """A node with listeners of TLS for clients, brokers and controllers, and two authorities."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = Authority.new(), Authority.new("other")
        self.broker: TestBroker
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0,"
            f"CONTROLLER://127.0.0.1:{(port := free_port())}",
            "advertised.listeners": "INSIDE://localhost:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL,INSIDE:SSL,CONTROLLER:SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@localhost:{port}",
            "inter.broker.listener.name": "INSIDE",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.keys(self.old.server()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusting(self.old),
            "listener.name.inside.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
        }

    def keys(self, identity: Identity) -> str:
        return str(identity.write_pem(self.folder / f"{identity.certificate.serial_number}.pem"))

    def trusting(self, *authorities: Authority) -> str:
        name = "-".join(str(each.root.serial_number) for each in authorities)
        return str(write_trust_pem(self.folder / f"{name}.trust.pem", authorities))

    def set(self, **values: str) -> None:
        with self.broker.client() as client:
            alter_configs(client, Resource.BROKER, "1", set_values=values)

    def refuses(self, name: str, value: str, why: str) -> None:
        before = self.stores()
        with pytest.raises(BrokerError) as refused:
            self.set(**{name: value})
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        assert why in str(refused.value) and "\n" not in str(refused.value)
        assert self.stores() == before

    def stores(self) -> list[object]:
        """What is in force: at each listener, and for the node's own connections."""
        return self.broker.call(
            lambda inside: [
                *(each.tls and each.tls.context for each in inside.server.listeners),
                *(
                    way.tls and way.tls.stores
                    for way in (inside.node_security.to_brokers(), inside.node_security.to_controllers())
                ),
            ]
        )


def counted(made: Counter[str], what: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def counting(*arguments: Any, **named_ones: Any) -> Any:
        made[what] += 1
        return do(*arguments, **named_ones)

    return counting


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    with running_broker(made.settings, data=tmp_path / "data") as made.broker:
        yield made


def test_what_would_cut_nodes_off_is_refused(node: Node) -> None:
    of_another = node.keys(node.new.server())
    expired = node.keys(node.old.issue(named("localhost"), names=SERVER_NAMES, valid=EXPIRED))
    fewer = node.keys(node.old.issue(named("localhost"), names=["localhost"]))
    not_believed = "does not believe the certificate"
    node.refuses(KEYS, of_another, not_believed)
    node.refuses(CONTROLLER_KEYS, of_another, not_believed)
    node.refuses(KEYS, expired, "certificate has expired")
    node.refuses(KEYS, fewer, "set ssl.allow.san.changes")
    node.refuses(TRUST, node.trusting(node.new), not_believed)
    node.set(**{OUTSIDE_KEYS: of_another})  # clients see for themselves


def test_a_refusal_holds_for_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is valid from the next second on is taken then."""
    mine = node.keys(node.old.server())
    with monkeypatch.context() as patched:
        patched.setattr(stores_module, "handshake_failure", lambda *_: "certificate is not yet valid")
        node.refuses(KEYS, mine, "certificate is not yet valid")
    node.set(**{KEYS: mine})


def test_a_store_is_opened_once_and_its_contexts_are_made_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried, taken by the listener and taken for the node's own connections: the event loop waits for all of it.
    Either side is made once more for the trial, which checks neither names nor the time of the store in use."""
    made: Counter[str] = Counter()
    for where, what in (
        (pem, "keystore"),
        (pem, "truststore"),
        (stores_module, "server_context"),
        (stores_module, "client_context"),
        (stores_module, "handshake_failure"),
    ):
        monkeypatch.setattr(where, what, counted(made, what, getattr(where, what)))
    node.set(**{KEYS: node.keys(node.old.server())})
    assert made == Counter(keystore=1, server_context=2, client_context=3, handshake_failure=2)
    made.clear()
    node.set(**{"log.cleaner.threads": "2"})
    assert not made


def test_a_certificate_that_is_over_is_replaced(tmp_path: Path) -> None:
    """That it is over is no reason to keep it; what the new one has to be is as before."""
    made = Node(tmp_path)
    over = made.old.issue(named("localhost"), names=SERVER_NAMES, valid=EXPIRED)
    made.settings["ssl.keystore.location"] = made.keys(over)
    with running_broker(made.settings, data=tmp_path / "data") as made.broker:
        made.refuses(KEYS, made.keys(made.new.server()), "does not believe the certificate")
        also_over = made.old.issue(named("localhost"), names=SERVER_NAMES, valid=EXPIRED)
        made.refuses(KEYS, made.keys(also_over), "certificate has expired")
        made.refuses(TRUST, made.trusting(made.new), "does not believe the certificate")
        mine = made.keys(made.old.server())
        before = made.stores()
        made.set(**{KEYS: mine, CONTROLLER_KEYS: mine})
        changed = [n for n, now in enumerate(made.stores()) if now != before[n]]
        assert changed == [INSIDE, CONTROLLERS, TO_BROKERS, TO_CONTROLLERS]
        made.refuses(KEYS, made.keys(also_over), "certificate has expired")


def test_another_authority_comes_in_three_steps(node: Node) -> None:
    both, mine = node.trusting(node.old, node.new), node.keys(node.new.server())
    before = node.stores()
    node.set(**{TRUST: both})
    node.set(**{KEYS: mine})
    node.set(**{TRUST: node.trusting(node.new)})
    after = node.stores()
    assert [n for n, was in enumerate(before) if was != after[n]] == [INSIDE, TO_BROKERS]
    node.refuses(KEYS, node.keys(node.old.server()), "does not believe the certificate")


def test_both_stores_at_once_are_tried_together(node: Node) -> None:
    """One that shows another certificate and believes both is not believed by the old one."""
    both, mine = node.trusting(node.old, node.new), node.keys(node.new.server())
    before = node.stores()
    with pytest.raises(BrokerError, match="does not believe the certificate"):
        node.set(**{KEYS: mine, TRUST: both})
    assert node.stores() == before


def test_a_file_that_was_written_over_does_not_come_in_with_other_settings(node: Node) -> None:
    """Neither at the listener nor in the node's own connections, which look at the stores when settings change."""
    path = Path(node.settings["ssl.keystore.location"])
    before = node.stores()
    node.new.server().write_pem(path)
    later = os.stat(path).st_mtime + 5
    os.utime(path, (later, later))
    node.set(**{"log.cleaner.threads": "2"})
    assert [n for n, was in enumerate(before) if was != node.stores()[n]] == [OUTSIDE]


def test_what_was_taken_in_steps_holds_after_a_restart(tmp_path: Path) -> None:
    """What the file names is older than what is stored by two steps, and does not stand in its way."""
    made = Node(tmp_path)
    mine = made.keys(made.new.server())
    with running_broker(made.settings, data=tmp_path / "data") as made.broker:
        for name, value in ((TRUST, made.trusting(made.old, made.new)), (KEYS, mine), (TRUST, made.trusting(made.new))):
            made.set(**{name: value})
    with running_broker(made.settings, data=tmp_path / "data") as made.broker:
        stores = made.stores()[TO_BROKERS]
        assert isinstance(stores, Stores) and stores.config.key_store.location == mine
        made.refuses(KEYS, made.keys(made.old.server()), "does not believe the certificate")

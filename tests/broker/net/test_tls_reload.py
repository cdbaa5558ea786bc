"""Stores of keys that are exchanged while a broker serves: by a setting, or by a newer file of the same name."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.raw import Raw
from cryptography import x509
from peers.certificates import Authority, Identity, named, write_trust_pem

from headrace.client.admin import Resource, alter_configs
from headrace.client.errors import BrokerError
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

LOCATION = "listener.name.ssl.ssl.keystore.location"
TRUST = "listener.name.ssl.ssl.truststore.location"


class Place:
    """A broker with a listener of TLS, and the folder of its stores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.new()
        self.first = self.authority.server()
        self.first.write_pem(folder / "first.pem")
        self.trust = write_trust_pem(folder / "ca.pem", [self.authority])
        self.broker: TestBroker
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "first.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "ssl.client.auth": "requested",
        }

    @property
    def port(self) -> int:
        return self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == "SSL"))

    def connected(self, client: Identity | None = None) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.trust)
        if client is not None:
            context.load_cert_chain(client.write_pem(self.folder / "client.pem"))
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return context.wrap_socket(plain, server_hostname="localhost")

    def shown(self) -> int:
        """The serial number of the certificate that the next connection is shown."""
        with self.connected() as link:
            found = link.getpeercert(binary_form=True)
            assert found is not None
            return x509.load_der_x509_certificate(found).serial_number

    def set(self, name: str, value: str | None) -> None:
        with self.broker.client() as client:
            if value is None:
                alter_configs(client, Resource.BROKER, "1", delete=[name])
            else:
                alter_configs(client, Resource.BROKER, "1", set_values={name: value})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    with running_broker(made.settings, data=tmp_path / "data") as made.broker:
        yield made


def test_a_renewed_certificate_is_shown_and_old_connections_live_on(place: Place) -> None:
    before = place.shown()
    assert before == place.first.certificate.serial_number
    with place.connected() as old:
        second = place.authority.server()
        place.set(LOCATION, str(second.write_pem(place.folder / "second.pem")))
        assert place.shown() == second.certificate.serial_number != before
        assert Raw.over(old).ask(ApiVersionsRequest(), 0).error_code == 0
    place.set(LOCATION, None)
    assert place.shown() == before


def test_a_newer_file_is_read_when_its_setting_is_written_again(place: Place) -> None:
    path = place.folder / "moving.pem"
    place.first.write_pem(path)
    place.set(LOCATION, str(path))
    second = place.authority.server()
    second.write_pem(path)
    later = os.stat(path).st_mtime + 5
    os.utime(path, (later, later))
    assert place.shown() == place.first.certificate.serial_number
    place.set(LOCATION, str(path))
    assert place.shown() == second.certificate.serial_number


def test_what_cannot_be_used_is_refused_and_changes_nothing(place: Place) -> None:
    broken = place.folder / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    elsewhere = place.authority.server("elsewhere").write_pem(place.folder / "elsewhere.pem")
    fewer = place.authority.issue(named("localhost"), names=["localhost"]).write_pem(place.folder / "fewer.pem")
    for path, why in (
        (broken, "damaged"),
        (place.folder / "missing.pem", "No such file"),
        (elsewhere, "set ssl.allow.dn.changes"),
        (fewer, "set ssl.allow.san.changes"),
    ):
        with pytest.raises(BrokerError) as refused:
            place.set(LOCATION, str(path))
        assert why in str(refused.value) or path == broken
        assert "\n" not in str(refused.value)
        assert place.shown() == place.first.certificate.serial_number


def test_a_file_that_is_broken_since_keeps_what_is_in_use(place: Place) -> None:
    path = place.folder / "moving.pem"
    second = place.authority.server()
    second.write_pem(path)
    place.set(LOCATION, str(path))
    path.write_text("nothing")
    later = os.stat(path).st_mtime + 5
    os.utime(path, (later, later))
    place.set("log.cleaner.threads", "2")  # other settings are taken, whatever became of the file
    assert place.shown() == second.certificate.serial_number


def test_another_authority_is_believed_from_then_on(place: Place) -> None:
    other = Authority.new()
    ann = other.client("ann")
    with pytest.raises((ssl.SSLError, ConnectionError)), place.connected(ann) as link:
        Raw.over(link).ask(ApiVersionsRequest(), 0)
    place.set(TRUST, str(write_trust_pem(place.folder / "both.pem", [place.authority, other])))
    with place.connected(ann) as link:
        assert Raw.over(link).ask(ApiVersionsRequest(), 0).error_code == 0


def test_what_was_set_holds_after_a_restart(tmp_path: Path) -> None:
    place = Place(tmp_path)
    second = place.authority.server("renamed")  # more than a running broker would take
    with running_broker(place.settings, data=tmp_path / "data") as place.broker:
        third = place.authority.server()
        place.set(LOCATION, str(third.write_pem(tmp_path / "third.pem")))
    with running_broker(place.settings, data=tmp_path / "data") as place.broker:
        assert place.shown() == third.certificate.serial_number
    second.write_pem(tmp_path / "third.pem")
    with running_broker(place.settings, data=tmp_path / "data") as place.broker:
        assert place.shown() == second.certificate.serial_number
    (tmp_path / "third.pem").unlink()
    with running_broker(place.settings, data=tmp_path / "data") as place.broker:
        assert place.shown() == place.first.certificate.serial_number


def principals(place: Place) -> set[str]:
    port = place.port
    return place.broker.call(
        lambda inside: {each.client.principal for each in inside.server.connections if each.listener.port == port}
    )


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("RULE:^CN=(.*?)$/$1/U,DEFAULT", "User:ANN"),
        ("RULE:^OU=(.*?)$/$1/,DEFAULT", "User:CN=ann"),
        ("RULE:^OU=.*$/x/", None),
    ],
)
def test_rules_make_principals_of_names(tmp_path: Path, rules: str, principal: str | None) -> None:
    place = Place(tmp_path)
    with running_broker({**place.settings, "ssl.principal.mapping.rules": rules}) as place.broker:
        ann = place.authority.client("ann")
        if principal is None:
            with pytest.raises((ssl.SSLError, ConnectionError)), place.connected(ann) as link:
                Raw.over(link).ask(ApiVersionsRequest(), 0)
            return
        with place.connected(ann) as link:
            assert Raw.over(link).ask(ApiVersionsRequest(), 0).error_code == 0
            assert principals(place) == {principal}


def answered(link: ssl.SSLSocket) -> bool:
    return bool(Raw.over(link).ask(ApiVersionsRequest(), 0).error_code == 0)


def spoken(place: Place) -> tuple[str | None, str]:
    """The version and the cipher suite of the next connection."""
    with place.connected() as link:
        cipher = link.cipher()
        assert cipher is not None
        return link.version(), cipher[0]


@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_what_may_be_spoken_changes_while_the_broker_serves(place: Place, prefix: str) -> None:
    assert spoken(place)[0] == "TLSv1.3"
    for name, value in (("ssl.protocol", "TLSv1.2"), ("ssl.enabled.protocols", "TLSv1.2")):
        place.set(prefix + name, value)
        assert spoken(place)[0] == "TLSv1.2"
        place.set(prefix + name, None)
        assert spoken(place)[0] == "TLSv1.3"
    place.set(prefix + "ssl.cipher.suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    assert spoken(place) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")


@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_whether_clients_show_a_certificate_changes_while_the_broker_serves(place: Place, prefix: str) -> None:
    client = place.authority.client("alice")
    with place.connected() as old:
        place.set(prefix + "ssl.client.auth", "required")
        assert answered(old), "an open connection goes on"
    with place.connected(client) as link:
        assert answered(link)
    with pytest.raises((ssl.SSLError, ConnectionError)), place.connected() as link:
        answered(link)
    place.set(prefix + "ssl.client.auth", "none")
    with place.connected() as link:
        assert answered(link)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ssl.cipher.suites", "TLS_MADE_UP"), ("ssl.client.auth", "perhaps"), ("ssl.enabled.protocols", "TLSv1.1")],
)
def test_what_cannot_be_spoken_is_refused(place: Place, name: str, value: str) -> None:
    for prefix in ("", "listener.name.ssl."):
        with pytest.raises(BrokerError, match="INVALID_REQUEST|INVALID_CONFIG"):
            place.set(prefix + name, value)
    assert spoken(place)[0] == "TLSv1.3"

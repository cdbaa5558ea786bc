"""The pages of a node over TLS, and behind a token."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

import pytest
from peers.certificates import Authority, write_trust_pem

from headrace.config import ConfigError
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

PAGES = ("/livez", "/readyz", "/metrics")


def port_of(broker: TestBroker) -> int:
    port = broker.call(lambda inside: inside.monitor.port)
    assert port is not None
    return port


def status(link: http.client.HTTPConnection, path: str, token: str | None = None) -> int:
    link.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    answer = link.getresponse()
    body = answer.read()
    assert b"open-sesame" not in body
    if answer.status == 401:
        assert answer.getheader("WWW-Authenticate") == "Bearer"
    return answer.status


def test_whoever_does_not_show_the_token_sees_no_page() -> None:
    with running_broker({"metrics.listener": "127.0.0.1:0", "metrics.token": "open-sesame"}) as broker:
        link = http.client.HTTPConnection("127.0.0.1", port_of(broker), timeout=60)
        for page in (*PAGES, "/nowhere"):
            assert status(link, page) == 401
            assert status(link, page, "open") == 401
            assert status(link, page, "") == 401
        assert [status(link, page, "open-sesame") for page in (*PAGES, "/nowhere")] == [200, 200, 200, 404]
        link.close()


def test_pages_over_tls(tmp_path: Path) -> None:
    authority = Authority.new()
    settings = {
        "metrics.listener": "127.0.0.1:0",
        "metrics.protocol": "SSL",
        "metrics.token": "open-sesame",
        "listener.name.metrics.ssl.keystore.type": "PEM",
        "listener.name.metrics.ssl.keystore.location": str(authority.server().write_pem(tmp_path / "own.pem")),
    }
    context = ssl.create_default_context(cafile=write_trust_pem(tmp_path / "ca.pem", [authority]))
    with running_broker(settings) as broker:
        link = http.client.HTTPSConnection("localhost", port_of(broker), timeout=60, context=context)
        assert [status(link, page, "open-sesame") for page in PAGES] == [200, 200, 200]
        link.close()
        plain = http.client.HTTPConnection("127.0.0.1", port_of(broker), timeout=60)
        with pytest.raises((http.client.HTTPException, OSError)):
            status(plain, "/livez", "open-sesame")
        plain.close()


def test_pages_whose_keys_cannot_be_used_keep_the_broker_from_starting() -> None:
    settings = {"metrics.listener": "127.0.0.1:0", "metrics.protocol": "SSL"}
    with pytest.raises(ConfigError, match=r"listener.name.metrics.ssl.keystore.location"), running_broker(settings):
        pass

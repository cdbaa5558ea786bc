"""Tokens that an issuer gives for an id and a secret: real servers that give them, refuse, go away, drip and lie."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.bearer import SIGNED, published, signed, token
from peers.certificates import Authority, write_trust_pem
from peers.kafka import free_port
from security.oauthbearer.issuing import jwks

import headrace.testing
from headrace.client import token_endpoint
from headrace.client.admin import create_topic
from headrace.client.async_connection import AsyncConnection
from headrace.client.cluster import Client
from headrace.client.login import NotLoggedInError
from headrace.client.security import security_of, tls_context
from headrace.client.token_endpoint import TokenEndpoint, grant_of
from headrace.config import ConfigError
from headrace.config.oauth import ALLOWED_URLS, CLIENT_ID, CLIENT_SECRET, READ_MS, RETRY_MAX_MS, RETRY_MS, TOKEN_URL
from headrace.env.posix_node import PosixNode
from headrace.security.jaas import OAUTHBEARER_MODULE
from headrace.security.login import LoginFailedError
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataResponse

SECRET = "hunter2 & co"


class Issuer:
    """What it answers, one after the other and then the last again: a status and a body; and what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = [(200, answer())]
        self.asked: list[tuple[str, str, str]] = []
        """Path, Authorization, body."""
        self.began = threading.Event()
        self.wait_s = 0.0
        self.url = ""

    def settings(self, **more: str) -> dict[str, str]:
        return {
            TOKEN_URL: self.url, ALLOWED_URLS: f"http://other/,{self.url}", CLIENT_ID: "ann", CLIENT_SECRET: SECRET,
            RETRY_MS: "10", RETRY_MAX_MS: "300", **more,
        }  # fmt: skip

    def endpoint(self, options: dict[str, str] | None = None, **more: str) -> TokenEndpoint:
        return TokenEndpoint(grant_of(self.settings(**more), options or {}), tls_context)


def answer(text: str | None = None, **more: Any) -> bytes:
    return json.dumps({"access_token": text or token(), "token_type": "Bearer", **more}).encode()


@contextmanager
def issuing(context: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            issuer.began.set()
            issuer.asked.append((self.path, self.headers["Authorization"], body))
            time.sleep(issuer.wait_s)
            status, data = issuer.answers.pop(0) if len(issuer.answers) > 1 else issuer.answers[0]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        scheme = "http" if context is None else "https"
        issuer.url = f"{scheme}://localhost:{server.server_address[1]}/token"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


def basic(name: str, secret: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{secret}'.encode()).decode()}"


def test_what_the_issuer_is_asked(issuer: Issuer) -> None:
    issuer.endpoint().token()
    issuer.endpoint({"scope": "read write"}).token()
    issuer.endpoint({"clientId": "bob"}, **{"sasl.oauthbearer.header.urlencode": "true"}).token()
    assert issuer.asked == [
        ("/token", basic("ann", SECRET), "grant_type=client_credentials"),
        ("/token", basic("ann", SECRET), "grant_type=client_credentials&scope=read+write"),
        ("/token", basic("ann", "hunter2+%26+co"), "grant_type=client_credentials"),
    ]


def test_a_token_is_kept_for_a_share_of_its_life(issuer: Issuer) -> None:
    endpoint = issuer.endpoint()
    assert endpoint.token() == endpoint.token() and len(issuer.asked) == 1
    issuer.answers = [(200, answer("opaque", expires_in=3600))]
    endpoint = issuer.endpoint()
    assert endpoint.token() == endpoint.token() == "opaque" and len(issuer.asked) == 2
    issuer.answers = [(200, answer("nobody-says"))]
    endpoint = issuer.endpoint()
    assert endpoint.token() == endpoint.token() and len(issuer.asked) == 4


@pytest.mark.parametrize("said", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "true", '"soon"', "null", "-5"])
def test_a_life_that_nobody_can_count_is_none(issuer: Issuer, said: str) -> None:
    """Neither the issuer nor the token says when it ends; so the next login asks again."""
    claims = base64.urlsafe_b64encode(f'{{"exp": {said}}}'.encode()).decode().rstrip("=")
    for text in ("opaque", f"e30.{claims}."):
        issuer.asked.clear()
        issuer.answers = [(200, f'{{"access_token": "{text}", "expires_in": {said}}}'.encode())]
        endpoint = issuer.endpoint()
        assert endpoint.token() == endpoint.token() == text and len(issuer.asked) == 2


def test_an_old_token_is_shown_while_the_issuer_is_away(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(token_endpoint, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time, sleep=sleep))
    issuer.answers = [(200, answer("first", expires_in=2)), (503, b"")]
    endpoint = issuer.endpoint()
    assert endpoint.token() == "first"
    now_s += 1.65
    assert endpoint.token() == endpoint.token() == "first" and len(issuer.asked) == 2
    now_s += 0.4
    with pytest.raises(LoginFailedError, match="status 503"):
        endpoint.token()


def test_failures_that_pass_are_waited_out(issuer: Issuer) -> None:
    good = issuer.answers[0]
    issuer.answers = [(503, b""), (429, b""), (500, b""), good]
    assert issuer.endpoint().token() and len(issuer.asked) == 4


@pytest.mark.parametrize(
    ("answered", "why"),
    [
        ((401, b'{"error": "hunter2"}'), "status 401"),
        ((400, b""), "status 400"),
        ((200, b"hunter2"), "holds no access_token"),
        ((200, b"[" * 9999), "holds no access_token"),
        ((200, b'{"access_token": 7}'), "holds no access_token"),
        ((200, b"x" * (1 << 19)), "more than 262144 bytes"),
        ((302, b""), "names another address, which is not followed"),
    ],
)
def test_what_is_no_token(issuer: Issuer, answered: tuple[int, bytes], why: str) -> None:
    issuer.answers = [answered]
    with pytest.raises(LoginFailedError, match=why) as failed:
        issuer.endpoint().token()
    assert "hunter2" not in str(failed.value) and {path for path, *_ in issuer.asked} == {"/token"}
    if answered[0] in (400, 401):
        assert len(issuer.asked) == 1


def test_an_issuer_that_is_slow_or_not_there(issuer: Issuer) -> None:
    issuer.wait_s = 20
    began = time.monotonic()
    with pytest.raises(LoginFailedError, match="too long"):
        issuer.endpoint({}, **{READ_MS: "100", "sasl.login.connect.timeout.ms": "100"}).token()
    assert time.monotonic() - began < issuer.wait_s
    gone = f"http://127.0.0.1:{free_port()}/token?key=hunter2"
    settings = issuer.settings(**{TOKEN_URL: gone, ALLOWED_URLS: gone})
    with pytest.raises(LoginFailedError, match="Connection refused") as failed:
        TokenEndpoint(grant_of(settings, {}), tls_context).token()
    assert "hunter2" not in str(failed.value)


def test_https_is_checked_by_the_jaas_line(tmp_path: Path) -> None:
    authority = Authority.new()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server().write_pem(tmp_path / "server.pem"))
    trust = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(write_trust_pem(tmp_path / "ca", [authority])),
    }
    with issuing(context) as issuer:
        assert issuer.endpoint(trust).token()
        began = time.monotonic()
        wrong: list[dict[str, str]] = [{}, {**trust, "ssl.truststore.location": str(tmp_path / "none")}]
        for options in wrong:
            with pytest.raises(LoginFailedError) as failed:
                issuer.endpoint(options, **{RETRY_MAX_MS: "60000"}).token()
            assert SECRET not in str(failed.value)
        assert time.monotonic() - began < 10 and len(issuer.asked) == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({ALLOWED_URLS: ""}, "it is not allowed: sasl.oauthbearer.allowed.urls must name it too"),
        ({CLIENT_ID: ""}, "may give it as clientId"),
        ({CLIENT_SECRET: ""}, "may give it as clientSecret"),
        ({RETRY_MS: "soon"}, "sasl.login.retry.backoff.ms"),
        ({TOKEN_URL: "https://ann:hunter2@issuer/"}, "nobody's password"),
        ({TOKEN_URL: "ftp://issuer/"}, "must begin with"),
    ],
)
def test_properties_that_cannot_be(issuer: Issuer, changed: dict[str, str], why: str) -> None:
    own = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **issuer.settings(**changed)}
    with pytest.raises(ConfigError, match=why) as refused:
        security_of(own)
    assert "hunter2" not in str(refused.value)
    assert not issuer.asked


def test_clients_log_in_with_one_token_for_all_connections(issuer: Issuer) -> None:
    own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **issuer.settings()}
    own |= {"sasl.jaas.config": f'{OAUTHBEARER_MODULE} required scope="kafka";'}
    with published() as keys, running_broker(signed(keys.url)) as broker:
        for name in ("a", "b"):
            with Client(broker.bootstrap, timeout_s=10, security=own) as client:
                create_topic(client, name)
        assert len(issuer.asked) == 1
        issuer.answers = [(401, b"")]
        other = {**own, CLIENT_ID: "stranger"}
        with pytest.raises(NotLoggedInError, match="status 401"), Client(broker.bootstrap, security=other) as client:
            client.refresh([])


@pytest.fixture
async def node() -> AsyncIterator[PosixNode]:
    made = PosixNode(worker_threads=1, sync_threads=1)
    yield made
    assert made.defects.first is None
    await made.close()


async def test_an_issuer_that_takes_its_time_holds_one_worker_and_no_loop(node: PosixNode, issuer: Issuer) -> None:
    """Many connections wait for one answer, and what else is on the loop goes on."""
    issuer.wait_s = 0.6
    own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **issuer.settings()}
    longest_s = 0.0

    async def ticking() -> None:
        nonlocal longest_s
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.monotonic() - began)

    owner = node.owner("test")

    async def opened(port: int, count: int, **more: str) -> list[Any]:
        security = security_of({**own, **more}).open()
        opening = [
            AsyncConnection.open(node, owner, "127.0.0.1", port, client_id="t", timeout_s=10, security=security)
            for _ in range(count)
        ]
        return await asyncio.gather(*opening, return_exceptions=True)

    with published() as keys, running_broker(signed(keys.url)) as broker:
        ticks = asyncio.ensure_future(ticking())
        asking = asyncio.ensure_future(opened(broker.port, 1))
        assert await asyncio.to_thread(issuer.began.wait, 10)
        assert await node.workers.run(lambda: "a disk") == "a disk" and not asking.done()
        for each in await asking:
            assert isinstance(each, AsyncConnection)
            each.close()
        for each in await opened(broker.port, 8):
            assert isinstance(each, AsyncConnection)
            each.close()
        assert len(issuer.asked) == 1
        issuer.answers = [(401, b"")]
        failures = await opened(broker.port, 3, **{CLIENT_ID: "stranger"})
        assert all(isinstance(each, NotLoggedInError) and SECRET not in str(each) for each in failures)
        assert len(issuer.asked) == 2
        ticks.cancel()
    owner.close()
    assert longest_s < 0.5


@pytest.mark.slow
async def test_a_session_of_a_node_goes_on_with_the_next_token(node: PosixNode, issuer: Issuer) -> None:
    """The issuer takes its time meanwhile, and what is asked over the connection is answered."""
    issuer.answers = [(200, answer(token(exp=int(time.time()) + 3))), (200, answer())]
    own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **issuer.settings()}
    owner = node.owner("test")
    with published() as keys, running_broker(signed(keys.url)) as broker:
        security = security_of(own).open()
        opened = await AsyncConnection.open(
            node, owner, "127.0.0.1", broker.port, client_id="t", timeout_s=10, security=security
        )
        ends = time.monotonic() + 4
        while time.monotonic() < ends:
            await opened.ask(MetadataRequest(), MetadataResponse, timeout_s=5)
            await asyncio.sleep(0.05)
        assert len(issuer.asked) == 2 and not opened.closed
        opened.close()
    owner.close()


def test_nodes_log_in_to_each_other(tmp_path: Path, issuer: Issuer) -> None:
    keys, ports = tmp_path / "keys.json", {node: free_port() for node in (1, 2, 3)}
    keys.write_bytes(jwks())
    issuer.answers = [(200, answer(token(sub="node")))]
    settings = issuer.settings(**{ALLOWED_URLS: f"{keys.as_uri()},{issuer.url}", READ_MS: "4000"})
    node = {
        "controller.quorum.voters": ",".join(f"{each}@localhost:{at}" for each, at in ports.items()),
        "advertised.listeners": "INSIDE://localhost:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.server.callback.handler.class": SIGNED,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        **settings,
    }
    nodes: dict[int, dict[str, Any]] = {
        each: {**node, "listeners": f"INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"}
        for each, port in ports.items()
    }
    with headrace.testing.cluster(nodes=nodes) as running:
        leader = running.controller()
        names = running.nodes[leader].call(lambda broker: {each.client.principal for each in broker.server.connections})
        assert "User:node" in names
        # each node asks for the ways to brokers and to controllers, however many connections it has
        assert len(issuer.asked) <= 2 * len(ports)
        assert {who for _, who, _ in issuer.asked} == {basic("ann", SECRET)}

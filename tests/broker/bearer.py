"""An issuer whose keys are published over HTTP, and listeners that take its tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from security.oauthbearer.issuing import issued, jwks

from headrace.security.jaas import OAUTHBEARER_MODULE

MODULE = f"{OAUTHBEARER_MODULE} required;"
SIGNED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ISSUER = "https://issuer"
SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "connection.failed.authentication.delay.ms": "20",
}
UNSECURED = {**SETTINGS, "listener.name.clients.oauthbearer.sasl.jaas.config": MODULE}
"""Takes what nobody has signed."""


def signed(url: str, **more: str) -> dict[str, str]:
    """Settings of a listener that takes tokens of the issuer whose keys are at `url`; underscores in further ones stand
    for dots."""
    return {
        **SETTINGS,
        "sasl.oauthbearer.allowed.urls": url,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": SIGNED,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def current(**more: Any) -> dict[str, Any]:
    """Good claims as of now, with others in their place; None takes one away."""
    now = int(time.time())
    good = {"sub": "ann", "iat": now - 60, "exp": now + 600, "aud": "kafka", "iss": ISSUER, **more}
    return {name: value for name, value in good.items() if value is not None}


def token(key_id: str | None = "rsa", **more: Any) -> str:
    """A token of the issuer's that is good now."""
    return issued(current(**more), key_id)


def message(text: str, authzid: str = "") -> bytes:
    """What a client says first."""
    return f"n,{authzid},\x01auth=Bearer {text}\x01\x01".encode()


class Published:
    """What an HTTP server answers, and how often it was asked."""

    def __init__(self) -> None:
        self.body = jwks()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.drip_s = 0.0
        """Between any two bytes of the body."""
        self.asked = 0
        self.url = ""


@contextmanager
def published() -> Iterator[Published]:
    """A server, on this machine, for as long as it is entered."""
    state = Published()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked += 1
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in state.headers:
                self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            if state.drip_s:
                for byte in state.body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(state.drip_s)
            else:
                self.wfile.write(state.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()

"""Fetching from web servers that are kind, that are slow, and that send too much or elsewhere."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.bearer import Published, published
from peers.certificates import Authority, write_trust_pem

from headrace.env.posix_web import PosixWeb


@pytest.fixture
def server() -> Iterator[Published]:
    with published() as state:
        yield state


def fetch(url: str, bytes_max: int = 1 << 20, timeout_s: float = 5.0) -> bytes:
    return PosixWeb().fetch(url, bytes_max=bytes_max, timeout_s=timeout_s)


def test_what_is_published(server: Published) -> None:
    assert fetch(server.url) == server.body
    assert fetch(server.url + "?a=b", len(server.body)) == server.body
    with pytest.raises(OSError, match="more than 10 bytes"):
        fetch(server.url, 10)


def test_a_server_that_says_no(server: Published) -> None:
    server.status = 503
    with pytest.raises(OSError, match="status 503"):
        fetch(server.url)


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            fetch(f"http://127.0.0.1:{held.getsockname()[1]}/")


def test_a_server_that_drips(server: Published) -> None:
    server.drip_s = 0.05
    began = time.monotonic()
    with pytest.raises(OSError, match="too long"):
        fetch(server.url, timeout_s=0.5)
    assert 0.4 < time.monotonic() - began < 3


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(OSError, match="too long"):
            fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3)
        with pytest.raises(OSError, match="too long"):
            fetch(f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3)


def test_a_server_that_ends_too_early(server: Published) -> None:
    server.headers = {"Content-Length": str(len(server.body) + 1), "Connection": "close"}
    with pytest.raises(OSError, match="ends before its answer does|cannot be read"):
        fetch(server.url)


def test_redirections(server: Published) -> None:
    server.status, server.headers = 302, {"Location": "/other"}
    with pytest.raises(OSError, match="more than 5 times"):
        fetch(server.url)
    assert server.asked == 6
    for elsewhere in (
        "file:///etc/passwd",
        "http://localhost:1/",
        "ftp://127.0.0.1/",
        "https://127.0.0.1/",
        "//other/",
    ):
        server.headers = {"Location": elsewhere}
        with pytest.raises(OSError, match="another server"):
            fetch(server.url)
    assert server.asked == 11


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "http:///x", "data:,x", "http://[::1", ""])
def test_other_addresses(url: str) -> None:
    with pytest.raises(OSError):
        fetch(url)


def test_garbage_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(1000)
                link.sendall(b"\x00\x01\x02 garbage\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="cannot be read"):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()


def test_https_is_checked(tmp_path: Path) -> None:
    authority = Authority.new()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server().write_pem(tmp_path / "server.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            for _ in range(2):
                link, _ = listener.accept()
                try:
                    with context.wrap_socket(link, server_side=True) as secure:
                        secure.recv(1000)
                        secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                except OSError:
                    link.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch(f"https://localhost:{port}/")
        trusted = ssl.create_default_context(cafile=str(write_trust_pem(tmp_path / "ca.pem", [authority])))
        web = PosixWeb()
        assert web.fetch(f"https://localhost:{port}/", bytes_max=9, timeout_s=5, context=trusted) == b"hi"
        thread.join()

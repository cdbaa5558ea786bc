"""Which listeners are open to whoever reaches them, and what `security.strict` makes of it."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError
from headrace.config.exposure import exposure_warnings, is_loopback, open_listeners


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "localhost.example", "127.0.0.1.x"]
)
def test_other_machines(host: str) -> None:
    assert not is_loopback(host)


def config(**more: str) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "listeners": "A://0.0.0.0:1,B://0.0.0.0:2,C://0.0.0.0:3,D://127.0.0.1:4,E://0.0.0.0:5,F://0.0.0.0:6",
            "advertised.listeners": ",".join(f"{name}://h:{port}" for port, name in enumerate("ABCDEF", 1)),
            "listener.security.protocol.map": "A:PLAINTEXT,B:SSL,C:SASL_PLAINTEXT,D:PLAINTEXT,E:SSL,F:SASL_SSL",
            "inter.broker.listener.name": "D",
            "ssl.keystore.location": "x",
            "listener.name.e.ssl.client.auth": "required",
            **{name.replace("_", "."): text for name, text in more.items()},
        }
    )


def test_a_login_or_a_certificate_closes_a_listener_and_encryption_does_not() -> None:
    assert [point.name for point in open_listeners(config())] == ["A", "B"]
    assert [point.name for point in open_listeners(config(ssl_client_auth="required"))] == ["A"]
    assert [point.name for point in open_listeners(config(ssl_client_auth="requested"))] == ["A", "B"]
    lines = exposure_warnings(config())
    assert len(lines) == 2 and "listener B at 0.0.0.0:2" in lines[1] and not any("\n" in line for line in lines)


def test_strict_refuses_the_first_that_is_open() -> None:
    with pytest.raises(ConfigError, match="listener A at 0.0.0.0:1 lets in anyone .* security.strict=true"):
        config(security_strict="true")
    strict = {"listeners": "C://0.0.0.0:3,D://127.0.0.1:4", "advertised_listeners": "C://h:3,D://h:4"}
    assert open_listeners(config(security_strict="true", **strict)) == ()

"""What a listener asks of its clients by its settings, and settings that ask for what is not served."""

from __future__ import annotations

import pytest
from broker.sasl import SETTINGS

from headrace.config import ConfigError
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import broker

LINE = "listener.name.clients.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "mechanism GSSAPI is not served"),
        ({"sasl.enabled.mechanisms": ""}, "offers no mechanism"),
        ({"listener.name.clients.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "for signed tokens"),
        ({"sasl.server.callback.handler.class": "org.example.Mine"}, "org.example.Mine"),
        ({"listener.name.clients.plain.sasl.server.callback.handler.class": "org.example.Mine"}, "org.example.Mine"),
        ({LINE: f"{SCRAM_MODULE} required;"}, "the login module of PLAIN"),
        ({LINE: "org.example.Module required user_ann=secret;"}, "org.example.Module is not known"),
        ({LINE: "com.sun.security.auth.module.JndiLoginModule required;"}, "JndiLoginModule is refused"),
        ({LINE: f"{PLAIN_MODULE} required user_ann=secret"}, "a semicolon"),
        ({"listener.name.clients.scram-sha-256.sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "SCRAM-SHA-256"),
    ],
)
def test_what_is_not_served_refuses_to_start_in_one_line(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused, broker({**SETTINGS, **settings}):
        pass
    assert words in str(refused.value)
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)


def test_plain_needs_its_users() -> None:
    settings = {name: text for name, text in SETTINGS.items() if name != LINE}
    with pytest.raises(ConfigError, match=f"PLAIN needs its users: {LINE}"), broker(settings):
        pass

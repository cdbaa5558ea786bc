"""What a listener asks of its clients by its settings, and settings that ask for what is not served."""

from __future__ import annotations

import sys

import pytest
from broker.sasl import SETTINGS

from headrace.broker.requests.login_terms import ImageUsers, shared_secret
from headrace.config import ConfigError
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.metadata.scram_credentials import SCRAM_SHA_256
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import broker
from headrace.wire.messages import metadata_records as mr

LINE = "listener.name.clients.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.enabled.mechanisms": "ANONYMOUS"}, "mechanism ANONYMOUS is not served"),
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


def test_kerberos_without_its_extra_refuses_to_start_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "headrace.env.posix_gssapi", raising=False)
    monkeypatch.delattr("headrace.env.posix_gssapi", raising=False)
    with pytest.raises(ConfigError) as refused, broker({**SETTINGS, "sasl.enabled.mechanisms": "GSSAPI"}):
        pass
    assert "pip install 'headrace[kerberos]'" in str(refused.value) and "\n" not in str(refused.value)


def test_plain_needs_its_users() -> None:
    settings = {name: text for name, text in SETTINGS.items() if name != LINE}
    with pytest.raises(ConfigError, match=f"PLAIN needs its users: {LINE}"), broker(settings):
        pass


# --- users whom nobody made


def image_of(*records: object) -> ClusterImage:
    delta = ImageDelta(ClusterImage())
    delta.apply_all(records)
    return delta.image(offset=len(records), epoch=1, timestamp_ms=0)


def registered(broker_id: int, *directories: bytes) -> mr.RegisterBrokerRecord:
    return mr.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id, log_dirs=list(directories))


def test_what_a_cluster_shares_stays_when_others_come_and_go() -> None:
    first, second, third = (bytes([number]) * 16 for number in (9, 1, 2))
    assert shared_secret(image_of(registered(4, first))) == first
    assert shared_secret(image_of(registered(7, second), registered(4, first))) == first
    assert shared_secret(image_of(registered(7, second), registered(4, first, third))) == third
    # A broker of an earlier metadata.version registers no directories.
    assert shared_secret(image_of(registered(4), registered(7, second))) == second
    assert shared_secret(image_of(registered(4))) is None
    assert shared_secret(ClusterImage()) is None


def test_made_up_users_follow_the_cluster() -> None:
    cluster = registered(1, b"d" * 16)
    strong = mr.UserScramCredentialRecord(name="ann", mechanism=1, salt=b"s" * 64, iterations=8192)
    images = [image_of(registered(1)), image_of(cluster), image_of(cluster, strong)]
    users = [ImageUsers(lambda: images[0], own) for own in (b"one" * 8, b"other" * 8)]

    def said() -> list[tuple[bytes, int]]:
        made = [each.fake(SCRAM_SHA_256, "nobody", is_token=False) for each in users]
        return [(each.salt, each.iterations) for each in made]

    # Where the cluster shares nothing, each node has its own.
    assert len(set(said())) == 2 and said() == said()
    images.pop(0)
    assert len(set(said())) == 1
    alone = said()
    images.pop(0)
    assert len(set(said())) == 1 and said() != alone
    assert {(len(salt), iterations) for salt, iterations in said()} == {(64, 8192)}

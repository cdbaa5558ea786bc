"""The audit log: who was refused what, whose login failed and why, who altered what; nothing that a stranger can forge,
no secret, and no more lines than the disk is to hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker import tokens
from broker.guarded import CLIENT, OPEN_WITHOUT_ACLS, OWNER, acl, create, delete, everything
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.sasl import SETTINGS, handshake, plain, scram, token

from headrace.broker.telemetry.audit import CHANGES_LOGGED_MAX, NAME_CHARS_MAX, AuditLog
from headrace.broker.telemetry.metrics import Registry
from headrace.broker.telemetry.pace import SUBJECT_LINES_PER_S
from headrace.env.posix_node import PosixLogSink
from headrace.metadata.acls import AclBinding
from headrace.security.authorizer import Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k49_alter_client_quotas as k49
from headrace.wire.messages import k51_alter_user_scram_credentials as k51
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k16_list_groups import ListGroupsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.metadata_records import DelegationTokenRecord

LOGGER = "headrace.authorizer"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines so far."""
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    return lambda: [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.fixture
def guarded() -> Iterator[TestBroker]:
    with running_broker(OPEN_WITHOUT_ACLS) as broker:
        with Raw(broker.port) as raw:
            assert create(raw, *everything(OWNER)) == [0] * 4
        yield broker


def counted(broker: TestBroker, name: str) -> float:
    return broker.call(lambda inside: inside.metrics.counter(name).value)


def test_a_denial_has_a_line(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    create_topic(guarded.port, "orders")
    with Raw(guarded.port, source=CLIENT) as raw:
        answer = raw.ask(produce("orders", batch(b"x")), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raw.ask(CreateTopicsRequest([CreatableTopic("mine", 1, 1)]), 7)
        raw.ask(fetch("orders"), 12)
    denied = [line for line in said() if line.startswith("denied")]
    who = f"denied principal=User:ANONYMOUS host={CLIENT}"
    assert denied == [
        f"{who} operation=WRITE resource=TOPIC name=orders api=produce",
        f"{who} operation=CREATE resource=TOPIC name=mine api=create_topics",
        f"{who} operation=READ resource=TOPIC name=orders api=fetch",
    ]
    assert counted(guarded, "authorizer.denied") == 3


def test_what_is_left_out_of_a_list_is_no_denial(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    create_topic(guarded.port, "orders")
    with Raw(guarded.port, source=CLIENT) as raw:
        assert raw.ask(MetadataRequest(None, False), 12).topics == []
        raw.ask(ListGroupsRequest(), 4)
    assert not [line for line in said() if line.startswith("denied")]


def test_topics_that_a_pattern_does_not_mean_are_no_denials(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    """With such a pattern a client would fill the lines that its address has, and do unseen what is denied."""
    for number in range(SUBJECT_LINES_PER_S):
        create_topic(guarded.port, f"hidden-{number}")
    with Raw(guarded.port) as raw:
        create(raw, acl(ResourceType.GROUP, "g", Operation.READ))
    with Raw(guarded.port, source=CLIENT) as raw:
        raw.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        joins = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=60_000, subscribed_topic_regex=".*", topic_partitions=[]
        )
        joined = raw.ask(joins, 1)
        assert joined.error_code == 0
        stays = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=joined.member_epoch)
        assert raw.ask(stays, 1).error_code == 0
        raw.ask(fetch("hidden-0"), 12)
    who = f"denied principal=User:ANONYMOUS host={CLIENT}"
    denied = [line for line in said() if line.startswith("denied")]
    assert denied == [f"{who} operation=READ resource=TOPIC name=hidden-0 api=fetch"]


def test_a_name_forges_no_line(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    name = "x\nINFO denied principal=User:root\r\x1b[2J\u202e" + "n" * 1000
    with Raw(guarded.port, source=CLIENT) as raw:
        raw.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)
    (line,) = [line for line in said() if line.startswith("denied")]
    assert line.isprintable() and len(line) < NAME_CHARS_MAX + 300
    assert '"x\\nINFO denied principal=User:root\\r' in line


def test_who_alters_acls_is_told(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    with Raw(guarded.port) as raw:
        create(raw, acl(ResourceType.TOPIC, "t", Operation.READ, principal="User:ann", host="*"))
        delete(raw, name="t")
        bad = acl(ResourceType.TOPIC, "", Operation.READ)
        assert create(raw, bad) != [0]
    by = f"by=User:ANONYMOUS host={OWNER}"
    rule = '"ALLOW User:ann from * READ on TOPIC:LITERAL:t"'
    assert said()[-2:] == [f"ACL created {by} acl={rule}", f"ACL deleted {by} acl={rule}"]


def test_who_alters_users_is_told(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    request = k51.AlterUserScramCredentialsRequest(
        [k51.ScramCredentialDeletion("nobody", 1)],
        [
            k51.ScramCredentialUpsertion(name, mechanism, iterations, b"salt" * 4, b"salted-password".ljust(32))
            for name, mechanism, iterations in (("ann", 1, 4096), ("b\nob", 2, 4096), ("few", 1, 7))
        ],
    )
    with Raw(guarded.port) as raw, Raw(guarded.port, source=CLIENT) as stranger:
        assert stranger.ask(request, 0).results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert sum(each.error_code == 0 for each in raw.ask(request, 0).results) == 2
        raw.ask(k51.AlterUserScramCredentialsRequest([k51.ScramCredentialDeletion("ann", 1)], []), 0)
    by = f"by=User:ANONYMOUS host={OWNER}"
    assert [line for line in said() if not line.startswith("ACL")] == [
        f"denied principal=User:ANONYMOUS host={CLIENT} operation=ALTER resource=CLUSTER name=kafka-cluster "
        "api=alter_user_scram_credentials",
        f"user set {by} user=ann mechanism=SCRAM-SHA-256",
        f'user set {by} user="b\\nob" mechanism=SCRAM-SHA-512',
        f"user deleted {by} user=ann mechanism=SCRAM-SHA-256",
    ]
    assert "salt" not in "".join(said())


def test_who_alters_quotas_is_told(guarded: TestBroker, said: Callable[[], list[str]]) -> None:
    def entry(rate: float, *entity: tuple[str, str | None]) -> k49.EntryData:
        parts = [k49.EntityData(kind, name) for kind, name in entity]
        ops = [k49.OpData("producer_byte_rate", rate), k49.OpData("consumer_byte_rate", remove=True)]
        return k49.EntryData(parts, ops)

    entries = [entry(1024.0, ("user", "a nn"), ("client-id", None)), entry(-1.0, ("user", "bob"))]
    with Raw(guarded.port) as raw, Raw(guarded.port, source=CLIENT) as stranger:
        stranger.ask(k49.AlterClientQuotasRequest(entries), 1)
        raw.ask(k49.AlterClientQuotasRequest(entries, validate_only=True), 1)
        assert sum(each.error_code == 0 for each in raw.ask(k49.AlterClientQuotasRequest(entries), 1).entries) == 1
    assert [line for line in said() if not line.startswith("ACL")] == [
        f"denied principal=User:ANONYMOUS host={CLIENT} operation=ALTER_CONFIGS resource=CLUSTER name=kafka-cluster "
        "api=alter_client_quotas",
        f'quota set by=User:ANONYMOUS host={OWNER} client_id=<default> user="a nn" '
        'quotas="producer_byte_rate=1024.0 consumer_byte_rate=none"',
    ]


def test_who_alters_tokens_is_told(said: Callable[[], list[str]]) -> None:
    with running_broker(tokens.SETTINGS) as broker:
        with tokens.enter(broker.port, "ann") as ann, tokens.enter(broker.port, "cy") as cy:
            made = tokens.create(ann, "User:bob")
            renewed = tokens.renew(ann, made.hmac, 60_000)
            assert tokens.renew(cy, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            assert tokens.expire(cy, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            assert tokens.expire(cy, b"guessed").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            expired = tokens.expire(ann, made.hmac)
    what = f"by=User:ann host=127.0.0.1 token={made.token_id} owner=User:ann renewers=User:bob until_ms="
    who = "denied principal=User:cy host=127.0.0.1 operation=ALTER resource=DELEGATION_TOKEN"
    assert said() == [
        f"token created {what}{made.expiry_timestamp_ms}",
        f"token renewed {what}{renewed.expiry_timestamp_ms}",
        f"{who} name={made.token_id} api=renew_delegation_token",
        f"{who} name={made.token_id} api=expire_delegation_token",
        f"token expired {what}{expired.expiry_timestamp_ms}",
    ]


def test_what_is_allowed_is_told_where_it_is_wanted(said: Callable[[], list[str]]) -> None:
    settings = {**OPEN_WITHOUT_ACLS, "audit.allowed": True, "super.users": "User:ANONYMOUS"}
    with running_broker(settings) as broker:
        create_topic(broker.port, "orders")
        with Raw(broker.port) as raw:
            for _ in range(5):  # the short path would skip all but the first
                raw.ask(produce("orders", batch(b"x")), 9)
    written = "allowed principal=User:ANONYMOUS host=127.0.0.1 operation=WRITE resource=TOPIC name=orders api=produce"
    assert said().count(written) == 5


def test_a_login_that_fails_is_told(said: Callable[[], list[str]]) -> None:
    with running_broker(SETTINGS) as broker:
        with Raw(broker.port) as raw:
            plain(raw, b"\0ann\0secret-word")
        with Raw(broker.port) as raw:
            scram(raw, "no\nbody", "secret-word", "SCRAM-SHA-512")
        with Raw(broker.port) as raw:
            handshake(raw, "GSSAPI")
        with Raw(broker.port) as raw:
            handshake(raw)
            token(raw, b"secret-word")
    failed = [line for line in said() if line.startswith("login failed")]
    assert [line.partition(" why=")[0] for line in failed] == [
        "login failed principal=User:ann mechanism=PLAIN host=127.0.0.1",
        'login failed principal="User:no\\nbody" mechanism=SCRAM-SHA-512 host=127.0.0.1',
        'login failed principal="" mechanism="" host=127.0.0.1',
        'login failed principal="" mechanism=PLAIN host=127.0.0.1',
    ]
    assert all(line.partition(" why=")[2] for line in failed) and "GSSAPI" in failed[2]
    assert "secret-word" not in "".join(said())


class At:
    """A clock."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def audit(at: At, lines_per_s: int) -> tuple[AuditLog, Registry]:
    metrics = Registry()
    return AuditLog(PosixLogSink(logging.getLogger(LOGGER)), at, metrics, lines_per_s=lines_per_s), metrics


def refuse(log: AuditLog, name: str, host: str = "10.0.0.1") -> None:
    log.decided(f"User:{name}", host, Operation.READ, ResourceType.TOPIC, "t", 1, allowed=False)


def test_a_flood_has_few_lines_and_hides_nobody(said: Callable[[], list[str]]) -> None:
    at = At()
    log, metrics = audit(at, 100)
    for _ in range(1000):
        refuse(log, "flood")
    refuse(log, "ann")
    assert len(said()) == SUBJECT_LINES_PER_S + 1
    assert "User:ann" in said()[-1] and said()[-1].endswith(f" left_out={1000 - SUBJECT_LINES_PER_S}")
    for number in range(1000):
        refuse(log, f"flood-{number}")
    assert len(said()) == 100
    at.now = 1.0
    refuse(log, "flood")
    assert said()[-1].endswith(f" left_out={1000 - (100 - SUBJECT_LINES_PER_S - 1)}")
    assert metrics.counter("authorizer.denied").value == 2002
    assert metrics.counter("audit.lines_left_out").value == 2002 - len(said())


def test_a_flood_of_renewals_has_few_lines(said: Callable[[], list[str]]) -> None:
    at = At()
    log, metrics = audit(at, 100)
    token = DelegationTokenRecord(owner="User:ann", token_id="id", renewers=["User:bob"] * 500)
    for _ in range(1000):
        log.token_altered("renewed", "User:ann", "10.0.0.1", token)
    refuse(log, "eve")
    assert len(said()) == SUBJECT_LINES_PER_S + 1 and all(len(line) < 2 * NAME_CHARS_MAX for line in said())
    at.now = 1.0
    log.token_altered("renewed", "User:ann", "10.0.0.1", token)
    assert said()[-1].endswith(f" left_out={1000 - SUBJECT_LINES_PER_S}")
    assert metrics.counter("audit.lines_left_out").value == 1000 - SUBJECT_LINES_PER_S


def test_failed_logins_hide_no_denial(said: Callable[[], list[str]]) -> None:
    log, _ = audit(At(), 20)
    for number in range(1000):
        log.login_failed("User:x", "PLAIN", f"10.0.0.{number}", "why")
    refuse(log, "ann")
    assert len(said()) == 21 and "denied" in said()[-1]


def test_no_lines_where_none_are_wanted(said: Callable[[], list[str]]) -> None:
    log, metrics = audit(At(), 0)
    refuse(log, "ann")
    assert said() == [] and metrics.counter("authorizer.denied").value == 1


def test_thousands_of_acls_in_one_request_have_a_bound(said: Callable[[], list[str]]) -> None:
    log, _ = audit(At(), 1)
    acls: Any = [AclBinding(2, f"t{n}", 3, "User:ann", "*", 3, 3) for n in range(CHANGES_LOGGED_MAX + 7)]
    log.acls_altered("created", "User:root", "10.0.0.1", acls)
    assert len(said()) == CHANGES_LOGGED_MAX + 1
    assert said()[-1] == "more ACLs created by=User:root host=10.0.0.1 count=7"

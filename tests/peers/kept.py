"""What a guarded cluster keeps beside its topics: users, access rules, delegation tokens and quotas. They are made by
requests, described, and tried by whoever they are about; of any broker, Kafka's or ours.

Two listeners are asked: `operators`, where everybody is a super user (PLAINTEXT), and `logins`, where users of SCRAM
and tokens log in (SASL_PLAINTEXT). Client.ids and addresses are chosen so that each quota has its own connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from broker.net.test_client_quotas import Client
from broker.raw import Raw, batch, fetch, produce
from broker.sasl import add_users_at, scram
from broker.tokens import create, expire, login_with, renew
from broker.tokens import describe as describe_tokens
from compat.kafka_says.quotas import Entries, alter
from compat.kafka_says.quotas import describe as describe_quotas
from confluent_kafka import Producer

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.security.jaas import SCRAM_MODULE
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k29_describe_acls as k29
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from headrace.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest

PATIENCE_S: Final = 30.0
TOPICS: Final = ("orders-eu", "orders-secret", "other", "nobodys")
GROUPS: Final = ("readers-1", "writers")
TRANSACTIONS: Final = ("tx-1", "mine")
USERS: Final = ("ann", "bob", "cy", "root")
"""Each user's first password is the name and `-pencil`."""
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET_KEY: Final = "a secret of the cluster's"
HASTY: Final = "127.0.0.7"
"""Where connections are counted."""
CONNECTIONS: Final = 40
"""More of them than any rate of a few a second lets through at once."""
RECORD: Final = b"x" * 30_000
_ALL, _DENY, _ALLOW, _LITERAL, _PREFIXED = 2, 2, 3, 3, 4
_DYNAMIC = 2

SETTINGS: Final = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    **{
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for listener in ("logins", "clients")
        for mechanism in MECHANISMS
    },
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:root",
    "delegation.token.secret.key": SECRET_KEY,
    "connection.failed.authentication.delay.ms": "20",
}
"""Of a broker whose listeners are CLIENTS (SASL_SSL), LOGINS (SASL_PLAINTEXT) and PLAINTEXT."""


def _acls() -> list[AclCreation]:
    topic, group, transaction = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
    anywhere = "*"
    return [
        AclCreation(kind, name, pattern, f"User:{user}", host, operation, permission)
        for kind, name, pattern, user, host, operation, permission in (
            (topic, "orders-", _PREFIXED, "ann", anywhere, Operation.READ, _ALLOW),
            (topic, "orders-", _PREFIXED, "ann", anywhere, Operation.WRITE, _ALLOW),
            (topic, "orders-secret", _LITERAL, "ann", anywhere, _ALL, _DENY),
            (topic, "*", _LITERAL, "*", "127.0.0.1", Operation.DESCRIBE_CONFIGS, _ALLOW),
            (topic, "*", _LITERAL, "bob", "10.0.0.1", Operation.ALTER, _ALLOW),
            (topic, "other", _LITERAL, "bob", "127.0.0.1", Operation.WRITE, _ALLOW),
            (topic, "other", _LITERAL, "bob", anywhere, Operation.READ, _ALLOW),
            (topic, "other", _LITERAL, "cy", anywhere, _ALL, _ALLOW),
            (group, "readers-", _PREFIXED, "ann", anywhere, Operation.READ, _ALLOW),
            (group, "*", _LITERAL, "bob", anywhere, Operation.DESCRIBE, _ALLOW),
            (transaction, "tx-", _PREFIXED, "ann", anywhere, Operation.WRITE, _ALLOW),
            (transaction, "*", _LITERAL, "cy", anywhere, Operation.DESCRIBE, _ALLOW),
            (ResourceType.CLUSTER, CLUSTER_NAME, _LITERAL, "ann", anywhere, Operation.DESCRIBE, _ALLOW),
            (ResourceType.CLUSTER, CLUSTER_NAME, _LITERAL, "bob", anywhere, Operation.IDEMPOTENT_WRITE, _ALLOW),
            (ResourceType.USER, "User:ann", _LITERAL, "bob", anywhere, Operation.DESCRIBE_TOKENS, _ALLOW),
        )
    ]


QUOTAS: Final[Entries] = [
    ([("user", "ann")], [("producer_byte_rate", 1e9), ("request_percentage", 500.0)]),
    ([("user", "bob")], [("producer_byte_rate", 1000.0)]),
    ([("user", None)], [("producer_byte_rate", 2000.0), ("controller_mutation_rate", 250.5)]),
    ([("client-id", "hurried"), ("user", "ann")], [("producer_byte_rate", 1000.0)]),
    ([("client-id", None), ("user", "ann")], [("producer_byte_rate", 2e9)]),
    ([("client-id", "slow")], [("consumer_byte_rate", 1000.0)]),
    ([("client-id", None)], [("consumer_byte_rate", 1e9)]),
    ([("client-id", None), ("user", None)], [("request_percentage", 900.0)]),
    ([("client-id", "c"), ("user", None)], [("request_percentage", 800.0)]),
    ([("ip", HASTY)], [("connection_creation_rate", 2.0)]),
    ([("ip", None)], [("connection_creation_rate", 100_000.0)]),
]
"""Each of Kafka's kinds of entities; what is far too small is felt at once, what is far too large never."""


@dataclass
class Kept:
    """A broker's two listeners, and what its users know."""

    operators: int
    logins: int
    passwords: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of a user and a mechanism."""
    tokens: dict[str, bytes] = field(default_factory=dict)
    """HMACs, by the ids."""
    node: int = 1
    is_alone: bool = True
    """Whether it leads every partition: what it is asked to read is there then."""

    def enter(self, user: str, mechanism: str = MECHANISMS[1], client_id: str = "raw") -> Raw:
        """A connection of a user. Raises AssertionError where the login fails."""
        raw = Client(self.logins, client_id)
        answer = scram(raw, user, self.passwords[user, mechanism], mechanism)
        assert answer.error_code == 0, (user, mechanism, answer.error_message)
        return raw

    def make(self, replicas: int = 1) -> None:
        """All of it, where there is nothing yet."""
        with Raw(self.operators, PATIENCE_S) as raw:
            topics = [CreatableTopic(name, 1, replicas) for name in TOPICS]
            made = raw.ask(CreateTopicsRequest(topics, timeout_ms=int(PATIENCE_S * 1000)), 7)
            assert [each.error_code for each in made.topics] == [0] * len(TOPICS)
            results = raw.ask(CreateAclsRequest(_acls()), 3).results
            assert {each.error_code for each in results} == {0}
            assert {code for code, _ in alter(raw, QUOTAS)} == {0}
        words = {user: f"{user}-pencil" for user in USERS}
        add_users_at(self.operators, **words)
        self.passwords |= {(user, each): word for user, word in words.items() for each in MECHANISMS}
        self._until_users()
        for owner, renewers in (("ann", ["User:bob"]), ("root", []), ("bob", ["User:ann", "User:root"])):
            with self.enter(owner) as raw:
                self._keep(create(raw, *renewers))
        self._renew()
        with Raw(self.operators) as raw:
            token = next(iter(self.tokens))
            shown = AclCreation(
                ResourceType.DELEGATION_TOKEN, token, _LITERAL, "User:cy", "*", Operation.DESCRIBE, _ALLOW
            )
            assert raw.ask(CreateAclsRequest([shown]), 3).results[0].error_code == 0
        self._until_written()

    def _renew(self) -> None:
        """The first token, by its renewer, once the controller knows it: Kafka's answers before."""
        last = time.monotonic() + PATIENCE_S
        hmac = next(iter(self.tokens.values()))
        with self.enter("bob") as raw:
            while code := renew(raw, hmac, 3_600_000).error_code:
                assert code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND and time.monotonic() < last, code
                time.sleep(0.05)

    def _keep(self, made: Any) -> None:
        assert made.error_code == 0, made
        self.tokens[made.token_id] = bytes(made.hmac)

    def _until_users(self) -> None:
        """A broker of Kafka's learns of users after its controller has answered."""
        last = time.monotonic() + PATIENCE_S
        while True:
            try:
                for user, mechanism in self.passwords:
                    self.enter(user, mechanism).socket.close()
            except AssertionError:
                assert time.monotonic() < last
                time.sleep(0.05)
            else:
                return

    def _until_written(self) -> None:
        """Something to read in `other`, once it is led."""
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.operators}", "log_level": 0})
        failed: list[object] = []
        producer.produce("other", RECORD, on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(PATIENCE_S) == 0 and failed == [None]

    def change(self, number: int) -> None:
        """A user comes, with a rule, a quota and a token of his own; those of the one before go."""
        user, before = f"user-{number}", f"user-{number - 1}"
        add_users_at(self.operators, **{user: user})
        self.passwords |= {(user, each): user for each in MECHANISMS}
        rule = AclCreation(ResourceType.TOPIC, "nobodys", _LITERAL, f"User:{user}", "*", Operation.READ, _ALLOW)
        with Raw(self.operators, PATIENCE_S) as raw:
            assert raw.ask(CreateAclsRequest([rule]), 3).results[0].error_code == 0
            assert alter(raw, [([("user", user)], [("producer_byte_rate", 1000.0)])])[0][0] == 0
        self._until_users()
        with self.enter(user) as raw:
            self._keep(create(raw))
        if (before, MECHANISMS[0]) not in self.passwords:
            return
        token = list(self.tokens)[-2]
        with self.enter(before) as raw:
            assert expire(raw, self.tokens[token]).error_code == 0
        gone = DeleteAclsFilter(ResourceType.TOPIC, "nobodys", _LITERAL, f"User:{before}", None, 1, 1)
        with Raw(self.operators, PATIENCE_S) as raw:
            for code in (1, 2):
                ended = AlterUserScramCredentialsRequest([ScramCredentialDeletion(before, code)], [])
                assert raw.ask(ended, 0).results[0].error_code == 0
            (result,) = raw.ask(DeleteAclsRequest([gone]), 3).filter_results
            assert result.error_code == 0 and len(result.matching_acls) == 1
            assert alter(raw, [([("user", before)], [("producer_byte_rate", None)])])[0][0] == 0
        for each in MECHANISMS:
            del self.passwords[before, each]

    def described(self) -> dict[str, object]:
        """What the broker tells of all of it, in an order of its own."""
        with Raw(self.operators, PATIENCE_S) as raw:
            users = raw.ask(DescribeUserScramCredentialsRequest(None), 0).results
            found = raw.ask(k29.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3).resources
            quotas = describe_quotas(raw, ())
            about = [DescribeConfigsResource(4, str(self.node), None)]
            (node,) = raw.ask(DescribeConfigsRequest(about), 4).results
        with self.enter("root") as raw:
            tokens = describe_tokens(raw).tokens
        rules = [(where, rule) for where in found for rule in where.acls]
        return {
            "users": sorted(
                (each.user, sorted((info.mechanism, info.iterations) for info in each.credential_infos))
                for each in users
            ),
            "acls": sorted(
                (
                    where.resource_type, where.resource_name, where.pattern_type, rule.principal, rule.host,
                    rule.operation, rule.permission_type,
                )
                for where, rule in rules
            ),
            "quotas": quotas,
            "tokens": {
                each.token_id: (
                    each.principal_name, each.token_requester_principal_name, each.issue_timestamp,
                    each.expiry_timestamp, each.max_timestamp, bytes(each.hmac),
                    sorted(renewer.principal_name for renewer in each.renewers),
                )
                for each in tokens
            },
            "configs": sorted(
                (each.name, each.value, each.is_sensitive) for each in node.configs if each.config_source == _DYNAMIC
            ),
        }  # fmt: skip

    def tried(self) -> dict[str, object]:
        """What each user, and whoever has a token, finds that he may do, and who is told to wait."""
        found: dict[str, object] = {}
        for user, mechanism in self.passwords:
            with self.enter(user, mechanism) as raw:
                found[f"{user} by {mechanism}"] = _rights(raw)
            with Raw(self.logins) as raw:
                found[f"{user} by {mechanism}, wrongly"] = scram(raw, user, "wrong", mechanism).error_code
        for token, hmac in self.tokens.items():
            with Raw(self.logins) as raw:
                code = login_with(raw, token, hmac, MECHANISMS[1]).error_code
                found[token] = code or _rights(raw)
        found["waits"] = {
            "bob": self._writes("bob"), "ann": self._writes("ann"), "ann, hurried": self._writes("ann", "hurried"),
            "cy": self._writes("cy"),
            **({"slow": self._reads("slow"), "any client": self._reads("any")} if self.is_alone else {}),
            **{user: self._writes(user) for user, _ in self.passwords if user.startswith("user-")},
            HASTY: _connects(self.operators, HASTY), "127.0.0.8": _connects(self.operators, "127.0.0.8"),
        }  # fmt: skip
        return found

    def _writes(self, user: str, client_id: str = "raw") -> bool:
        """Whether a user is told to wait for what he has written: refused or not, its bytes count."""
        topic = "orders-eu" if user == "ann" else "other"
        for _ in range(3):
            with self.enter(user, client_id=client_id) as raw:
                if raw.ask(produce(topic, batch(RECORD)), 9).throttle_time_ms > 0:
                    return True
        return False

    def _reads(self, client_id: str) -> bool:
        for _ in range(3):
            with Client(self.operators, client_id) as raw:
                if raw.ask(fetch("other", partition_max_bytes=1 << 16), 11).throttle_time_ms > 0:
                    return True
        return False


def _rights(raw: Raw) -> Mapping[str, object]:
    """What a connection may do, in the bits that an answer has for it, and what it sees."""
    asked = MetadataRequest(
        [MetadataRequestTopic(name=name) for name in TOPICS],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    topics = raw.ask(asked, 12).topics
    groups = raw.ask(DescribeGroupsRequest(list(GROUPS), include_authorized_operations=True), 5).groups
    cluster = raw.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    return {
        "topics": {each.name: (each.error_code, each.topic_authorized_operations) for each in topics},
        "groups": {each.group_id: (each.error_code, each.authorized_operations) for each in groups},
        "cluster": (cluster.error_code, cluster.cluster_authorized_operations),
        "transactions": [raw.ask(InitProducerIdRequest(name, 60_000), 4).error_code == 53 for name in TRANSACTIONS],
        "tokens": sorted(each.token_id for each in describe_tokens(raw).tokens),
    }


def _connects(port: int, source: str) -> bool:
    """Whether some of many connections from an address are answered late: they are held, and closed then."""
    held: list[Raw] = []
    try:
        for _ in range(CONNECTIONS):
            held.append(Raw(port, 0.7, source=source))
            with suppress(ConnectionError):  # a closed one is asked below
                held[-1].send(ApiVersionsRequest(), 0)
        for raw in held:
            try:
                raw.receive(18, 0)
            except (TimeoutError, ConnectionError):
                return True
        return False
    finally:
        for raw in held:
            raw.socket.close()

"""Who asks, and what is compared of an answer: sets of rights (none, each one, all but each one, all, denied, a super
user's), the ways in which a client shows who it is, and the world that requests are about.

On PLAINTEXT all clients are User:ANONYMOUS, and every set of rights has an address of this machine; a client that logs
in or shows a certificate has them by its name. The rights are for every name of a resource, so that a request that
changes something can be about a topic or a group of its own.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from broker.raw import Raw

from headrace.security.authorizer import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from headrace.wire.apis import APIS
from headrace.wire.messages import k03_metadata as k03
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k20_delete_topics as k20
from headrace.wire.messages import k30_create_acls as k30

NEW, VICTIM = "new", "victim"
HELD, GROUP, TRANSACTION, ABSENT = "held", "held-group", "held-transaction", "absent"
ABSENT_ID = b"\x01" * 16
OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
ANYONE, ANYWHERE, ALL, DENY, ALLOW, LITERAL = "User:*", "*", 2, 2, 3, 3
OWNER, ELSEWHERE = "127.0.0.1", "127.0.0.7"
"""The address that may do everything, and the one of clients whose name counts."""
ROOT, DENIED_ROOT = "root", "denied-root"
"""Super users; whatever is denied, it is denied to the second."""
TOPIC_CONFIG, BROKER_CONFIG, LOGGER_CONFIG, METRICS_CONFIG, GROUP_CONFIG = 2, 4, 8, 16, 32
LATEST = 1 << 15
TIDY_PATIENCE_S = 30.0

KINDS = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.TRANSACTIONAL_ID: "*",
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.DELEGATION_TOKEN: "*",
    ResourceType.USER: "*",
}
OPERATIONS = {
    **OPERATIONS_OF,
    # Kafka does not count it among the operations on a cluster, and asks for it where topics are deleted.
    ResourceType.CLUSTER: (*OPERATIONS_OF[ResourceType.CLUSTER], Operation.DELETE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def now_ms() -> int:
    """Records of long ago would be deleted meanwhile."""
    return time.time_ns() // 1_000_000


# --- who asks


class Door(Enum):
    """How a client shows who it is; the value names the listener."""

    PLAINTEXT = "PLAINTEXT"
    SCRAM = "LOGINS"
    CERTIFICATE = "CERTS"


Allowed = tuple[tuple[ResourceType, int, int], ...]
"""Resource, operation, permission."""


@dataclass(frozen=True)
class Rights:
    """A set of rights, by the name of which a failure speaks, the address that has it, and the name of a user."""

    name: str
    host: str
    user: str
    allowed: Allowed

    def acls(self) -> list[k30.AclCreation]:
        """For every door."""
        who = ((ANYONE, self.host), (f"User:{self.user}", ANYWHERE), (f"User:CN={self.user}", ANYWHERE))
        return [
            acl(kind, operation, host, permission, principal)
            for principal, host in who
            for kind, operation, permission in self.allowed
            if host
        ]


def acl(
    kind: ResourceType, operation: int, host: str, permission: int = ALLOW, principal: str = ANYONE
) -> k30.AclCreation:
    return k30.AclCreation(kind, KINDS[kind], LITERAL, principal, host, operation, permission)


EVERYTHING: Allowed = tuple((kind, ALL, ALLOW) for kind in KINDS)
DENIED: Allowed = tuple((kind, ALL, DENY) for kind in KINDS)


def _every_rights() -> list[Rights]:
    made: list[Rights] = []

    def add(name: str, allowed: Allowed) -> None:
        number = len(made) + 1
        made.append(Rights(name, f"127.0.1.{number}", f"user-{number}", allowed))

    add("nothing", ())
    add("everything", EVERYTHING)
    add("denied", (*EVERYTHING, *DENIED))
    add("describe only", tuple((kind, Operation.DESCRIBE, ALLOW) for kind in KINDS if kind is not ResourceType.USER))
    for kind in KINDS:
        for operation in OPERATIONS[kind]:
            named = f"{kind.name}.{operation.name}"
            add(named, ((kind, operation, ALLOW),))
            add(f"all but {named}", (*EVERYTHING, (kind, operation, DENY)))
    made.append(Rights("super user", "", ROOT, ()))
    made.append(Rights("denied super user", "", DENIED_ROOT, DENIED))
    return made


RIGHTS = {rights.name: rights for rights in _every_rights()}
THIN = ("nothing", "everything", "TOPIC.DESCRIBE", "TOPIC.READ", "GROUP.READ", "all but TOPIC.READ", "CLUSTER.ALTER")
"""Enough to see that a check is made at all."""
BY_NAME = (
    "nothing",
    "everything",
    "denied",
    "describe only",
    "super user",
    "denied super user",
    *(f"{kind.name}.{operation.name}" for kind in KINDS for operation in OPERATIONS[kind]),
)
"""What clients may who log in or show a certificate."""


# --- what is asked


@dataclass
class World:
    """What the requests of one broker are about; names that are made once are the same on every broker."""

    owner: Raw | None = None
    topic_id: bytes = b"\x02" * 16
    token: bytes = b"hmac"
    """Of a delegation token of the first super user's."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def fresh(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def id_of(self, name: str) -> bytes:
        return self.topic_id if name == HELD else ABSENT_ID

    def topic(self) -> tuple[str, bytes]:
        """A topic that may be deleted."""
        name = self.fresh(VICTIM)
        if self.owner is None:
            return name, ABSENT_ID
        made = self.owner.ask(k19.CreateTopicsRequest([k19.CreatableTopic(name, 1, 1)]), 7).topics[0]
        assert made.error_code == 0
        topic_id: bytes = made.topic_id
        return name, topic_id

    def tidy(self) -> None:
        """Deletes the topics that were made by asking; returns when they are gone."""
        assert self.owner is not None
        deadline = time.monotonic() + TIDY_PATIENCE_S
        while True:
            known = self.owner.ask(k03.MetadataRequest(None, False), 12).topics
            names = [each.name for each in known if each.name.startswith((f"{NEW}-", f"{VICTIM}-"))]
            if not names:
                return
            assert time.monotonic() < deadline, names
            states = [k20.DeleteTopicState(name=name) for name in names]
            self.owner.ask(k20.DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)


NOWHERE = World()


@dataclass(frozen=True)
class Case:
    """A request, made for each asking, in the versions from `first` to `last`."""

    name: str
    make: Callable[[World], Any]
    first: int = 0
    last: int = LATEST

    @property
    def key(self) -> int:
        """Of the API."""
        return int(self.make(NOWHERE).API_KEY)

    def versions(self) -> range:
        """Those in which it is asked."""
        api = APIS[self.key]
        return range(max(self.first, api.min_version), min(self.last, api.max_version) + 1)


def always(request: Any) -> Callable[[World], Any]:
    """One request for every asking."""
    return lambda _: request


# --- what is compared

NAMES = ("name", "topic_name", "group_id", "transactional_id", "resource_name", "principal_name")
BITS = ("cluster_authorized_operations", "topic_authorized_operations", "authorized_operations")
NOT_COMPARED = ("configs", "supported_features", "finalized_features", "nodes")
"""Settings, what a release knows, and the listeners of voters, of which Kafka knows those that its file names: rights
have no part in them."""


def _is_new(found: tuple[Any, ...]) -> bool:
    return any(
        field in NAMES and value.startswith(NEW) for field, value in found if isinstance(value, str)
    ) and not any(field == "error_code" for field, _ in found)


def seen(answer: Any) -> tuple[Any, ...]:
    """The error codes, names and authorized operations of an answer; the elements of a list in an order of ours.

    What is of no right is left out: topics that are made by being asked for, at the pace of each broker, and settings.
    """
    if isinstance(answer, str):
        return (answer,)
    if isinstance(answer, list):
        found = [seen(each) for each in answer if not isinstance(each, str)]
        return tuple(sorted(each for each in found if each and not _is_new(each)))
    if not hasattr(type(answer), "__match_args__"):
        return ()
    told: list[tuple[str, Any]] = []
    for name in type(answer).__match_args__:
        value = getattr(answer, name)
        if name in NOT_COMPARED:
            continue
        if name in NAMES or name in BITS or (name.endswith("error_code") and value):
            told.append((name, "" if value is None else value))
        elif not isinstance(value, str) and (inner := seen(value)):
            told.append((name, inner))
    return tuple(told)

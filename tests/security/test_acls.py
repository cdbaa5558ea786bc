"""The authorizer that goes by ACLs: each rule of Kafka's by itself, and all of them against a slow plain reading."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.metadata.acls import EVERY_ACL, AclBinding, record_of
from headrace.security import acls as under_test
from headrace.security.acls import REMEMBERED_NAME_MAX, AclAuthorizer, java_host
from headrace.security.authorizer import (
    FIRST_GENERATION,
    UNCACHED,
    AuthorizerNotReadyError,
    Operation,
    ResourceType,
)
from headrace.wire.messages.metadata_records import AccessControlEntryRecord

TOPIC, LITERAL, PREFIXED, ALL, DENY, ALLOW = 2, 3, 4, 2, 2, 3
ALICE, HERE = "User:alice", "127.0.0.1"


def acl(
    name: str = "t",
    operation: int = Operation.READ,
    *,
    pattern: int = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    permission: int = ALLOW,
    resource: int = TOPIC,
) -> AclBinding:
    return AclBinding(resource, name, pattern, principal, host, operation, permission)


def records(acls: Sequence[AclBinding]) -> dict[bytes, AccessControlEntryRecord]:
    return {number.to_bytes(16, "big"): record_of(number.to_bytes(16, "big"), each) for number, each in enumerate(acls)}


def authorizer(*acls: AclBinding, super_users: Sequence[str] = (), allow_if_no_acl: bool = False) -> AclAuthorizer:
    made = AclAuthorizer(super_users, allow_if_no_acl=allow_if_no_acl)
    made.follow(records(acls))
    return made


def may(
    made: AclAuthorizer,
    operation: Operation = Operation.READ,
    name: str = "t",
    *,
    principal: str = ALICE,
    host: str = HERE,
    resource: ResourceType = ResourceType.TOPIC,
) -> bool:
    return made.authorize(principal, host, operation, resource, name)


def test_nobody_may_do_what_no_acl_allows() -> None:
    made = authorizer(acl())
    assert may(made)
    assert not may(made, Operation.WRITE)
    assert not may(made, name="other")
    assert not may(made, principal="User:bob")
    assert not may(made, principal="Group:alice")
    assert not may(made, resource=ResourceType.GROUP)


def test_a_super_user_may_do_everything_before_anything_is_loaded_and_against_a_deny() -> None:
    made = AclAuthorizer(["User:root", "User:*"])
    assert may(made, principal="User:root")
    with pytest.raises(AuthorizerNotReadyError):
        may(made)  # User:* is a name like any other here
    made.follow(records([acl(principal="User:root", operation=ALL, permission=DENY)]))
    assert may(made, principal="User:root")


def test_before_the_acls_are_loaded_nobody_is_allowed_or_refused_whatever_holds_without_acls() -> None:
    made = AclAuthorizer((), allow_if_no_acl=True)
    looked: list[int] = []
    made.look_for_acls = lambda: looked.append(1)
    with pytest.raises(AuthorizerNotReadyError):
        may(made)
    with pytest.raises(AuthorizerNotReadyError):
        made.authorize_any(ALICE, HERE, Operation.WRITE, ResourceType.TOPIC)
    assert len(looked) == 2
    made.follow({})
    assert may(made) and len(looked) == 2


def test_whoever_asks_has_the_acls_loaded_where_they_are_there() -> None:
    made = AclAuthorizer((), allow_if_no_acl=True)
    made.look_for_acls = lambda: made.follow(records([acl(permission=DENY)]))
    assert not may(made)


@pytest.mark.parametrize("pattern", [acl("t"), acl("*"), acl("t", pattern=PREFIXED), acl("*", principal="User:*")])
def test_a_deny_wins_over_every_allow(pattern: AclBinding) -> None:
    allowed = [acl("t"), acl("*"), acl("", pattern=PREFIXED), acl("t", pattern=PREFIXED)]
    assert may(authorizer(*allowed))
    assert not may(authorizer(*allowed, pattern._replace(permission=DENY)))
    assert may(authorizer(*allowed, pattern._replace(permission=DENY)), principal="User:x") is False
    assert may(authorizer(*allowed, pattern._replace(permission=DENY, operation=Operation.WRITE)))


def test_a_denied_prefix_wins_over_an_allowed_literal() -> None:
    made = authorizer(acl("secret-plans"), acl("secret-", ALL, pattern=PREFIXED, permission=DENY), acl("sec"))
    assert not may(made, name="secret-plans")
    assert may(made, name="sec")


def test_a_prefix_is_one_of_names_and_a_literal_is_none() -> None:
    made = authorizer(acl("ab", pattern=PREFIXED), acl("abc-literal"))
    assert [name for name in ("a", "ab", "abc", "b", "abc-literal-x", "Ab", "") if may(made, name=name)] == [
        "ab",
        "abc",
        "abc-literal-x",
    ]
    assert not may(authorizer(acl("abc")), name="abcd")
    assert may(authorizer(acl("*", pattern=PREFIXED)), name="*x")
    assert not may(authorizer(acl("*", pattern=PREFIXED)), name="x")


@pytest.mark.parametrize("by", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_whoever_may_use_it_may_describe_it(by: Operation) -> None:
    assert may(authorizer(acl(operation=by)), Operation.DESCRIBE)
    assert not may(authorizer(acl(operation=by)), Operation.DESCRIBE_CONFIGS)
    assert not may(authorizer(acl(operation=Operation.DESCRIBE), acl(operation=by, permission=DENY)), by)
    assert may(authorizer(acl(operation=Operation.DESCRIBE), acl(operation=by, permission=DENY)), Operation.DESCRIBE)


def test_whoever_may_alter_settings_may_see_them_and_nothing_else_implies_anything() -> None:
    made = authorizer(acl(operation=Operation.ALTER_CONFIGS))
    assert may(made, Operation.DESCRIBE_CONFIGS)
    assert not may(made, Operation.DESCRIBE)
    for operation in Operation:
        implied = {each for each in Operation if may(authorizer(acl(operation=operation)), each)} - {operation}
        if operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
            assert implied == {Operation.DESCRIBE}
        else:
            assert implied == ({Operation.DESCRIBE_CONFIGS} if operation is Operation.ALTER_CONFIGS else set())


@pytest.mark.parametrize("operation", Operation)
def test_all_operations_are_all_of_them(operation: Operation) -> None:
    assert may(authorizer(acl(operation=ALL)), operation)
    assert not may(authorizer(acl(operation=operation), acl(operation=ALL, permission=DENY)), operation)


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8::a:0:1", "2001:db8:0:0:0:a:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_an_acl_names_a_host_as_java_writes_it(seen: str, named: str) -> None:
    assert java_host(seen) == named
    assert may(authorizer(acl(host=named)), host=seen)
    assert not may(authorizer(acl(host=named)), host="10.0.0.9")
    assert not may(authorizer(acl("*"), acl(host=named, permission=DENY)), host=seen)
    if seen != named:
        assert not may(authorizer(acl(host=seen)), host=seen)


def test_everyone_may_use_only_what_no_acl_at_all_is_about() -> None:
    made = authorizer(
        acl("held", principal="User:x", host="10.0.0.9"), acl("pre", pattern=PREFIXED), allow_if_no_acl=True
    )
    assert may(made, name="free")
    assert not may(made, name="held")
    assert not may(made, Operation.WRITE, name="prefixed")
    assert may(made, name="held", resource=ResourceType.GROUP)
    assert not may(authorizer(acl("*", principal="User:x"), allow_if_no_acl=True), name="free")


def test_what_changes_counts_at_once_and_in_the_number_of_the_generation() -> None:
    made = AclAuthorizer()
    assert made.generation == UNCACHED  # a short path that remembers answers is not taken yet
    made.follow({})
    loaded = made.generation
    assert loaded == FIRST_GENERATION
    stored = records([acl(), acl("p", pattern=PREFIXED)])
    assert not may(made)
    made.follow(stored)
    assert made.generation == loaded + 1
    assert may(made) and may(made, name="pq")
    made.follow(stored)
    made.follow(dict(stored))
    assert made.generation == loaded + 1
    first, second = stored
    made.follow({second: stored[second]})
    assert made.generation == loaded + 2
    assert not may(made) and may(made, name="pq")
    made.follow({})
    assert not may(made, name="pq")
    made.follow({first: record_of(first, acl("other"))})
    assert may(made, name="other")
    made.follow({first: record_of(first, acl("another"))})  # the same id
    assert not may(made, name="other") and may(made, name="another")
    assert made.acls(EVERY_ACL) == [acl("another")]


def test_so_many_decisions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "DECISIONS_MAX", 10)
    made = authorizer(acl("t7"))
    for number in range(25):
        assert may(made, name=f"t{number}") is (number == 7)
        assert len(made._decisions) <= 10
    assert may(made, name="t7")


def test_a_remembered_decision_costs_no_look_at_an_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    made = authorizer(*(acl(f"t{number}", principal=f"User:{number % 100}") for number in range(10_000)))
    asked = [(f"User:{number % 100}", f"t{number}") for number in range(10_000)]
    assert all(may(made, principal=principal, name=name) for principal, name in asked)
    monkeypatch.setattr(AclAuthorizer, "_decide", None)
    assert all(may(made, principal=principal, name=name) for principal, name in asked)


# --- any resource of a type


def anywhere(*acls: AclBinding, allow_if_no_acl: bool = False, principal: str = ALICE) -> bool:
    made = authorizer(*acls, super_users=["User:root"], allow_if_no_acl=allow_if_no_acl)
    return made.authorize_any(principal, HERE, Operation.WRITE, ResourceType.TOPIC)


def test_one_topic_is_enough_unless_it_is_denied() -> None:
    write, deny = acl(operation=Operation.WRITE), acl(operation=Operation.WRITE, permission=DENY)
    assert not anywhere()
    assert anywhere(principal="User:root")
    assert anywhere(allow_if_no_acl=True)
    assert anywhere(write)
    assert anywhere(acl(operation=ALL))
    assert not anywhere(acl(operation=Operation.READ))
    assert not anywhere(write._replace(principal="User:bob"))
    assert not anywhere(write._replace(host="10.0.0.9"))
    assert not anywhere(write._replace(resource_type=ResourceType.GROUP))
    assert not anywhere(write, deny)
    assert anywhere(write, deny._replace(principal="User:bob"))
    assert anywhere(write, deny._replace(name="u"))
    assert not anywhere(write, deny._replace(name="*"))
    assert not anywhere(write._replace(name="tuv"), deny._replace(name="t", pattern_type=PREFIXED))
    assert anywhere(write._replace(name="t"), deny._replace(name="tuv", pattern_type=PREFIXED))
    assert anywhere(write._replace(pattern_type=PREFIXED), deny)
    assert not anywhere(write._replace(pattern_type=PREFIXED), deny._replace(pattern_type=PREFIXED))
    assert anywhere(write._replace(name="*"), deny)
    assert not anywhere(write._replace(name="*"), deny._replace(name="*"))


# --- against a plain reading of the rules

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "*a", "é", "éa"])
PRINCIPALS = st.sampled_from(["User:*", "User:a", "User:b", "Group:a"])
HOSTS = st.sampled_from(["*", "127.0.0.1", "0:0:0:0:0:0:0:1", "::1"])
ACLS = st.builds(
    AclBinding,
    st.sampled_from([2, 3]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    PRINCIPALS,
    HOSTS,
    st.sampled_from([ALL, *Operation]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)


def plain(
    acls: Sequence[AclBinding], principal: str, host: str, operation: int, name: str, *, allow_if_no_acl: bool
) -> bool:
    """The rules as one would say them, looking at every ACL."""
    if principal == "User:root":
        return True
    about = [
        each
        for each in acls
        if each.resource_type == TOPIC
        and (
            (each.pattern_type == LITERAL and each.name in (name, "*"))
            or (each.pattern_type == PREFIXED and name.startswith(each.name))
        )
    ]
    if not about:
        return allow_if_no_acl
    mine = [each for each in about if each.principal in (principal, "User:*") and each.host in ("*", host)]
    if any(each.permission == DENY and each.operation in (ALL, operation) for each in mine):
        return False
    enough = {ALL, operation}
    if operation == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(each.permission == ALLOW and each.operation in enough for each in mine)


@settings(max_examples=tried(150), deadline=None)
@given(st.lists(st.lists(ACLS, max_size=12), min_size=1, max_size=3), st.booleans())
def test_it_says_what_a_plain_reading_says_through_changes(
    generations: list[list[AclBinding]], allow_if_no_acl: bool
) -> None:
    made = AclAuthorizer(["User:root"], allow_if_no_acl=allow_if_no_acl)
    hosts = {"127.0.0.1": "127.0.0.1", "::1": "0:0:0:0:0:0:0:1", "10.0.0.1": "10.0.0.1"}
    for acls in generations:
        made.follow(records(acls))
        for principal, host, operation, name in itertools.product(
            ("User:a", "User:c", "Group:a", "User:root"),
            hosts,
            (Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
            ("a", "abd", "b", "*", "éa", "z"),
        ):
            expected = plain(acls, principal, hosts[host], operation, name, allow_if_no_acl=allow_if_no_acl)
            for _ in range(2):
                assert made.authorize(principal, host, operation, ResourceType.TOPIC, name) is expected


def test_names_of_any_length_are_decided_and_only_short_ones_remembered() -> None:
    made = authorizer(acl(name="t", pattern=PREFIXED))
    for size in (1, REMEMBERED_NAME_MAX, REMEMBERED_NAME_MAX + 1, 30_000):
        assert may(made, name="t" * size)
        assert not may(made, name="u" * size)
    assert max(len(name or "") for _, _, _, name in made._decisions) == REMEMBERED_NAME_MAX


def test_whether_any_resource_may_be_used_is_looked_up_once_and_again_when_acls_change() -> None:
    made = authorizer(acl(operation=Operation.WRITE))
    decided: list[str] = []
    decide = made._decide_any

    def counted(principal: str, client_host: str, operation: int, resource: int) -> bool:
        decided.append(principal)
        return decide(principal, client_host, operation, resource)

    made._decide_any = counted  # type: ignore[method-assign]
    for _ in range(3):
        assert made.authorize_any(ALICE, HERE, Operation.WRITE, ResourceType.TOPIC)
        assert not made.authorize_any("User:bob", HERE, Operation.WRITE, ResourceType.TOPIC)
    assert decided == [ALICE, "User:bob"]
    made.follow({})
    assert not made.authorize_any(ALICE, HERE, Operation.WRITE, ResourceType.TOPIC)

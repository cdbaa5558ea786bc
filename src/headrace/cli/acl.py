"""`headrace acl`: create, list, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, confirm, json_option, yes_option
from headrace.cli.output import Done, counted, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.acls import Acl, AclFilter
    from headrace.client.cluster import Client

F = TypeVar("F", bound=Callable[..., Any])

PRODUCER: Final = {"topic": ("write", "describe", "create"), "transactional-id": ("write", "describe")}
CONSUMER: Final = {"topic": ("read", "describe"), "group": ("read",)}
"""The operations of --producer and --consumer."""

VERBS: Final = {
    "all": "do everything to",
    "cluster-action": "act as a node of",
    "describe-configs": "see the configuration of",
    "alter-configs": "change the configuration of",
    "idempotent-write": "write idempotently to",
    "create-tokens": "create tokens for",
    "describe-tokens": "see the tokens of",
    "two-phase-commit": "commit in two phases as",
}
"""Names of operations for people; the others are shown unchanged."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What the options name: (type, name) pairs, and whether names are prefixes."""

    named: tuple[tuple[str, str], ...]
    prefixed: bool

    @property
    def kinds(self) -> set[str]:
        """The types among them."""
        return {kind for kind, _ in self.named}


def resource_options(command: F) -> F:
    """--topic, --group, --transactional-id, --cluster and --prefixed, as the argument `resources`."""
    from functools import wraps

    @click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic, or '*' for every one; repeatable.")
    @click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group, or '*'; repeatable.")
    @click.option(
        "--transactional-id",
        "ids",
        multiple=True,
        metavar="ID",
        help="A transactional id, or '*' for every one; repeatable.",
    )
    @click.option("--cluster", is_flag=True, help="The cluster itself.")
    @click.option("--prefixed", is_flag=True, help="The names are prefixes: each covers all names that begin with it.")
    @wraps(command)
    def with_resources(
        *args: Any,
        topics: tuple[str, ...],
        groups: tuple[str, ...],
        ids: tuple[str, ...],
        cluster: bool,
        prefixed: bool,
        **kwargs: Any,
    ) -> Any:
        named = [("topic", name) for name in topics] + [("group", name) for name in groups]
        named += [("transactional-id", name) for name in ids]
        if not all(name for _, name in named):
            raise click.UsageError("a name is empty")
        if prefixed and not named:
            raise click.UsageError("--prefixed needs a name")
        if cluster:
            from headrace.client.acls import CLUSTER_NAME

            named.append(("cluster", CLUSTER_NAME))
        return command(*args, resources=Resources(tuple(dict.fromkeys(named)), prefixed), **kwargs)

    return with_resources  # type: ignore[return-value]


def _principals(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if ":" not in text:
            raise click.BadParameter(f"{text!r} is not TYPE:NAME; write User:{text}", param=option)
    return texts


def _operations(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """By our names of them or by Kafka's: `describe-configs`, `DescribeConfigs`, `DESCRIBE_CONFIGS`."""
    from headrace.client.acls import OPERATIONS

    known = {name.replace("-", ""): name for name in OPERATIONS}
    chosen = []
    for text in texts:
        name = known.get(text.lower().replace("-", "").replace("_", ""))
        if name is None:
            raise click.BadParameter(f"{text!r} is none of {', '.join(OPERATIONS)}", param=option)
        chosen.append(name)
    return tuple(dict.fromkeys(chosen))


def _hosts(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """As brokers compare them: addresses as Java writes them."""
    import ipaddress

    from headrace.security.acls import java_host

    for text in texts:
        try:
            if text != "*":
                ipaddress.ip_address(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no address: brokers look up no names", param=option) from None
    return tuple(java_host(text) for text in texts)


principal_options = (
    click.option("--allow", multiple=True, metavar="PRINCIPAL", callback=_principals,
                 help="Principal that is allowed: User:NAME, or 'User:*' for everyone; repeatable."),
    click.option("--deny", multiple=True, metavar="PRINCIPAL", callback=_principals,
                 help="Principal that is denied, whatever else allows it; repeatable."),
)  # fmt: skip
operation_option = click.option(
    "--operation", "operations", multiple=True, metavar="NAME", callback=_operations,
    help="read, write, create, delete, alter, describe, describe-configs and so on; repeatable.",
)  # fmt: skip
host_option = click.option(
    "--host", "hosts", multiple=True, metavar="ADDRESS", callback=_hosts, help="Address of the client; repeatable."
)
convenience_options = (
    click.option(
        "--producer", is_flag=True, help="The operations that a producer needs on --topic and --transactional-id."
    ),
    click.option("--consumer", is_flag=True, help="The operations that a consumer needs on --topic and --group."),
)


def _with(*options: Callable[[F], F]) -> Callable[[F], F]:
    def apply(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


@click.group(cls=CommandGroup)
def acl() -> None:
    """Manage ACLs: who may do what to topics, groups, transactional ids and the cluster.

    The cluster needs an authorizer (authorizer.class.name). A super user (super.users) may do everything; others may
    do what an ACL allows and none denies.
    """


@acl.command()
@_with(*principal_options)
@operation_option
@_with(*convenience_options)
@host_option
@resource_options
@json_option
@cluster_options
def create(
    client: Client,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    operations: tuple[str, ...],
    producer: bool,
    consumer: bool,
    hosts: tuple[str, ...],
    resources: Resources,
    as_json: bool,
) -> None:
    """Create ACLs: one for each principal, operation, address and resource.

    Without --operation they apply to every operation, without --host to every address. Existing ACLs stay.
    """
    from headrace.client import acls

    if not allow and not deny:
        raise click.UsageError("give --allow or --deny")
    wanted = _bindings(resources, allow, deny, operations, hosts or ("*",), producer=producer, consumer=consumer)
    acls.create_acls(client, wanted)
    with Done(as_json) as done:
        for each in wanted:
            done.add(_json(each), sentence(each))


@acl.command("list")
@click.option("--principal", "principals", multiple=True, metavar="PRINCIPAL", callback=_principals,
              help="List only ACLs of this principal; repeatable.")  # fmt: skip
@operation_option
@host_option
@click.option(
    "--matching",
    is_flag=True,
    help="List all ACLs that apply to a resource of this name, also those on '*' and on prefixes.",
)
@resource_options
@json_option
@cluster_options
def list_acls(
    client: Client,
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    hosts: tuple[str, ...],
    matching: bool,
    resources: Resources,
    as_json: bool,
) -> None:
    """List all ACLs, or those that match the options."""
    if matching and (resources.prefixed or not resources.named):
        raise click.UsageError("--matching needs a name, and does not go with --prefixed")
    pattern = "match" if matching else "prefixed" if resources.prefixed else None
    wanted = _filters(resources, pattern, [(each, None) for each in principals], operations, hosts)
    found = _found(client, wanted)
    if as_json:
        print_json([_json(each) for each in found])
        return
    rows = [(a.resource, a.name, a.pattern, a.principal, a.host, a.operation, a.permission) for a in found]
    print_table(["resource", "name", "pattern", "principal", "host", "operation", "permission"], rows)


@acl.command()
@_with(*principal_options)
@operation_option
@_with(*convenience_options)
@host_option
@resource_options
@yes_option
@json_option
@cluster_options
def delete(
    client: Client,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    operations: tuple[str, ...],
    producer: bool,
    consumer: bool,
    hosts: tuple[str, ...],
    resources: Resources,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the ACLs that match all of the options given; at least one is required.

    A name matches ACLs on exactly that name: add --prefixed for ACLs on prefixes. --producer and --consumer delete
    what they create.
    """
    from headrace.client import acls

    if not (resources.named or allow or deny or operations or hosts):
        raise click.UsageError("say which: give --topic, --group, --allow, --deny or another option")
    if producer or consumer:
        if not allow:
            raise click.UsageError("--producer and --consumer need --allow")
        bindings = _bindings(resources, allow, deny, operations, hosts or ("*",), producer=producer, consumer=consumer)
        wanted: Sequence[AclFilter] = [acls.AclFilter(*each) for each in bindings]
    else:
        pattern = None if not resources.named else "prefixed" if resources.prefixed else "literal"
        whom = [*((each, "allow") for each in allow), *((each, "deny") for each in deny)]
        wanted = _filters(resources, pattern, whom, operations, hosts)
    found = _found(client, wanted)
    if not found:
        raise Failure("no ACL is like that; `headrace acl list` lists them", NOT_FOUND)
    if not yes:
        for each in found:
            click.echo(sentence(each), err=True)
    confirm(f"Delete {counted(len(found), 'ACL')}?", yes)
    with Done(as_json) as done:
        for each in acls.delete_acls(client, wanted):
            done.add(_json(each), f"deleted: {sentence(each)}")


def _bindings(
    resources: Resources,
    allow: Sequence[str],
    deny: Sequence[str],
    operations: Sequence[str],
    hosts: Sequence[str],
    *,
    producer: bool,
    consumer: bool,
) -> list[Acl]:
    """The ACLs that the options say. Raises UsageError."""
    from headrace.client.acls import OPERATIONS_OF, Acl

    if not resources.named:
        raise click.UsageError("give --topic, --group, --transactional-id or --cluster")
    if producer or consumer:
        if operations or deny:
            raise click.UsageError("--producer and --consumer allow what is needed: leave --operation and --deny out")
        _check_convenience(resources, producer=producer, consumer=consumer)
    made: dict[Acl, None] = {}
    for kind, name in resources.named:
        if producer or consumer:
            chosen = [*(PRODUCER.get(kind, ()) if producer else ()), *(CONSUMER.get(kind, ()) if consumer else ())]
        else:
            chosen = list(operations) or ["all"]
        for operation in chosen:
            if operation not in ("all", *OPERATIONS_OF[kind]):
                what = ", ".join(OPERATIONS_OF[kind])
                raise click.UsageError(f"there is no {operation} of a {kind}; there are all, {what}")
        pattern = "prefixed" if resources.prefixed and kind != "cluster" else "literal"
        whom = [(each, "allow") for each in allow] + [(each, "deny") for each in deny]
        for (principal, permission), operation, host in product(whom, chosen, hosts):
            made[Acl(kind, name, pattern, principal, host, operation, permission)] = None
    return list(made)


def _check_convenience(resources: Resources, *, producer: bool, consumer: bool) -> None:
    kinds = resources.kinds
    if producer and "topic" not in kinds:
        raise click.UsageError("--producer needs --topic")
    if consumer and not {"topic", "group"} <= kinds:
        raise click.UsageError("--consumer needs --topic and --group")
    served = {*(PRODUCER if producer else ()), *(CONSUMER if consumer else ())}
    if idle := sorted(kinds - served):
        raise click.UsageError(f"{'--producer' if producer else '--consumer'} says nothing of --{idle[0]}")


def _filters(
    resources: Resources,
    pattern: str | None,
    whom: Iterable[tuple[str, str | None]],
    operations: Iterable[str],
    hosts: Iterable[str],
) -> list[AclFilter]:
    """One filter for each combination; a field without a value matches everything."""
    from headrace.client.acls import AclFilter

    anything = ((None, None),)
    return [
        AclFilter(kind, name, None if kind == "cluster" else pattern, principal, host, operation, permission)
        for (kind, name), (principal, permission), operation, host in product(
            resources.named or anything, tuple(whom) or anything, tuple(operations) or (None,), tuple(hosts) or (None,)
        )
    ]


def _found(client: Client, filters: Iterable[AclFilter]) -> list[Acl]:
    from headrace.client.acls import find_acls

    return sorted({found for wanted in filters for found in find_acls(client, wanted)})


def _json(acl: Acl) -> dict[str, str]:
    return acl._asdict()


def sentence(acl: Acl) -> str:
    """An ACL as a person reads it."""
    who = "everyone" if acl.principal == "User:*" else acl.principal
    verb = VERBS.get(acl.operation, acl.operation)
    kind = acl.resource.replace("-", " ")
    if acl.resource == "cluster":
        what = "the cluster"
    elif acl.pattern == "prefixed":
        what = f"every {kind} that begins with {acl.name}"
    else:
        what = f"every {kind}" if acl.name == "*" else f"{kind} {acl.name}"
    place = "" if acl.host == "*" else f" from {acl.host}"
    return f"{who} may {'not ' if acl.permission == 'deny' else ''}{verb} {what}{place}"

"""docs/security/rights.md: a page by hand, and in it the table of rights, from the one that handlers are held to."""

from __future__ import annotations

from pathlib import Path

from headrace.broker.requests.apis import CLUSTER, SERVED, Access
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import APIS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security" / "rights.md"
BEGIN = "<!-- rights: from src/headrace/broker/requests/apis by make docs -->"
END = "<!-- /rights -->"
HEAD = "| request | number | needs, in one case or another |\n|---|---|---|"


def words(value: Operation | ResourceType) -> str:
    """A code as Kafka's tools spell it: `ClusterAction`."""
    return "".join(part.capitalize() for part in value.name.split("_"))


def rights_of(asked: frozenset[Access]) -> str:
    """What one request asks for, a resource after the other."""
    found = []
    for resource in sorted({access.resource for access in asked}):
        operations = sorted(access.operation for access in asked if access.resource is resource)
        found.append(f"{words(resource)}: {', '.join(map(words, operations))}")
    return "; ".join(found) or "nothing"


def table() -> str:
    """All requests that are served, by number."""
    every = {**SERVED, **CLUSTER}
    rows = [f"| {APIS[key].name} | {key} | {rights_of(every[key])} |" for key in sorted(every)]
    return "\n".join([HEAD, *rows])


def page() -> str:
    """The whole page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"

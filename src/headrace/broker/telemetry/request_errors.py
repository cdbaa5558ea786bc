"""Counts failed requests by API and error, as Kafka's ErrorsPerSec: each error code in an answer counts once.

Produce and Fetch count where they refuse a partition. The answers of all other APIs are searched before they are
encoded; the places of error codes are computed once for each message class.
"""

from __future__ import annotations

from typing import Final, NamedTuple, get_args, get_type_hints

from headrace.broker.telemetry.metrics import Counter, Registry
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message

FAMILY: Final = "request_errors"


class Plan(NamedTuple):
    """The places of error codes in a message: in itself, and in the messages of its lists."""

    own: bool
    lists: tuple[tuple[str, Plan], ...]


_plans: dict[type, Plan] = {}


def plan_of(kind: type) -> Plan:
    """Returns the plan of a message class; other classes have no error codes."""
    plan = _plans.get(kind)
    if plan is None:
        lists = []
        hints = get_type_hints(kind.__init__) if issubclass(kind, Message) else {}
        for name, hint in hints.items():
            nested = next((each for each in _classes_in(hint) if issubclass(each, Message)), None)
            if nested is not None and any(plan_of(nested)):
                lists.append((name, plan_of(nested)))
        plan = _plans[kind] = Plan("error_code" in hints, tuple(lists))
    return plan


def _classes_in(hint: object) -> list[type]:
    """Returns the classes in a type: `list[Topic] | None` contains Topic, and others."""
    if parts := get_args(hint):
        return [each for part in parts for each in _classes_in(part)]
    return [hint] if isinstance(hint, type) else []


def codes_in(message: object, plan: Plan, found: list[int]) -> None:
    """Adds the error codes in a message to `found`."""
    own, lists = plan
    if own and (code := message.error_code):  # type: ignore[attr-defined]
        found.append(code)
    for name, inner in lists:
        for each in getattr(message, name) or ():
            codes_in(each, inner, found)


def codes_of(response: object) -> list[int]:
    """Returns the error codes in an answer, each as often as it occurs."""
    found: list[int] = []
    codes_in(response, plan_of(type(response)), found)
    return found


class RequestErrors:
    """The counters `request_errors.API.ERROR`, made when first needed."""

    def __init__(self, metrics: Registry) -> None:
        self._metrics = metrics
        self._counters: dict[tuple[int, int], Counter] = {}

    def look_at(self, key: int, response: object) -> None:
        """Counts the errors in an answer of an API."""
        for code in codes_of(response):
            self.count(key, code)

    def count(self, key: int, code: int, times: int = 1) -> None:
        """Counts an error, `times` times."""
        counter = self._counters.get((key, code))
        if counter is None:
            name = f"{FAMILY}.{APIS[key].name}.{ErrorCode(code).name}"
            counter = self._counters[key, code] = self._metrics.counter(name)
        counter.value += times

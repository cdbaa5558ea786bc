"""Registers handlers by API key, and finds them.

A handler is in `broker/requests/apis/kNN_name.py`, named after its module in `wire/messages`, and is imported when the
first request of its key arrives:

    @handles(ApiKey.LIST_OFFSETS)
    def handle(broker: Services, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse: ...

It returns a response, or a `Completion` if its effect has taken place and the answer comes later, or None if there is
no answer. It may be `async def` instead: its connection then takes no further request until it is done, so that the
requests of a connection take effect in their order of arrival. Replies leave in request order in every case.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from headrace.wire.apis import APIS, ApiKey

Handler = Callable[..., Any]

_handlers: dict[int, Handler] = {}


def handles(key: ApiKey) -> Callable[[Handler], Handler]:
    """Registers the decorated function as the handler of one API key."""

    def register(handler: Handler) -> Handler:
        assert key not in _handlers or _handlers[key].__module__ == handler.__module__, f"two handlers for {key!r}"
        _handlers[key] = handler
        return handler

    return register


def handler_of(key: int) -> Handler:
    """Returns the handler of a served API key; imports its module on first use."""
    handler = _handlers.get(key)
    if handler is None:
        importlib.import_module(f"headrace.broker.requests.apis.{APIS[key].module}")
        handler = _handlers[key]
    return handler

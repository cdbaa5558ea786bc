"""Maps API keys to handlers: the table of the APIs that a listener serves, and the two short paths."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError, UnknownVersionError
from headrace.broker.net.ports import Api, ShortProduce
from headrace.broker.requests.apis import FORWARDED, SERVED, SPLIT
from headrace.broker.requests.registry import Handler, handler_of
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import request_class, response_class
from headrace.wire.primitives import EncodeError

if TYPE_CHECKING:
    from headrace.broker.net.context import RequestContext
    from headrace.broker.net.logins import LoginTerms
    from headrace.broker.requests.services import NodeServices
    from headrace.broker.telemetry.audit import AuditLog
    from headrace.broker.telemetry.metrics import Counter
    from headrace.config import BrokerConfig
    from headrace.security.authorizer import Authorizer
    from headrace.wire.frame import RequestHeader
    from headrace.wire.primitives import Part

NEVER: Final = 1 << 16


class ServedApi:
    """An API as a listener serves it (`net.ports.Api`). Imports codec and handler with the first request."""

    __slots__ = (
        "_find",
        "_key",
        "_services",
        "count",
        "decode",
        "flexible_from",
        "handle",
        "max_version",
        "min_version",
    )

    def __init__(self, key: int, services: NodeServices, count: Counter, find: Callable[[int], Handler]) -> None:
        api = APIS[key]
        self._key = key
        self._find = find
        self._services = services
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.flexible_from = NEVER if api.flexible_from is None else api.flexible_from
        self.count = count
        self.decode: Callable[..., Any] = self._first_decode
        self.handle: Callable[[Any, RequestContext], Any] = self._first_handle

    def _first_decode(self, frame: memoryview, version: int, at: int, *element_bytes: int) -> Any:
        self.decode = _decoder(self._key)
        return self.decode(frame, version, at, *element_bytes)

    def _first_handle(self, request: Any, context: RequestContext) -> Any:
        self.handle = partial(self._find(self._key), self._services)
        return self.handle(request, context)


def _decoder(key: int) -> Callable[..., Any]:
    if key == ApiKey.ENVELOPE:
        from headrace.broker.requests.envelopes import decode_envelope

        return decode_envelope
    decode: Callable[..., Any] = request_class(key).decode
    return decode


def _controller_handler(key: int) -> Handler:
    """Returns the handler of a key on a controller's listener, where Fetch reads the metadata log."""
    if key == ApiKey.FETCH:
        from headrace.broker.requests.metadata_fetch import handle

        return handle
    return handler_of(key)


def _broker_handler(key: int) -> Handler:
    """Returns the handler of a key on a listener for clients, which forwards requests that the controller decides."""
    handler = handler_of(key)
    if key not in FORWARDED or key in SPLIT:
        return handler
    from headrace.broker.requests.forwarding import decided_by_controller

    return decided_by_controller(handler)


class Dispatch:
    """The implementation of `net.ports.Requests`."""

    def __init__(self, services: NodeServices, short_produce: ShortProduce, keys: Collection[int] = SERVED) -> None:
        """`keys` are the APIs that this node can serve."""
        self._services = services
        self._keys = sorted(keys)
        self.short_produce = short_produce

    @property
    def authorizer(self) -> Authorizer:
        """The authorizer of this node."""
        return self._services.authorizer

    @property
    def audit(self) -> AuditLog:
        """The log of failed logins and refused requests."""
        return self._services.audit

    def served(self, role: str) -> dict[int, Api]:
        """Returns the APIs that listeners of a role (`broker`, `controller`) serve, by key."""
        find = _controller_handler if role == "controller" else _broker_handler
        return {
            int(key): ServedApi(key, self._services, self._services.metrics.counter(f"requests.{APIS[key].name}"), find)
            for key in self._keys
            if role in APIS[key].listeners
        }

    def login_terms(self, listener: str, config: BrokerConfig, before: LoginTerms | None = None) -> LoginTerms:
        """Returns the login terms of a listener with these settings; reuses unchanged offers of `before`. Raises
        ConfigError."""
        from headrace.broker.requests.login_terms import login_terms

        return login_terms(self._services, listener, config, before)

    def not_ready(self, key: int, version: int) -> Any:
        """Returns the answer to a request that arrives before the ACLs are loaded; None if its version has none."""
        from headrace.broker.telemetry.request_errors import plan_of

        kind = response_class(key)
        if not plan_of(kind).own:
            return None
        answer = kind(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            decoded = kind.decode(answer.encode(version), version)
        except EncodeError:
            return None
        # Some versions omit the error code, so that the answer would look like an empty result.
        return answer if decoded.error_code == answer.error_code else None

    def unsupported_version(
        self, served: Mapping[int, Api], frame: memoryview, at: int, header: RequestHeader
    ) -> list[Part]:
        """Returns the answer to a version that does not exist. Raises CloseConnectionError or UnknownVersionError if
        there is none."""
        if header.api_key == ApiKey.API_VERSIONS:
            from headrace.broker.requests.apis.k18_api_versions import answer_unknown_version

            return [answer_unknown_version(header.correlation_id)]
        if header.api_key == ApiKey.PRODUCE and 0 <= header.api_version < APIS[ApiKey.PRODUCE].min_version:
            from headrace.broker.requests.apis.produce_before_v3 import answer_old_version

            answer = answer_old_version(frame, at, header)
            if answer is not None:
                return [answer]
            raise CloseConnectionError("a Produce request of a version before 3 with acks=0")
        raise UnknownVersionError(f"{APIS[header.api_key].name} has no version {header.api_version}")

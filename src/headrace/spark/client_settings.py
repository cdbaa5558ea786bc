"""The client's settings among the options, `kafka.*`: by Kafka's names, in its units, checked before a query starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.arrow.sizes import BATCH_BYTES
from headrace.client.security import PLAINTEXT, Security, security_of
from headrace.client.sizes import FETCH_SIZE, MAX_WAIT_MS
from headrace.spark.option_table import SECURITY_KEYS
from headrace.wire.address import parse_addresses

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.config import ConfigError

PREFIX: Final = "kafka."
INT32_MAX: Final = (1 << 31) - 1
PARTITION_BYTES: Final = 2 << 20
"""What a task fetches of a partition at once becomes one Arrow batch: larger ones leave a core's cache on the way, and
make both the workers and the JVM larger."""
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Which cluster, and how patient with it: a broker may be away for a minute, as long as Kafka's own clients wait,
    and a query goes on; so the whole of a question has twice that."""

    bootstrap: str
    client_id: str = "headrace-spark"
    api_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    security: Security = PLAINTEXT
    """Goes into tasks, and shows no secret."""

    def client(self, *, known: bool = False) -> Client:
        """A client of the cluster; it connects with its first call.

        If the cluster is `known` to exist, as in a task that was planned, a bootstrap address that does not answer is
        tried for as long as any other broker. Else the address is probably wrong, and the error comes at once.
        """
        from headrace.client.cluster import Client

        return Client(
            self.bootstrap,
            client_id=self.client_id,
            timeout_s=self.api_timeout_ms / 1000,
            request_timeout_s=self.request_timeout_ms / 1000,
            await_bootstrap=known,
            security=self.security,
        )


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a task fetches."""

    min_bytes: int = 1
    max_wait_ms: int = MAX_WAIT_MS
    max_bytes: int = FETCH_SIZE
    partition_max_bytes: int = PARTITION_BYTES
    rack: str = ""


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """How a task produces; with `acks` other than -1 the producer is not idempotent."""

    acks: int = -1
    batch_bytes: int = BATCH_BYTES
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = 0
    """How long a transaction may be open; 0: as long as is usual for its kind."""


FETCH: Final = FetchSettings()
PRODUCE: Final = ProduceSettings()
"""The default settings of a read and of a write."""


def cluster_settings(options: Mapping[str, str]) -> ClusterSettings:
    """Raises ValueError, in one sentence, for a missing or wrong setting; so do the others."""
    text = options.get("kafka.bootstrap.servers")
    if text is None:
        raise ValueError("The option 'kafka.bootstrap.servers' is missing: give brokers as host:port,host:port.")
    try:
        parse_addresses(text, default_port=None)
    except ValueError as error:
        raise ValueError(f"The option 'kafka.bootstrap.servers' is wrong: {error}.") from None
    usual = ClusterSettings(text)
    return ClusterSettings(
        text,
        options.get("kafka.client.id", usual.client_id),
        _number(options, "kafka.default.api.timeout.ms", usual.api_timeout_ms, least=1),
        _number(options, "kafka.request.timeout.ms", usual.request_timeout_ms, least=1),
        _security(options),
    )


def _security(options: Mapping[str, str]) -> Security:
    """How connections are protected. Stores are not opened: where options are checked there may be no file."""
    given = {name.removeprefix(PREFIX): options[name] for name in SECURITY_KEYS if name in options}
    if not given:
        return PLAINTEXT
    from headrace.config import ConfigError

    try:
        return security_of(given)
    except ConfigError as error:
        raise _complaint(error) from None


def open_stores(settings: ClusterSettings) -> None:
    """Says before a query starts what would keep each of its tasks from connecting. Raises ValueError, in one sentence
    without secrets. To be called where Spark's driver runs."""
    if settings.security == PLAINTEXT:
        return
    from headrace.config import ConfigError

    try:
        settings.security.open()
    except ConfigError as error:
        raise _complaint(error) from None


def _complaint(error: ConfigError) -> ValueError:
    """Without the value, but for a path or a choice, which is no secret."""
    why = error.why.rstrip(".")
    choice = why.removeprefix("String must be one of: ")
    if choice != why:
        why = f"it must be one of {choice}, not {error.value!r}"
    elif error.name.endswith(".location"):
        why = f"{error.value}: {why}"
    return ValueError(f"The option '{PREFIX}{error.name}' is wrong: {why or 'it cannot be taken'}.")


def security_options(security: Security) -> dict[str, str]:
    """The options of a source or sink that say this."""
    if security == PLAINTEXT:
        return {}
    settings = {f"{PREFIX}{name}": text for name, text in security.settings if f"{PREFIX}{name}" in SECURITY_KEYS}
    return {f"{PREFIX}security.protocol": security.protocol, **settings}


def fetch_settings(options: Mapping[str, str]) -> FetchSettings:
    """Those of the source."""
    return FetchSettings(
        _number(options, "kafka.fetch.min.bytes", FETCH.min_bytes),
        _number(options, "kafka.fetch.max.wait.ms", FETCH.max_wait_ms),
        _number(options, "kafka.fetch.max.bytes", FETCH.max_bytes, least=1),
        _number(options, "kafka.max.partition.fetch.bytes", FETCH.partition_max_bytes, least=1),
        options.get("kafka.client.rack", FETCH.rack),
    )


def produce_settings(options: Mapping[str, str]) -> ProduceSettings:
    """Those of the sink."""
    acks = options.get("kafka.acks", "all").lower()
    if acks not in ACKS:
        raise ValueError(f"The option 'kafka.acks' must be all, 1 or 0, not {acks!r}.")
    return ProduceSettings(
        ACKS[acks],
        _number(options, "kafka.batch.size", PRODUCE.batch_bytes, least=1),
        _number(options, "kafka.delivery.timeout.ms", PRODUCE.delivery_timeout_ms, least=1),
        _number(options, "kafka.transaction.timeout.ms", PRODUCE.transaction_timeout_ms, least=1),
    )


def _number(options: Mapping[str, str], name: str, usual: int, least: int = 0) -> int:
    text = options.get(name)
    if text is None:
        return usual
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= INT32_MAX:
        raise ValueError(f"The option {name!r} must be a whole number from {least} to {INT32_MAX}, not {text!r}.")
    return int(text)

"""The inputs of the controller's decisions beside the image: defaults, configuration rules, fresh ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from headrace.controller.access import Access
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode

R = TypeVar("R")

MIN_INSYNC_REPLICAS = "min.insync.replicas"
MAX_RECORDS_PER_REQUEST = 10_000
"""The limit of records that one request may write, as in Kafka's QuorumController."""


class ApiError(NamedTuple):
    """Why one item of a request was refused: Kafka's error code and a message."""

    code: ErrorCode
    message: str | None = None


OfPartitions = list[tuple[str, list[tuple[int, ApiError]]]]
"""A result for each partition, by topic."""

DONE = ApiError(ErrorCode.NONE)

TOO_MANY_RECORDS = ApiError(ErrorCode.POLICY_VIOLATION, "A request may not write so many metadata records.")


QUOTA_USED_UP = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class DescribedConfig(NamedTuple):
    """One effective setting; `source` is the id of DescribeConfigs' ConfigSource."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool


class ConfigRules(Protocol):
    """The checks of overrides by the settings table; every method is pure."""

    def check_topic(self, overrides: Mapping[str, str]) -> str | None:
        """Returns why these overrides of a topic are refused, or None."""
        ...

    def check_broker(self, overrides: Mapping[str, str], per_broker: bool) -> str | None:
        """Returns why these dynamic settings are refused for every broker, or None. `per_broker` False: they are the
        cluster's default."""
        ...

    def check_group(self, overrides: Mapping[str, str]) -> str | None:
        """Returns why these overrides of a group are refused, or None."""
        ...

    def check_client_metrics(self, overrides: Mapping[str, str]) -> str | None:
        """Returns why this subscription to client metrics is refused, or None."""
        ...

    def is_list(self, resource_type: int, name: str) -> bool:
        """Returns whether a setting is a list, to which values may be appended."""
        ...

    def default_text(self, resource_type: int, name: str) -> str | None:
        """Returns the value of a setting without an override, as text."""
        ...

    def describe_topic(self, overrides: Mapping[str, str]) -> list[DescribedConfig]:
        """Returns every setting of a topic with these overrides, sorted by name."""
        ...


def first(_choices: int) -> int:
    """Returns 0: a choice without randomness."""
    return 0


def no_refusal(_level: int) -> str | None:
    """Accepts every level, without a check."""
    return None


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The inputs of a decision beside the image.

    `new_id` draws a fresh random 16-byte id at each call, `random(n)` an integer in [0, n). `sessions` tells which
    brokers are alive at `now_ms`; None in a single-node cluster. `voters` are the voters of the metadata quorum, which
    is at `kraft_version`; `kraft_refusal` returns why it cannot be raised to a level, None if it can.
    """

    node_id: int
    num_partitions: int
    default_replication_factor: int
    rules: ConfigRules
    new_id: Callable[[], bytes]
    random: Callable[[int], int] = first
    sessions: BrokerSessions | None = None
    now_ms: int = 0
    voters: Collection[int] = ()
    kraft_version: int = 0
    kraft_refusal: Callable[[int], str | None] = no_refusal


class ControllerRequest(Protocol[R]):
    """A request to the controller, and the type of its reply. Each is beside its decision in this package.

    The value does not depend on where it is decided: the controller may be another node. The client's rights come
    separately (`access`), because only the controller's image knows the names to check.
    """

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[R]:
        """Returns the decision upon an image. Changes nothing."""
        ...

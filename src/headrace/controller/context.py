"""What the controller's decisions know beside the image: defaults, the rules of configurations, fresh ids."""

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
"""One request may write at most this many records, as Kafka's QuorumController bounds it."""


class ApiError(NamedTuple):
    """Why one thing of a request was refused: Kafka's code and a sentence."""

    code: ErrorCode
    message: str | None = None


OfPartitions = list[tuple[str, list[tuple[int, ApiError]]]]
"""An outcome for each partition, by topic."""

DONE = ApiError(ErrorCode.NONE)

TOO_MANY_RECORDS = ApiError(ErrorCode.POLICY_VIOLATION, "A request may not write so many metadata records.")


QUOTA_USED_UP = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class DescribedConfig(NamedTuple):
    """One effective setting: source is the id of DescribeConfigs' ConfigSource."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool


class ConfigRules(Protocol):
    """What the settings table says of overrides; every method is pure."""

    def check_topic(self, overrides: Mapping[str, str]) -> str | None:
        """Why these overrides of a topic are refused, or None."""
        ...

    def check_broker(self, overrides: Mapping[str, str], per_broker: bool) -> str | None:
        """Why these dynamic settings of a broker (or the cluster's default) are refused whichever broker it is, or
        None."""
        ...

    def check_group(self, overrides: Mapping[str, str]) -> str | None:
        """Why these overrides of a group are refused, or None."""
        ...

    def check_client_metrics(self, overrides: Mapping[str, str]) -> str | None:
        """Why this subscription to client metrics is refused, or None."""
        ...

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether a setting is a list, to which values may be appended."""
        ...

    def default_text(self, resource_type: int, name: str) -> str | None:
        """The value that a setting has without an override, as text."""
        ...

    def describe_topic(self, overrides: Mapping[str, str]) -> list[DescribedConfig]:
        """Every setting of a topic with these overrides, sorted by name."""
        ...


def first(_choices: int) -> int:
    """A choice without chance: always the first."""
    return 0


def no_refusal(_level: int) -> str | None:
    """Accepts every level, without a check."""
    return None


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What a controller knows when it decides.

    `new_id` draws a fresh random 16-byte id at each call, `random(n)` one of the numbers from 0 to n - 1. `sessions`
    says which brokers of a cluster are alive at `now_ms`; None where the cluster is one broker, which needs none.
    `voters` are the nodes that vote in the metadata quorum, which is at `kraft_version`; `kraft_refusal` says why it
    cannot be raised to a level, None: it can.
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

    A value describes the request, and not the place of the decision: the controller may be another node. What a client
    may do comes beside it (`access`), for it is asked about names that only the controller's image knows.
    """

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[R]:
        """Returns the outcome on an image. Changes nothing."""
        ...

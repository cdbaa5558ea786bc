"""The requests and answers of a transaction shard, independent of the protocol's versions.

Errors are those of the newest version: for requests too old to know PRODUCER_FENCED the handler answers
INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from headrace.machine.split_table import SplitTable
from headrace.wire.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]

NO_ID: Final = -1
"""The value of a producer id or epoch that is not given."""

FreshId: TypeAlias = Callable[[], int | None]
"""Returns an unused producer id; None if none is available, which is answered COORDINATOR_LOAD_IN_PROGRESS."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker settings of transactions."""

    max_timeout_ms: int = 900_000
    """The longest timeout that a producer may request."""
    two_phase_commit_enable: bool = False
    """Whether a producer may request no timeout at all (KIP-939)."""
    id_expiration_ms: int = 604_800_000
    """How long a transactional id without a transaction is kept after its last change."""
    timeout_check_interval_ms: int = 10_000
    """The interval of aborting transactions past their timeout."""
    expiry_check_interval_ms: int = 3_600_000
    """The interval of removing transactional ids past `id_expiration_ms`."""


class InitProducer(NamedTuple):
    """An InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    enable_2pc: bool = False


class Partitions(NamedTuple):
    """An AddPartitionsToTxn or AddOffsetsToTxn (the group's partition); with `verify_only` a verification."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """2 if a broker asks for a producer (v4 and above), else 0."""


class End(NamedTuple):
    """An EndTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int
    """2 from v5 on, else 0."""


class GroupMember(NamedTuple):
    """One transaction of a group that ends as one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class GroupEnd(NamedTuple):
    """A HeadraceGroupEndTxn: all of these transactions end alike, or none of them."""

    main: GroupMember
    """The main transaction, which tells a repeated request whether the group was ended."""
    children: tuple[GroupMember, ...]
    committed: bool


class GroupIdentity(NamedTuple):
    """The answer to HeadraceGroupEndTxn: the main producer's next id and epoch, -1 with an error."""

    error: ErrorCode
    """OPERATION_NOT_ATTEMPTED if only children prevent it."""
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    children: tuple[ErrorCode, ...] = ()
    """The error of each child, in the order of the request; empty if none was checked."""


class Identity(NamedTuple):
    """The answer to InitProducerId and EndTxn: the producer's next id and epoch; -1 with an error."""

    error: ErrorCode
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID


class Verdicts(NamedTuple):
    """The answer to a verification of partitions."""

    error: ErrorCode
    """The error of all partitions, if not NONE."""
    partitions: Mapping[TopicPartition, ErrorCode]


@dataclass(eq=False, slots=True)
class Marking:
    """A decided end of a transaction whose markers are to be written to its partitions."""

    transactional_id: str
    producer_id: int
    """The producer id of the transaction's batches."""
    producer_epoch: int
    """The producer epoch of the markers."""
    committed: bool
    transaction_version: int
    """The version of the transaction: 2 if `producer_epoch` is above the epoch of its batches."""
    left: set[TopicPartition]
    """Partitions without their marker; the marker sender removes each that has it."""


class Described(NamedTuple):
    """A transactional id for DescribeTransactions."""

    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = -1
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    partitions: tuple[TopicPartition, ...] = ()


class Listed(NamedTuple):
    """A transactional id for ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


class Filters(NamedTuple):
    """The filters of ListTransactions; an empty set matches all."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] | SplitTable[int, None] = frozenset()
    longer_than_ms: int = -1
    matches: Callable[[str], bool] | None = None
    """Returns whether a transactional id matches the requested regular expression."""

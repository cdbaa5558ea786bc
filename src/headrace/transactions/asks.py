"""What a shard of transactions is asked and what it answers, without a version of the protocol.

Errors are those of the newest version: a handler says INVALID_PRODUCER_EPOCH for PRODUCER_FENCED where a request is too
old to know that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from headrace.machine.split_table import SplitTable
from headrace.wire.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]

NO_ID: Final = -1
"""In the place of a producer id or of an epoch that is not given."""

FreshId: TypeAlias = Callable[[], int | None]
"""Gives a producer id that nobody has had; None while there is none at hand, which is answered
COORDINATOR_LOAD_IN_PROGRESS."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """What the machine obeys of a broker's settings."""

    max_timeout_ms: int = 900_000
    """The longest timeout that a transaction may ask for."""
    two_phase_commit_enable: bool = False
    """Whether a transaction may ask for no timeout at all (KIP-939)."""
    id_expiration_ms: int = 604_800_000
    """How long a transactional id without a transaction is kept after its last change."""
    timeout_check_interval_ms: int = 10_000
    """How often transactions past their timeout are aborted."""
    expiry_check_interval_ms: int = 3_600_000
    """How often transactional ids past `id_expiration_ms` are removed."""


class InitProducer(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    enable_2pc: bool = False


class Partitions(NamedTuple):
    """AddPartitionsToTxn, AddOffsetsToTxn (the group's partition), and both as a question (`verify_only`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """2 where a broker asks for a producer (v4 and above), else 0."""


class End(NamedTuple):
    """EndTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int
    """2 from v5 on, else 0."""


class GroupMember(NamedTuple):
    """One transaction of a group that is to be ended as one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class GroupEnd(NamedTuple):
    """HeadraceGroupEndTxn: all of these transactions end alike, or none of them."""

    main: GroupMember
    """The one that tells whether the group was ended, where the request comes again."""
    children: tuple[GroupMember, ...]
    committed: bool


class GroupIdentity(NamedTuple):
    """The answer to HeadraceGroupEndTxn: the main producer's id and epoch from now on, -1 beside an error."""

    error: ErrorCode
    """OPERATION_NOT_ATTEMPTED if only children prevent it."""
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    children: tuple[ErrorCode, ...] = ()
    """Of each child, in the order of the request; empty where nobody has looked at them."""


class Identity(NamedTuple):
    """The answer to InitProducerId and to EndTxn: the producer's id and epoch from now on; -1 beside an error."""

    error: ErrorCode
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID


class Verdicts(NamedTuple):
    """The answer to a question whether partitions are in a transaction."""

    error: ErrorCode
    """For all of them, where not NONE."""
    partitions: Mapping[TopicPartition, ErrorCode]


@dataclass(eq=False, slots=True)
class Marking:
    """The end of one transaction on its way to the leaders of its partitions: markers are to be written on each."""

    transactional_id: str
    producer_id: int
    """The id that the transaction's batches carry."""
    producer_epoch: int
    """The epoch that the markers carry."""
    committed: bool
    transaction_version: int
    """That of the transaction: 2 where `producer_epoch` is above the epoch of its batches."""
    left: set[TopicPartition]
    """Partitions that do not hold their marker yet; the marker sender removes each that does."""


class Described(NamedTuple):
    """A transactional id as DescribeTransactions shows it."""

    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = -1
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    partitions: tuple[TopicPartition, ...] = ()


class Listed(NamedTuple):
    """A transactional id as ListTransactions shows it."""

    transactional_id: str
    producer_id: int
    state: str


class Filters(NamedTuple):
    """What ListTransactions asks for; an empty set asks for all."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] | SplitTable[int, None] = frozenset()
    longer_than_ms: int = -1
    matches: Callable[[str], bool] | None = None
    """Whether a transactional id is asked for, as a regular expression says it."""

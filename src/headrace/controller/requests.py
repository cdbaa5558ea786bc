"""What can be asked of the controller, one value a request: with the newest image it becomes a decision.

A value says what is wanted and nothing of where it is decided: the controller may be another node. What the asker may
do comes beside it (`Access`), because it is asked for names that only the controller's image knows.

Clients ask from CreateTopics to DeleteAcls, and UnregisterBroker. The nodes of a cluster ask RegisterController,
RegisterBroker, Heartbeat, AlterPartitions, AssignDirectories and AllocateProducerIds. The active controller asks itself
ElectMissing at its beginning, FenceBrokers when sessions run out, BalanceLeaders, ElectUnclean and SweepTokens now and
then. A broker that is a cluster alone asks RegisterBroker, UnfenceBroker, ElectReturned, FenceBroker, FailDirectories
and SweepTokens, and has neither heartbeats nor sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from headrace.controller.access import Access
from headrace.controller.acls import AclsDeleted, decide_create_acls, decide_delete_acls
from headrace.controller.brokers import (
    Registered,
    Registration,
    decide_elect_returned,
    decide_fence,
    decide_register,
    decide_unfence,
)
from headrace.controller.configs import Alteration, decide_alter_configs
from headrace.controller.context import ApiError, ControllerContext
from headrace.controller.delegation_tokens import (
    TokenChanged,
    TokenCreated,
    TokenRules,
    TokenWanted,
    decide_create_token,
    decide_expire_token,
    decide_renew_token,
    decide_sweep_tokens,
)
from headrace.controller.directories import (
    DirectoriesAssigned,
    decide_assign_directories,
    decide_directories_failed,
)
from headrace.controller.features import FeatureUpdate, decide_update_features
from headrace.controller.heartbeats import Beat, HeartbeatReply, decide_heartbeat
from headrace.controller.in_sync import PartitionAlteration, PartitionsAltered, decide_alter_partitions
from headrace.controller.leaders import (
    decide_balance_leaders,
    decide_elect_leaders,
    decide_elect_missing,
    decide_elect_unclean,
)
from headrace.controller.membership import (
    decide_fence_brokers,
    decide_register_controller,
    decide_register_in_cluster,
    decide_unregister,
)
from headrace.controller.partitions import decide_create_partitions
from headrace.controller.producer_ids import ProducerIdBlock, decide_allocate_producer_ids
from headrace.controller.quotas import QuotaAlteration, decide_alter_quotas
from headrace.controller.reassignments import decide_reassign
from headrace.controller.scram_users import ScramDeletion, ScramUpsertion, decide_alter_scram
from headrace.controller.topics import decide_create_topics, decide_delete_topics
from headrace.machine import Decision
from headrace.metadata.acls import AclBinding, AclFilter
from headrace.metadata.image import ClusterImage
from headrace.metadata.image import Controller as ControllerNode
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.k20_delete_topics import DeletableTopicResult
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic

R = TypeVar("R")

OfPartitions = list[tuple[str, list[tuple[int, ApiError]]]]
"""An outcome for each partition, by topic."""


class ControllerRequest(Protocol[R]):
    """A request, and the type of its reply."""

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[R]:
        """The outcome on an image. Changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """New topics; each has a result of its own, in the request's order."""

    request: CreateTopicsRequest

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[CreateTopicsResponse]:
        """See ControllerRequest."""
        return decide_create_topics(
            image,
            self.request,
            context,
            may_create=access.may_create,
            may_describe_configs=access.may_describe_configs,
            may_change=access.may_change,
        )


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Topics to delete, given as (name, id), of which exactly one is set."""

    wanted: Sequence[tuple[str | None, bytes]]

    def decide(
        self, image: ClusterImage, context: ControllerContext, access: Access
    ) -> Decision[list[DeletableTopicResult]]:
        """See ControllerRequest."""
        return decide_delete_topics(
            image,
            self.wanted,
            context,
            may_describe=access.may_see_to_delete,
            may_delete=access.may_delete,
            may_change=access.may_change,
        )


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """More partitions for topics that exist."""

    topics: Sequence[CreatePartitionsTopic]
    validate_only: bool = False

    def decide(
        self, image: ClusterImage, context: ControllerContext, access: Access
    ) -> Decision[list[tuple[str, ApiError]]]:
        """See ControllerRequest."""
        return decide_create_partitions(
            image,
            self.topics,
            may_alter=access.may_alter,
            may_change=access.may_change,
            random=context.random,
            validate_only=self.validate_only,
        )


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Leaders for the partitions named (topic, indexes), or for all (None)."""

    election_type: int
    wanted: Sequence[tuple[str, Sequence[int]]] | None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[OfPartitions]:
        """See ControllerRequest."""
        return decide_elect_leaders(image, context, self.election_type, self.wanted)


@dataclass(frozen=True, slots=True)
class ReassignPartitions:
    """Other replicas for partitions (topic, (index, replicas)); None as replicas calls a move off."""

    wanted: Sequence[tuple[str, Sequence[tuple[int, Sequence[int] | None]]]]
    allow_factor_change: bool

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[OfPartitions]:
        """See ControllerRequest."""
        return decide_reassign(image, context, self.wanted, self.allow_factor_change)


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Alterations of stored configurations; each has a result of its own."""

    alterations: Sequence[Alteration]
    validate_only: bool = False

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[list[ApiError]]:
        """See ControllerRequest."""
        return decide_alter_configs(
            image, self.alterations, context, may_alter=access.may_alter_configs, validate_only=self.validate_only
        )


@dataclass(frozen=True, slots=True)
class AlterQuotas:
    """Other quotas; each entity has a result of its own."""

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[list[ApiError]]:
        """See ControllerRequest."""
        return decide_alter_quotas(image, self.alterations, validate_only=self.validate_only)


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Other feature levels, all of them or none."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ApiError]:
        """See ControllerRequest."""
        return decide_update_features(image, self.updates, context, validate_only=self.validate_only)


@dataclass(frozen=True, slots=True)
class AlterScramUsers:
    """Credentials of users that are deleted, made or replaced; each user has an outcome."""

    wanted: Sequence[ScramDeletion | ScramUpsertion]

    def decide(
        self, image: ClusterImage, context: ControllerContext, access: Access
    ) -> Decision[list[tuple[str, ApiError]]]:
        """See ControllerRequest."""
        return decide_alter_scram(image, self.wanted)


@dataclass(frozen=True, slots=True)
class CreateToken:
    """A new delegation token. `now_ms` is in ms since 1970."""

    wanted: TokenWanted
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenCreated]:
        """See ControllerRequest."""
        return decide_create_token(image, self.wanted, self.rules, self.now_ms, context.new_id)


@dataclass(frozen=True, slots=True)
class RenewToken:
    """The token with this HMAC lives longer. Times are in ms, `now_ms` since 1970."""

    hmac: bytes = field(repr=False)
    principal: str
    period_ms: int
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenChanged]:
        """See ControllerRequest."""
        return decide_renew_token(image, self.hmac, self.principal, self.period_ms, self.rules, self.now_ms)


@dataclass(frozen=True, slots=True)
class ExpireToken:
    """The token with this HMAC ends. Times are in ms, `now_ms` since 1970."""

    hmac: bytes = field(repr=False)
    principal: str
    period_ms: int
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenChanged]:
        """See ControllerRequest."""
        return decide_expire_token(image, self.hmac, self.principal, self.period_ms, self.rules, self.now_ms)


@dataclass(frozen=True, slots=True)
class SweepTokens:
    """Tokens whose time is up go; the reply says whether more may be left. `now_ms` is in ms since 1970."""

    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """See ControllerRequest."""
        return decide_sweep_tokens(image, self.now_ms)


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """ACLs to store; each has a result of its own, in the request's order."""

    acls: Sequence[AclBinding]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[list[ApiError]]:
        """See ControllerRequest."""
        return decide_create_acls(image, self.acls, context)


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """What finds ACLs that are to go, and how often the client has named each filter; each has a result of its own."""

    filters: Mapping[AclFilter, int]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[AclsDeleted]:
        """See ControllerRequest."""
        return decide_delete_acls(image, list(self.filters), self.filters)


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A block of producer ids for a broker. `broker_epoch` None: it is this node, which need not prove itself."""

    broker_id: int
    broker_epoch: int | None = None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ProducerIdBlock]:
        """See ControllerRequest."""
        return decide_allocate_producer_ids(image, self.broker_id, self.broker_epoch)


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker has started. It is fenced until it asks for more; a broker alone registers as controller with it."""

    registration: Registration

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[Registered]:
        """See ControllerRequest."""
        if context.sessions is None:
            return decide_register(image, self.registration)
        return decide_register_in_cluster(image, context, context.sessions, self.registration)


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A registered broker is ready to lead. STALE_BROKER_EPOCH where another registration has followed its own."""

    broker_id: int
    broker_epoch: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ErrorCode]:
        """See ControllerRequest."""
        return decide_unfence(image, self.broker_id, self.broker_epoch)


@dataclass(frozen=True, slots=True)
class ElectReturned:
    """What a broker that came back may lead now. `was_clean`: it lost nothing of what it acknowledged."""

    broker_id: int
    was_clean: bool

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """See ControllerRequest."""
        return decide_elect_returned(image, self.broker_id, was_clean=self.was_clean)


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A broker stops cleanly."""

    broker_id: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """See ControllerRequest."""
        return decide_fence(image, self.broker_id)


@dataclass(frozen=True, slots=True)
class AssignDirectories:
    """In which log directory a broker keeps its replicas: (topic id, partition, directory id).

    `broker_epoch` None: it is this node, which need not prove itself.
    """

    broker_id: int
    chosen: Sequence[tuple[bytes, int, bytes]]
    broker_epoch: int | None = None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[DirectoriesAssigned]:
        """See ControllerRequest."""
        return decide_assign_directories(image, context, self.broker_id, self.chosen, self.broker_epoch)


@dataclass(frozen=True, slots=True)
class FailDirectories:
    """Of a broker's log directories only these still work."""

    broker_id: int
    working: Sequence[bytes]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """See ControllerRequest."""
        return decide_directories_failed(image, self.broker_id, self.working)


@dataclass(frozen=True, slots=True)
class RegisterController:
    """A controller of a cluster says where it is reached and at which feature levels it can run."""

    controller: ControllerNode

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ApiError]:
        """See ControllerRequest."""
        return decide_register_controller(image, self.controller)


@dataclass(frozen=True, slots=True)
class Heartbeat(Beat):
    """A broker of a cluster is alive, and wants something."""

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[HeartbeatReply]:
        """See ControllerRequest."""
        assert context.sessions is not None
        return decide_heartbeat(image, context, context.sessions, self)


@dataclass(frozen=True, slots=True)
class FenceBrokers:
    """Brokers, as (id, broker epoch), are silent, or known to be dead; who has registered since is left alone."""

    expired: Sequence[tuple[int, int]]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """See ControllerRequest."""
        return decide_fence_brokers(image, context, self.expired)


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A broker will not come back."""

    broker_id: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ApiError]:
        """See ControllerRequest."""
        return decide_unregister(image, context, self.broker_id)


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """A leader says which replicas are in sync."""

    broker_id: int
    broker_epoch: int
    changes: Sequence[PartitionAlteration]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[PartitionsAltered]:
        """See ControllerRequest."""
        return decide_alter_partitions(image, context, self.broker_id, self.broker_epoch, self.changes)


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Partitions go back to their preferred replicas, so many at most; the reply says whether more may be left."""

    max_changes: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """See ControllerRequest."""
        return decide_balance_leaders(image, context, self.max_changes)


@dataclass(frozen=True, slots=True)
class ElectMissing:
    """A new controller elects what the one before it may have left without a leader; the reply is False."""

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """See ControllerRequest."""
        return decide_elect_missing(image, context)


@dataclass(frozen=True, slots=True)
class ElectUnclean:
    """Partitions get leaders that may lack records, so many at most, where the topic says so; the reply as above."""

    max_changes: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """See ControllerRequest."""
        return decide_elect_unclean(image, context, self.max_changes)

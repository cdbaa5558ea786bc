"""The controller that runs in this process, on top of the quorum's driver: it decides while this node leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.quorum.controller import Asker
from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.settings.config_rules import rules_of
from headrace.config import BrokerConfig
from headrace.controller.context import ControllerContext
from headrace.controller.requests import Access, ControllerRequest
from headrace.env import Entropy
from headrace.metadata.image import ResourceType as Config
from headrace.security.authorizer import CLUSTER_NAME, Authorizer, OpenAuthorizer, Operation, ResourceType
from headrace.security.login import ANONYMOUS
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.duties import Duties

R = TypeVar("R")

_CONFIGS_OF = {
    Config.TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    Config.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}

_NODE = Asker(ANONYMOUS, "")
"""Stands for this node beside an authorizer that allows everything."""


class AskerAccess:
    """See `controller.requests.Access`: what an authorizer allows one asker."""

    def __init__(self, authorizer: Authorizer, asker: Asker) -> None:
        self._authorizer = authorizer
        self._asker = asker

    def _may(self, operation: Operation, resource: ResourceType, name: str, *, is_told: bool = True) -> bool:
        """`is_told`: the audit hears of it."""
        asker, authorizer = self._asker, self._authorizer
        allowed = authorizer.authorize(asker.principal, asker.host, operation, resource, name)
        audit = authorizer.audit
        if is_told and audit is not None and (audit.wants_allowed or not allowed):
            audit.decided(asker.principal, asker.host, operation, resource, name, asker.api_key, allowed=allowed)
        return allowed

    def may_create(self, topic: str) -> bool:
        """See Access. Whoever may create in the cluster may create any topic."""
        return self._may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_told=False) or self._may(
            Operation.CREATE, ResourceType.TOPIC, topic
        )

    def may_see_to_delete(self, topic: str) -> bool:
        """See Access. Whoever may delete in the cluster may see any topic, and delete it."""
        return self._may_delete_all() or self._may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def may_describe_configs(self, topic: str) -> bool:
        """See Access."""
        return self._may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic, is_told=False)

    def may_delete(self, topic: str) -> bool:
        """See Access."""
        return self._may_delete_all() or self._may(Operation.DELETE, ResourceType.TOPIC, topic)

    def _may_delete_all(self) -> bool:
        return self._may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, is_told=False)

    def may_alter(self, topic: str) -> bool:
        """See Access."""
        return self._may(Operation.ALTER, ResourceType.TOPIC, topic)

    def may_alter_configs(self, resource_type: int, name: str) -> ErrorCode:
        """See Access."""
        return self.of_configs(Operation.ALTER_CONFIGS, resource_type, name)

    def may_change(self, partitions: int) -> bool:
        """See Access."""
        return self._asker.pay(partitions)

    def of_configs(self, operation: Operation, resource_type: int, name: str) -> ErrorCode:
        """NONE where the asker may do the operation to a resource's settings, or the code that says it may not.

        What is neither a topic's nor a group's belongs to the cluster.
        """
        resource, denied = ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if resource_type in (Config.TOPIC, Config.GROUP):
            resource, denied = _CONFIGS_OF[Config(resource_type)]
        subject = CLUSTER_NAME if resource is ResourceType.CLUSTER else name
        return ErrorCode.NONE if self._may(operation, resource, subject) else denied


EVERYTHING: Access = AskerAccess(OpenAuthorizer(), _NODE)
"""What this node may do for itself."""


class LocalController:
    """See `controller.Controller`. `config` and `authorizer` are asked again for each request: both may change."""

    def __init__(
        self,
        driver: QuorumDriver,
        config: Callable[[], BrokerConfig],
        authorizer: Callable[[], Authorizer],
        entropy: Entropy,
        duties: Duties | None = None,
    ) -> None:
        """`duties` has the sessions of brokers, where there can be others than this node."""
        self._driver = driver
        self._config = config
        self._authorizer = authorizer
        self._entropy = entropy
        self._random = entropy.random()
        self._duties = duties

    def ask(self, request: ControllerRequest[R], asker: Asker | None = None) -> Future[R]:
        """See Controller."""
        access = EVERYTHING if asker is None else AskerAccess(self._authorizer(), asker)
        context = self._context()
        return self._driver.submit(lambda image: request.decide(image, context, access))

    def _context(self) -> ControllerContext:
        config = self._config()
        return ControllerContext(
            node_id=self._driver.node_id,
            num_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            rules=rules_of(config),
            new_id=self._entropy.uuid,
            sessions=None if self._duties is None else self._duties.sessions,
            now_ms=0 if self._duties is None else self._duties.now_ms(),
            random=self._random.randrange,
            voters=[voter.id for voter in self._driver.voters],
            kraft_version=self._driver.kraft_version,
            kraft_refusal=self._driver.raft.version_refusal,
        )

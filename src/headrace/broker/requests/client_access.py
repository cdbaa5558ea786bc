"""Decides with the node's authorizer what a client may ask of the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.metadata.image import ResourceType as Config
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.net.context import RequestContext
    from headrace.security.authorizer import Authorizer

_CONFIGS_OF = {
    Config.TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    Config.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def free(_partitions: int) -> bool:
    """Accepts any number of partitions, where changes cost no quota."""
    return True


class ClientAccess:
    """The access of the client that sent a request, as a `controller.access.Access`.

    `pay` returns whether so many partitions may be created or deleted under the client's quota, and counts them if so.
    """

    def __init__(self, authorizer: Authorizer, context: RequestContext, pay: Callable[[int], bool] = free) -> None:
        self._authorizer = authorizer
        self._principal = context.principal
        self._host = context.client_host
        self._api_key = context.api_key
        self._pay = pay

    def _may(self, operation: Operation, resource: ResourceType, name: str, *, is_audited: bool = True) -> bool:
        authorizer, principal, host = self._authorizer, self._principal, self._host
        allowed = authorizer.authorize(principal, host, operation, resource, name)
        audit = authorizer.audit
        if is_audited and audit is not None and (audit.wants_allowed or not allowed):
            audit.decided(principal, host, operation, resource, name, self._api_key, allowed=allowed)
        return allowed

    def may_create(self, topic: str) -> bool:
        """Returns whether the client may create a topic. Create on the cluster allows any topic."""
        return self._may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=False) or self._may(
            Operation.CREATE, ResourceType.TOPIC, topic
        )

    def may_see_to_delete(self, topic: str) -> bool:
        """Returns whether the client may see a topic it wants to delete. Delete on the cluster allows any topic."""
        return self._may_delete_all() or self._may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def may_describe_configs(self, topic: str) -> bool:
        """Returns whether the client may see the settings of a topic."""
        return self._may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic, is_audited=False)

    def may_delete(self, topic: str) -> bool:
        """Returns whether the client may delete a topic. Delete on the cluster allows any topic."""
        return self._may_delete_all() or self._may(Operation.DELETE, ResourceType.TOPIC, topic)

    def _may_delete_all(self) -> bool:
        return self._may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=False)

    def may_alter(self, topic: str) -> bool:
        """Returns whether the client may alter a topic."""
        return self._may(Operation.ALTER, ResourceType.TOPIC, topic)

    def may_alter_configs(self, resource_type: int, name: str) -> ErrorCode:
        """Returns NONE if the client may alter the settings of a resource, else the error that refuses it."""
        return self.of_configs(Operation.ALTER_CONFIGS, resource_type, name)

    def may_change(self, partitions: int) -> bool:
        """Returns whether so many partitions may be created or deleted, and counts them against the quota if so."""
        return self._pay(partitions)

    def of_configs(self, operation: Operation, resource_type: int, name: str) -> ErrorCode:
        """Returns NONE if the client may do the operation to a resource's settings, else the error that refuses it.

        Settings of neither a topic nor a group belong to the cluster.
        """
        resource, denied = ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if resource_type in (Config.TOPIC, Config.GROUP):
            resource, denied = _CONFIGS_OF[Config(resource_type)]
        subject = CLUSTER_NAME if resource is ResourceType.CLUSTER else name
        return ErrorCode.NONE if self._may(operation, resource, subject) else denied

"""Applies the ACLs in the metadata to a node's authorizer, or ends the service of a node that has ACLs but no
authorizer.

Other nodes would enforce these ACLs. If they exist at the start, `metadata.adoption` keeps the node from starting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.broker.telemetry.audit import AuditLog
from headrace.config.security_table import principals_of
from headrace.metadata import adoption
from headrace.security.authorizer import Authorizer, ClosedAuthorizer, OpenAuthorizer

if TYPE_CHECKING:
    from headrace.broker.net.server import Server
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage
    from headrace.security.acls import AclAuthorizer


class AclFollower:
    """Passes ACLs to an authorizer, beginning when the image has everything that is committed: some ACLs may allow what
    others deny."""

    def __init__(self, authorizer: AclAuthorizer, quorum: QuorumDriver) -> None:
        self._authorizer = authorizer
        self._quorum = quorum
        self._is_current = False
        quorum.on_image(self._changed)
        authorizer.look_for_acls = self._look

    def is_current(self) -> None:
        """Begins to pass on ACLs: the image has everything committed."""
        self._is_current = True
        self._authorizer.follow(self._quorum.image.kept.acls)

    def _look(self) -> None:
        if self._quorum.is_current:
            self.is_current()

    def _changed(self, _: ClusterImage, new: ClusterImage, __: ImageDelta) -> None:
        if self._is_current or self._quorum.is_current:
            self._is_current = True
            self._authorizer.follow(new.kept.acls)


class WatchedNode(Protocol):
    """A node without an authorizer, with the parts that the watch uses to end its service."""

    authorizer: Authorizer
    server: Server

    def fail(self, why: str) -> None:
        """Stops the node, which cannot go on."""
        ...


class AclWatch:
    """Watches the images of a serving node without an authorizer for ACLs."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._has_ended = False

    def changed(self, _: ClusterImage, new: ClusterImage, __: ImageDelta) -> None:
        """If the image has ACLs, closes the client listeners and their connections at once, and stops the node.

        Requests forwarded to this node, if it is the active controller, are refused until another node takes over.
        """
        if self._has_ended or not (why := adoption.unenforced_acls(new)):
            return
        self._has_ended = True
        self._node.authorizer = ClosedAuthorizer()
        self._node.server.stop_serving_clients()
        self._node.fail(f"{why}: this node serves no client from now on")


def authorizer_of(config: BrokerConfig, audit: AuditLog) -> Authorizer:
    """Returns the authorizer that a node's settings ask for."""
    if not config.authorizer_class_name:
        return OpenAuthorizer()
    # Imported only if configured, because a node without it starts faster.
    from headrace.security.acls import AclAuthorizer

    return AclAuthorizer(
        principals_of(config.super_users), allow_if_no_acl=config.allow_everyone_if_no_acl_found, audit=audit
    )


def audit_of(config: BrokerConfig, node: Node, metrics: Registry) -> AuditLog:
    """Returns the audit log of a node: denials, failed logins and altered ACLs."""
    return AuditLog(
        node.logger("authorizer"),
        node.clock.monotonic,
        metrics,
        lines_per_s=config.audit_lines_per_second,
        wants_allowed=config.audit_allowed,
    )


def follower_of(authorizer: Authorizer, quorum: QuorumDriver) -> AclFollower | None:
    """Has the authorizer follow the ACLs of the quorum's image; returns None if it uses no ACLs."""
    if isinstance(authorizer, OpenAuthorizer):
        return None
    from headrace.security.acls import AclAuthorizer

    return AclFollower(authorizer, quorum) if isinstance(authorizer, AclAuthorizer) else None

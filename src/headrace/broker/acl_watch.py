"""Has a node go by the ACLs in its metadata, or end its service where there are some and it has no authorizer.

In that case another node would enforce them. Where they are there already, `metadata.adoption` keeps the node from
starting.
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
    """Tells an authorizer of the ACLs, from the moment on at which the image has all that is committed: half of them
    may allow what the other half denies."""

    def __init__(self, authorizer: AclAuthorizer, quorum: QuorumDriver) -> None:
        self._authorizer = authorizer
        self._quorum = quorum
        self._is_current = False
        quorum.on_image(self._changed)
        authorizer.look_for_acls = self._look

    def is_current(self) -> None:
        """The image has all that is to be waited for."""
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
    """A node without an authorizer, as far as the watch ends its service."""

    authorizer: Authorizer
    server: Server

    def fail(self, why: str) -> None:
        """Stops the node, which cannot go on."""
        ...


class AclWatch:
    """Follows the images of a node without an authorizer, from the moment at which it serves."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._has_ended = False

    def changed(self, _: ClusterImage, new: ClusterImage, __: ImageDelta) -> None:
        """Closes the listeners of clients and their connections at once, and has the node stop.

        Requests forwarded to this node, if it is the active controller, are refused until another one is.
        """
        if self._has_ended or not (why := adoption.unenforced_acls(new)):
            return
        self._has_ended = True
        self._node.authorizer = ClosedAuthorizer()
        self._node.server.stop_serving_clients()
        self._node.fail(f"{why}: this node serves no client from now on")


def authorizer_of(config: BrokerConfig, audit: AuditLog) -> Authorizer:
    """Who decides on a node with these settings what a principal may do."""
    if not config.authorizer_class_name:
        return OpenAuthorizer()
    # Imported where it is asked for: a node without starts sooner.
    from headrace.security.acls import AclAuthorizer

    return AclAuthorizer(
        principals_of(config.super_users), allow_if_no_acl=config.allow_everyone_if_no_acl_found, audit=audit
    )


def audit_of(config: BrokerConfig, node: Node, metrics: Registry) -> AuditLog:
    """Receives denials, failed logins and altered ACLs."""
    return AuditLog(
        node.logger("authorizer"),
        node.clock.monotonic,
        metrics,
        lines_per_s=config.audit_lines_per_second,
        wants_allowed=config.audit_allowed,
    )


def follower_of(authorizer: Authorizer, quorum: QuorumDriver) -> AclFollower | None:
    """Has the authorizer go by the ACLs that the quorum's image will have; None where it goes by none."""
    if isinstance(authorizer, OpenAuthorizer):
        return None
    from headrace.security.acls import AclAuthorizer

    return AclFollower(authorizer, quorum) if isinstance(authorizer, AclAuthorizer) else None

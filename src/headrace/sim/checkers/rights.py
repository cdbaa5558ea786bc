"""Checks what brokers allow a denied principal against the ACLs in their own metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.sim.world import World

_DENY: Final = 2
DENIED_HOST: Final = "stranger"


class Rights:
    """Checks one principal and one topic, which everybody may use except those whom an ACL denies it."""

    def __init__(
        self, world: World, denied: str, topic: str, serving: Callable[[], Sequence[Broker]], look_s: float
    ) -> None:
        """`denied` is a principal, `serving` the brokers that run; it is looked at them every `look_s` seconds, and
        rights stay as they are for longer."""
        self._world = world
        self._brokers = serving
        self._look_s = look_s
        self._denied = denied
        self._topic = topic
        self._allowed_at = 0.0
        """When a broker allowed it, or none served, the last time that it was looked."""
        self.accepted = 0
        self.refused = 0

    def look(self) -> None:
        """Each broker decides as its own metadata say."""
        serving = [broker for broker in self._brokers() if any(opened.accepts for opened in broker.server.listeners)]
        denies = []
        for broker in serving:
            acls = [acl for acl in broker.image.kept.acls.values() if acl.resource_name == self._topic]
            is_allowed = bool(acls) and all(acl.permission_type != _DENY for acl in acls)
            may = broker.authorizer.authorize(
                self._denied, DENIED_HOST, Operation.WRITE, ResourceType.TOPIC, self._topic
            )
            if may != is_allowed:
                what = "lets in" if may else "refuses"
                self._world.object(f"broker {broker.node_id} {what} {self._denied}, and its metadata say otherwise")
            denies.append(not is_allowed)
        if not all(denies) or not denies:
            self._allowed_at = self._world.loop.time()

    def let_in(self, asked_at: float) -> None:
        """Notes that a record of the principal, sent at `asked_at`, was accepted."""
        self.accepted += 1
        self.look()
        if asked_at > self._allowed_at + self._look_s:
            self._world.object(f"a record of {self._denied} was taken, and every broker denied it before it was sent")

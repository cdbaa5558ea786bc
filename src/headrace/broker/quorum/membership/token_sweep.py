"""Every so often the node that decides removes the delegation tokens whose time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.broker.quorum.port.controller import ControllerError
from headrace.controller.delegation_tokens import SweepTokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.port.controller import Controller
    from headrace.config import BrokerConfig
    from headrace.env import Node


class TokenSweep:
    """Removes expired delegation tokens periodically. It costs nothing but a timer."""

    def __init__(self, node: Node, driver: QuorumDriver, controller: Controller, interval_ms: int) -> None:
        """Begins: the first sweep comes after `interval_ms`."""
        self._now_ms: Callable[[], int] = node.clock.now_ms
        self._driver = driver
        self._controller = controller
        self._interval_s = interval_ms / 1000
        self._owner = node.owner("sweep of tokens")
        self._log = node.logger("quorum")
        self._owner.later(self._interval_s, self._due)

    def close(self) -> None:
        """Ends it."""
        self._owner.close()

    def _due(self) -> None:
        self._owner.later(self._interval_s, self._due)
        self._sweep()

    def _sweep(self) -> None:
        if self._driver.decides and self._driver.image.kept.delegation_tokens:
            self._owner.spawn(self._swept())

    async def _swept(self) -> None:
        try:
            while await self._controller.ask(SweepTokens(self._now_ms())):
                pass  # there were more than go at once
        except ControllerError as error:
            self._log.warning("the controller cannot remove delegation tokens now", why=error)


class Services(Protocol):
    """What this needs of a node."""

    node: Node
    quorum: QuorumDriver
    local_controller: Controller

    @property
    def config(self) -> BrokerConfig:
        """The settings in force as of now."""
        ...


def sweep_of(services: Services) -> TokenSweep | None:
    """Of a node whose settings have a secret key; None without one."""
    config = services.config
    if not config["delegation.token.secret.key"]:
        return None
    interval_ms = config.delegation_token_expiry_check_interval_ms
    return TokenSweep(services.node, services.quorum, services.local_controller, interval_ms)

"""The controller that runs in this process, on top of the quorum's driver: it decides while this node leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.settings.config_rules import rules_of
from headrace.controller.access import Access, FullAccess
from headrace.controller.context import ControllerContext, ControllerRequest
from headrace.env import Entropy

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
    from headrace.broker.settings.dynamic_config import DynamicConfig

R = TypeVar("R")

EVERYTHING: Final = FullAccess()


class LocalController:
    """See `controller.Controller`. `liveness` has the sessions of brokers, where there can be others than this node."""

    def __init__(
        self, driver: QuorumDriver, dynamic: DynamicConfig, entropy: Entropy, liveness: BrokerLiveness | None = None
    ) -> None:
        self._driver = driver
        self._dynamic = dynamic
        self._entropy = entropy
        self._random = entropy.random()
        self._liveness = liveness

    def ask(self, request: ControllerRequest[R], access: Access | None = None) -> Future[R]:
        """See Controller."""
        context, allowed = self._context(), EVERYTHING if access is None else access
        return self._driver.submit(lambda image: request.decide(image, context, allowed))

    def _context(self) -> ControllerContext:
        config, liveness = self._dynamic.config, self._liveness
        return ControllerContext(
            node_id=self._driver.node_id,
            num_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            rules=rules_of(config),
            new_id=self._entropy.uuid,
            sessions=None if liveness is None else liveness.sessions,
            now_ms=0 if liveness is None else liveness.now_ms(),
            random=self._random.randrange,
            voters=[voter.id for voter in self._driver.voters],
            kraft_version=self._driver.kraft_version,
            kraft_refusal=self._driver.raft.version_refusal,
        )

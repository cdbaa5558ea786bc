"""A controller introduces itself to the active one, and again whenever the metadata do not name it. KIP-919."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.port.controller import Controller, ControllerError
from headrace.controller.membership import RegisterController

if TYPE_CHECKING:
    from asyncio import Task

    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.env import Node
    from headrace.metadata import image as im
    from headrace.metadata.delta import ImageDelta

AGAIN_S: Final = 0.1


class ControllerRegistration:
    """Keeps one controller in the metadata. `start` it once the quorum has begun to speak."""

    def __init__(self, node: Node, driver: QuorumDriver, controller: Controller, registration: im.Controller) -> None:
        self._driver = driver
        self._controller = controller
        self._registration = registration
        self._owner = node.owner("controller registration")
        self._log = node.logger("quorum")
        self._task: Task[None] | None = None
        self._started = False
        driver.on_image(self._changed)

    def start(self) -> None:
        """Registers, and stays registered."""
        self._started = True
        self._look()

    def _changed(self, _old: im.ClusterImage, _new: im.ClusterImage, _delta: ImageDelta) -> None:
        if self._started:
            self._look()

    def _look(self) -> None:
        if (self._task is None or self._task.done()) and not self._is_registered():
            self._task = self._owner.spawn(self._register())

    def _is_registered(self) -> bool:
        known = self._driver.image.controllers.get(self._registration.id)
        return known is not None and known.incarnation_id == self._registration.incarnation_id

    async def _register(self) -> None:
        logged = ""
        while not self._is_registered():
            try:
                refused = await self._controller.ask(RegisterController(self._registration))
                why = (refused.message or refused.code.name) if refused.code else ""
            except ControllerError as error:
                why = str(error)
            if why and why != logged:
                logged = why
                self._log.info("controller waits to be registered", why=why)
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        """Stops registering."""
        await self._owner.closed()

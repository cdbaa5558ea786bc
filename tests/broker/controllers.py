"""A metadata quorum and its controller without a broker around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.metadata_start import open_quorum, register, registration
from headrace.broker.quorum.port.local_controller import LocalController
from headrace.broker.settings.dynamic_config import DynamicConfig
from headrace.broker.storage.storage_format import StorageLayout
from headrace.config import BrokerConfig
from headrace.env import Node

PATIENCE_S = 60.0


def controller_of(node: Node, config: BrokerConfig, quorum: QuorumDriver) -> LocalController:
    """The port to a quorum."""
    return LocalController(quorum, dynamic_of(node, config), node.entropy)


def dynamic_of(node: Node, config: BrokerConfig) -> DynamicConfig:
    """Settings that never change."""
    return DynamicConfig(config, None, node.logger("settings"))


async def started(node: Node, config: BrokerConfig, *, was_clean: bool = True) -> tuple[QuorumDriver, StorageLayout]:
    """A quorum on the directories of a configuration, with its broker registered."""
    quorum, layout = open_quorum(node, config)
    registered = registration(node, config, layout, {"PLAINTEXT": 9092}, config.log_dirs)
    await register(controller_of(node, config, quorum), registered, was_clean=was_clean)
    return quorum, layout


async def until(look: Callable[[], Any]) -> Any:
    """Waits for something to be so."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not (found := look()):
        assert asyncio.get_running_loop().time() < deadline, "it has not come true in time"
        await asyncio.sleep(0.01)
    return found

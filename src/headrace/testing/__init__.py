"""A real broker, or a cluster, inside a test: on free ports, in this process, gone without a trace.

    with headrace.testing.broker() as b:
        producer = confluent_kafka.Producer({"bootstrap.servers": b.bootstrap})

    with headrace.testing.cluster() as c:
        producer = confluent_kafka.Producer({"bootstrap.servers": c.bootstrap})
        c.kill(c.leader("orders", 0))

These are the brokers that `headrace serve` runs. The pytest plugin `headrace.testing.plugin` comes with the package:
its fixtures are `headrace_broker` and `headrace_cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.running import SETTINGS as SETTINGS
    from headrace.testing.running import DefectError as DefectError
    from headrace.testing.running import SettingValue as SettingValue
    from headrace.testing.running import TestBroker as TestBroker
    from headrace.testing.running import broker as broker
    from headrace.testing.running_cluster import CLUSTER_SETTINGS as CLUSTER_SETTINGS
    from headrace.testing.running_cluster import TestCluster as TestCluster
    from headrace.testing.running_cluster import TestNode as TestNode
    from headrace.testing.running_cluster import cluster as cluster

_OF_A_CLUSTER = frozenset({"CLUSTER_SETTINGS", "TestCluster", "TestNode", "cluster"})

__all__ = [
    "CLUSTER_SETTINGS",
    "SETTINGS",
    "DefectError",
    "SettingValue",
    "TestBroker",
    "TestCluster",
    "TestNode",
    "broker",
    "cluster",
]


def __getattr__(name: str) -> object:
    """Imports the broker when it is first used: each run of pytest loads the plugin."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
    from importlib import import_module

    module = "running_cluster" if name in _OF_A_CLUSTER else "running"
    return getattr(import_module(f"headrace.testing.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

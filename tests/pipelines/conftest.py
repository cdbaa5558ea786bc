"""The fixtures of the tests of Spark, for the pipelines that run on it."""

from __future__ import annotations

from spark.conftest import _no_clients_left, broker, cluster, spark, topic

__all__ = ["_no_clients_left", "broker", "cluster", "spark", "topic"]

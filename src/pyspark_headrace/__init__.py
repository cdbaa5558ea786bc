"""Spark looks for top-level modules called `pyspark_*` and registers their `DefaultSource`: here it finds Headrace."""

from __future__ import annotations

from headrace.spark.data_source import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]

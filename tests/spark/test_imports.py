"""Who may import the sink, imports for types and lazy ones included."""

from __future__ import annotations

import grimp


def test_no_delivery_imports_the_writers() -> None:
    graph = grimp.build_graph("headrace", exclude_type_checking_imports=False, cache_dir=None)
    importers = graph.find_modules_that_directly_import("headrace.spark.sink")
    assert {name for name in importers if name.startswith("headrace.spark")} == {
        "headrace.spark", "headrace.spark.data_source",
    }  # fmt: skip

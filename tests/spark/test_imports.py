"""The source, the sink and the pipelines import each other in one direction."""

from __future__ import annotations

import grimp


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Lazy imports count, and so do those for types alone."""
    graph = grimp.build_graph("headrace", "headrace_pipelines", exclude_type_checking_imports=False, cache_dir=None)
    ours = {name for name in graph.modules if name.startswith(("headrace.spark", "headrace_pipelines"))}
    imports = {name: graph.find_modules_directly_imported_by(name) & ours for name in ours}
    circular = set()
    for name in ours:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            fresh = imports[waiting.pop()] - reached
            reached |= fresh
            waiting += fresh
        if name in reached:
            circular.add(name)
    assert "headrace.spark.delivery.port" in ours and not circular


def test_no_delivery_imports_the_writers() -> None:
    graph = grimp.build_graph("headrace", exclude_type_checking_imports=False, cache_dir=None)
    importers = graph.find_modules_that_directly_import("headrace.spark.sink")
    assert {name for name in importers if name.startswith("headrace.spark")} == {
        "headrace.spark", "headrace.spark.data_source",
    }  # fmt: skip

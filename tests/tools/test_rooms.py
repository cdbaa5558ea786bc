"""The rooms of the broker stand in an order: each imports those before it alone, for its types too."""

from __future__ import annotations

import grimp

ORDER = ("telemetry", "storage", "settings", "quorum", "partitions", "coordinators", "net", "requests")
BESIDE = frozenset({("partitions", "settings"), ("coordinators", "quorum"), ("coordinators", "partitions")})
"""Pairs that the order would allow, and that know each other by shape alone."""
BESIDE_NET = frozenset({"storage", "settings", "quorum", "partitions", "coordinators"})
"""Sockets know nothing of what requests mean."""


def test_the_rooms_import_in_one_order() -> None:
    graph = grimp.build_graph("headrace", exclude_type_checking_imports=False)
    rooms = {child.rpartition(".")[2] for child in graph.find_children("headrace.broker")}
    assert set(ORDER) <= rooms
    found = set()
    for module in graph.modules:
        parts = module.split(".")
        if parts[:2] != ["headrace", "broker"] or len(parts) < 3 or parts[2] not in ORDER:
            continue
        for imported in graph.find_modules_directly_imported_by(module):
            other = imported.split(".")
            if other[:2] == ["headrace", "broker"] and len(other) > 2 and other[2] != parts[2]:
                assert other[2] in ORDER, f"{module} imports {imported}, which wires the rooms"
                found.add((parts[2], other[2]))
    against = {(room, other) for room, other in found if ORDER.index(other) > ORDER.index(room)}
    assert not against
    assert not found & BESIDE
    assert not {other for room, other in found if room == "net"} & BESIDE_NET

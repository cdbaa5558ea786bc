"""What the pipelines should find, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any, Final

T0_S: Final = 1_700_006_400
"""2023-11-15T00:00:00Z."""


def iso(at_s: float, timespec: str = "seconds") -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def surge_of(events: list[dict[str, Any]], window_s: int) -> dict[str, Any]:
    """By zone and window, in plain Python."""
    demand: Counter[tuple[str, int]] = Counter()
    supply: Counter[tuple[str, int]] = Counter()
    for event in events:
        at = event["zone"], event["time"] // window_s * window_s
        demand[at] += 1
        supply[at] += event["supply"]
    return {
        f"{zone}|{iso(start)}": {
            "zone": zone, "start": iso(start), "demand": count, "supply": supply[zone, start],
            "surge": count / max(supply[zone, start], 1),
        }
        for (zone, start), count in demand.items()
    }  # fmt: skip


def sessions_of(events: list[dict[str, Any]], gap_s: int, top: int = 3) -> dict[str, Any]:
    """By user and gap, in plain Python."""
    by_user: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(events, key=lambda each: each["time"]):
        by_user[event["user"]].append(event)
    found = {}
    for user, theirs in by_user.items():
        sessions: list[list[dict[str, Any]]] = []
        for event in theirs:
            if not sessions or event["time"] - sessions[-1][-1]["time"] > gap_s:
                sessions.append([])
            sessions[-1].append(event)
        for session in sessions:
            start, end = (iso(event["time"], "milliseconds") for event in (session[0], session[-1]))
            pages = Counter(event["page"] for event in session)
            ranked = sorted(pages.items(), key=lambda item: (-item[1], item[0]))[:top]
            found[f"{user}|{start}"] = {
                "user": user, "start": start, "end": end, "events": len(session),
                "top_pages": [{"page": page, "views": views} for page, views in ranked],
            }  # fmt: skip
    return found


def windows_of(
    lines: list[dict[str, Any]], window_s: int, alert_rate: float = 0.05, alert_lines: int = 20
) -> dict[str, Any]:
    """By service and window, in plain Python."""
    count: Counter[tuple[str, int]] = Counter()
    errors: Counter[tuple[str, int]] = Counter()
    for line in lines:
        at = line["service"], int(line["time"] // window_s * window_s)
        count[at] += 1
        errors[at] += line["level"].upper() in ("ERROR", "CRITICAL", "FATAL")
    return {
        f"{service}|{iso(start)}": {
            "service": service, "start": iso(start), "lines": n, "errors": errors[service, start],
            "rate": errors[service, start] / n,
            "alert": n >= alert_lines and errors[service, start] / n >= alert_rate,
        }
        for (service, start), n in count.items()
    }  # fmt: skip

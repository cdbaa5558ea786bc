"""docs/configuration.md, from the table of settings."""

from __future__ import annotations

from headrace.config import SETTINGS, Setting, format_value
from headrace.config.served import refusal

INTRODUCTION = """# Configuration

Written from the table of settings in `src/headrace/config/` by `make docs`; change it there.

A broker takes an Apache Kafka `server.properties` file (`headrace serve FILE`) and single settings (`--set key=value`).
Names, types, defaults and meanings are Apache Kafka's unless marked **ours**. The broker names a key that is unknown or
has no effect in one warning. It refuses to start with a key that it cannot serve, if security, durability or the
cluster's shape would suffer (listeners other than PLAINTEXT, `sasl.*`, `ssl.*`, an authorizer, remote storage, other
voters).

*Change*: `restart` needs one; a running broker takes `broker` and `cluster` at once through `headrace config` or
`kafka-configs`, for one broker or for all.
"""
SCOPES = {
    "broker": ("Broker settings", "In the file, and where *change* says so while the broker runs."),
    "topic": ("Topic settings", "Set on a topic when you create or alter it; otherwise the broker's value holds."),
    "group": ("Group settings", "Set on one group; otherwise the broker's value holds."),
}
CHANGES = {"read-only": "restart", "per-broker": "broker", "cluster-wide": "cluster"}


def row(setting: Setting) -> str:
    """A setting as a line of the table."""
    default = format_value(setting, setting.default)
    shown = "not set" if default is None else f"`{default}`" if default else "empty"
    about = setting.about
    if setting.ours:
        about = "**Ours.** " + about
    if setting.synonyms:
        about += " Otherwise: " + ", ".join(f"`{name}`" for name in setting.synonyms) + "."
    if setting.scope == "broker" and refusal(setting.name):
        about += f" *A value refuses to start: {refusal(setting.name)}.*"
    elif setting.unserved:
        about += f" *No effect: {setting.unserved}.*"
    kind = setting.type.name.lower()
    allowed = f"{kind}, {setting.bounds}" if setting.bounds else kind
    change = CHANGES[setting.update] if setting.scope == "broker" else ""
    cells = [f"<a id='{setting.scope}-{setting.name}'></a>`{setting.name}`", shown, allowed, change, about]
    if setting.scope != "broker":
        del cells[3]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for scope, (title, sentence) in SCOPES.items():
        head = "| setting | default | values | change | what it does |\n|---|---|---|---|---|"
        if scope != "broker":
            head = "| setting | default | values | what it does |\n|---|---|---|---|"
        rows = [row(each) for each in sorted(SETTINGS, key=lambda each: each.name) if each.scope == scope]
        shown = "\n".join(rows)
        parts.append(f"## {title}\n\n{sentence}\n\n{head}\n{shown}\n")
    return "\n".join(parts)

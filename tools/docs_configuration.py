"""docs/configuration.md, from the table of settings."""

from __future__ import annotations

from headrace.config import FAMILIES, SETTINGS, Setting, format_value

INTRODUCTION = """# Configuration

Written from the table of settings in `src/headrace/config/` by `make docs`; change it there.

A broker takes an Apache Kafka `server.properties` file (`headrace serve FILE`) and single settings (`--set key=value`).
Names, types, defaults and meanings are Apache Kafka's unless marked **ours**. The broker names a key that is unknown or
has no effect in one warning. It refuses to start with a key that it cannot serve, if security, durability or the
cluster's shape would suffer (an authorizer or a Java class that is not known here, remote storage).

*Change*: `restart` needs one; a running broker takes `broker` and `cluster` at once through `headrace config` or
`kafka-configs`, for one broker or for all.
"""
SCOPES = {
    "broker": ("Broker settings", "In the file, and where *change* says so while the broker runs."),
    "topic": ("Topic settings", "Set on a topic when you create or alter it; otherwise the broker's value holds."),
    "group": ("Group settings", "Set on one group; otherwise the broker's value holds."),
}
REFUSES = {"broker": "A value refuses to start", "topic": "A value is refused", "group": "A value is refused"}
FAMILIES_HEAD = """## Families of settings that are refused

No broker setting whose name begins so is served, nor the same name behind `listener.name.NAME.`. A value refuses to
start, and is refused while the broker runs; an empty one, `false` or `0` asks for nothing.

| settings | what they are for | why a value is refused |
|---|---|---|"""
KEPT = "*New logins follow it while the broker runs.*"
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
    if setting.by:
        prefix = "listener.name.NAME." if setting.by == "listener" else "listener.name.NAME.MECHANISM."
        about += f" For one listener: `{prefix}{setting.name}`."
    if setting.opened_with:
        about += f" {KEPT}"
    if setting.refused:
        about += f" *{REFUSES[setting.scope]}: {setting.refused.rstrip('.')}.*"
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
    families = [f"| `{each.prefix}*` | {each.about} | {each.refused} |" for each in FAMILIES]
    parts.append("\n".join([FAMILIES_HEAD, *families]) + "\n")
    return "\n".join(parts)

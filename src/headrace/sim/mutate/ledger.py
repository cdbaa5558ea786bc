"""The results of tried changes: one line of JSON each, in a file that a later run continues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from headrace.sim.mutate.mutations import Mutation

SURVIVED: Final = "survived"


@dataclass(frozen=True, slots=True)
class Entry:
    """A change, and what noticed it: `tests`, `seeds --quorum`, `no end of tests`, or `survived`."""

    key: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    outcome: str
    took_s: float

    @property
    def package(self) -> str:
        """The pure package that the file belongs to."""
        return self.file.split("/")[0]


class Ledger:
    """The file. Entries of functions that have changed since stay in it and no longer count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = Entry(**json.loads(line))
                self._entries[entry.key] = entry

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def has_survivor(self, key: str) -> bool:
        """Returns whether nothing noticed the change when it was tried last."""
        return key in self._entries and self._entries[key].outcome == SURVIVED

    def add(self, mutation: Mutation, outcome: str, took_s: float) -> Entry:
        """Appends the outcome of a trial, which counts instead of an earlier one."""
        entry = Entry(
            mutation.key, mutation.file, mutation.line, mutation.kind, mutation.before, mutation.after, outcome,
            round(took_s, 1),
        )  # fmt: skip
        self._entries[entry.key] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
        return entry

    def report(self, current: Collection[str]) -> Iterator[str]:
        """Yields what is known of the changes whose keys are `current`: a line a package, then each survivor."""
        known = [entry for key, entry in self._entries.items() if key in current]
        tried = Counter(entry.package for entry in known)
        survivors = [entry for entry in known if entry.outcome == SURVIVED]
        lived = Counter(entry.package for entry in survivors)
        for package, count in sorted(tried.items()):
            yield f"{package}: {count - lived[package]} of {count} noticed ({1 - lived[package] / count:.2f})"
        if known:
            yield f"all: {len(known) - len(survivors)} of {len(known)} noticed ({1 - len(survivors) / len(known):.2f})"
        for entry in sorted(survivors, key=lambda each: (each.file, each.line)):
            yield f"{entry.file}:{entry.line}: {entry.kind}: {_line(entry.before)} -> {_line(entry.after)}"


def _line(text: str) -> str:
    return " ".join(text.split())

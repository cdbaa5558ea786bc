"""A table of Parquet files that follows a topic: buckets by key, each a file, and one manifest that says which files.

A batch writes the buckets that it touches into new files, and then a new manifest in the place of the old one, in one
rename. Readers read the manifest first, so that they see a batch whole or not at all. A file that the manifest no
longer names stays for a while, for those who still read it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace_pipelines.tables.changes import (
    BUCKET,
    DELETED,
    beyond,
    column_names,
    last_of_each_key,
    last_rows,
    positions_after,
    stored_type,
)
from headrace_pipelines.tables.following import Following, Settle, TableError, Topic, following_of, taken_over
from headrace_pipelines.tables.layout import Layout, columns_of
from headrace_pipelines.tables.places import ParquetPlace
from headrace_pipelines.whole_files import replace_text

MANIFEST: Final = "manifest.json"
LOCK: Final = "writer.lock"
FILES: Final = "files"
BUCKETS: Final = 16
GRACE_S: Final = 600.0
"""How long a file stays that the manifest no longer names."""
READ_TRIES: Final = 5
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files are the table: by bucket, their paths below its directory.

    `layout` is `Layout.stored`; `retired` are the files that are to be removed, and when they were replaced, in seconds
    since 1970.
    """

    layout: dict[str, str]
    buckets: int
    following: Following
    files: dict[int, str] = field(default_factory=dict)
    retired: dict[str, float] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return stored_schema([*columns_of(self.layout["key"]), *columns_of(self.layout["value"])])

    def text(self) -> str:
        """As it is kept."""
        content = {
            "format": FORMAT,
            "layout": self.layout,
            "buckets": self.buckets,
            "following": json.loads(self.following.text()),
            "files": {str(bucket): path for bucket, path in sorted(self.files.items())},
            "retired": self.retired,
        }
        return json.dumps(content, indent=1) + "\n"


def stored_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    """Columns as they are in the files, where JSON is text."""
    return pa.schema([field.with_type(stored_type(field.type)) for field in fields])


def manifest_of(directory: Path) -> Manifest | None:
    """The manifest of a table; None where there is none. Raises `TableError` for one of another format."""
    try:
        content: dict[str, Any] = json.loads((directory / MANIFEST).read_text())
    except FileNotFoundError:
        return None
    if content["format"] != FORMAT:
        raise TableError(f"{directory / MANIFEST} has format {content['format']}; this release reads {FORMAT}")
    return Manifest(
        layout=content["layout"],
        buckets=content["buckets"],
        following=following_of(json.dumps(content["following"])),
        files={int(bucket): path for bucket, path in content["files"].items()},
        retired=content["retired"],
    )


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pa.Table:
    """The table that the pipeline `table-sync` keeps in a directory, as of one batch.

    `columns` are those to read, all by default. Raises FileNotFoundError where there is no table.
    """
    directory = Path(path)
    tries = READ_TRIES
    while True:
        manifest = manifest_of(directory)
        if manifest is None:
            raise FileNotFoundError(2, "there is no table", str(directory / MANIFEST))
        schema = manifest.schema
        chosen = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        try:
            parts = [_read(directory / file, chosen) for _, file in sorted(manifest.files.items())]
        except FileNotFoundError:
            # replaced longer ago than files stay, in the meantime
            tries -= 1
            if not tries or manifest == manifest_of(directory):
                raise
            continue
        return pa.concat_tables([chosen.empty_table(), *parts])


def _read(file: Path, schema: pa.Schema) -> pa.Table:
    # not read_table, which takes bucket=7 in a path for a column
    with pq.ParquetFile(file) as opened:
        return opened.read(columns=schema.names).cast(schema)


class ParquetTable:
    """A `following.Target` in a directory. The lock on it is held until the process ends."""

    nested_as_json = False
    takes_nul = True
    takes_endless = False
    refuses = False

    def __init__(
        self, place: ParquetPlace, layout: Layout, *, buckets: int = BUCKETS, grace_s: float = GRACE_S
    ) -> None:
        self.buckets = buckets
        self._directory = place.path
        self._layout = layout
        self._grace_s = grace_s
        self._manifest: Manifest | None = None
        self._lock: int | None = None

    def open(self, topic: Topic, run: str) -> None:
        (self._directory / FILES).mkdir(parents=True, exist_ok=True)
        self._take_lock()
        known = manifest_of(self._directory)
        stored = self._layout.stored()
        if known is not None:
            ours = {"buckets": self.buckets, **stored}
            theirs = {"buckets": known.buckets, **known.layout}
            for name, value in ours.items():
                if theirs[name] != value:
                    raise TableError(f"{self._directory} has {name} {theirs[name]}, not {value}")
        following = taken_over(None if known is None else known.following, topic, run, str(self._directory))
        fresh = Manifest(stored, self.buckets, following) if known is None else replace(known, following=following)
        self._remove_strays(fresh)
        self._swap(fresh)

    def _take_lock(self) -> None:
        if self._lock is None:
            self._lock = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableError(f"another run writes {self._directory}; one table has one writer") from None

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def apply(self, changes: pa.Table, settle: Settle | None = None) -> None:
        known = self._manifest
        assert known is not None
        if settle is not None:
            settle({})
        fresh = beyond(changes, known.following.positions)
        if not fresh.num_rows:
            return
        last = last_of_each_key(fresh, self._layout)
        files = dict(known.files)
        replaced: list[str] = []
        for bucket in sorted(last[BUCKET.name].unique().to_pylist()):
            old = files.pop(bucket, None)
            if old is not None:
                replaced.append(old)
            rows = self._merged(old, last.filter(pc.equal(last[BUCKET.name], bucket)))
            if rows.num_rows:
                files[bucket] = self._write(bucket, rows)
        now_s = time.time()
        retired = {path: at_s for path, at_s in known.retired.items() if now_s - at_s < self._grace_s}
        gone = known.retired.keys() - retired.keys()
        retired.update(dict.fromkeys(replaced, now_s))
        following = known.following.at(positions_after(fresh, known.following.positions))
        self._swap(replace(known, following=following, files=files, retired=retired))
        for path in gone:
            (self._directory / path).unlink(missing_ok=True)

    def _merged(self, old: str | None, changes: pa.Table) -> pa.Table:
        """The rows of a bucket after these changes, in the order of their keys."""
        names, stored = column_names(self._layout), stored_schema(self._layout.fields)
        schema = pa.schema([pa.field(name, each.type) for name, each in zip(names, stored, strict=True)])
        rows = changes.select(names).cast(schema).append_column(DELETED, changes[DELETED.name])
        if old is not None:
            kept = _read(self._directory / old, stored).rename_columns(names)
            stays = pa.repeat(pa.scalar(False), len(kept))
            rows = pa.concat_tables([kept.append_column(DELETED, stays), rows])
        keys = names[: len(self._layout.key)]
        last = last_rows(rows, keys)
        left = last.filter(pc.invert(last[DELETED.name])).select(names)
        return left.sort_by([(key, "ascending") for key in keys]).rename_columns(self._layout.names)

    def _write(self, bucket: int, rows: pa.Table) -> str:
        path = f"{FILES}/{bucket:05}-{uuid.uuid4().hex}.parquet"
        with (self._directory / path).open("wb") as out:
            pq.write_table(rows, out)
            out.flush()
            os.fsync(out.fileno())
        return path

    def _swap(self, manifest: Manifest) -> None:
        """Put a manifest in the place of the one that is there, at once and on disk."""
        _sync_directory(self._directory / FILES)
        replace_text(self._directory / MANIFEST, manifest.text())
        _sync_directory(self._directory)
        self._manifest = manifest

    def _remove_strays(self, manifest: Manifest) -> None:
        """Files of a batch that was killed before its manifest was there; nobody has ever read them."""
        named = {*manifest.files.values(), *manifest.retired}
        for file in (self._directory / FILES).iterdir():
            if f"{FILES}/{file.name}" not in named:
                file.unlink()


def _sync_directory(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

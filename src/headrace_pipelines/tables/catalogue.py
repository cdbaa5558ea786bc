"""What PostgreSQL's catalogue says of one table: its columns, its indexes, and what else watches over its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace_pipelines.tables.connecting import Connection
from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.places import PostgresPlace
from headrace_pipelines.tables.statements import quoted

NAME_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names off."""
_RELATION: Final = "WITH RECURSIVE relation AS (SELECT %s::regclass::oid AS oid)"
"""The table, which is there, by its quoted name."""
_TYPED: Final = """
, typed AS (
    SELECT attname::text AS name, attnum AS place, format_type(atttypid, atttypmod) AS whole,
        format_type(atttypid, NULL) AS plain, atttypid AS kind, attnotnull AS required,
        atthasdef OR attidentity <> '' AS filled, attgenerated <> '' OR attidentity = 'a' AS made,
        coalesce((SELECT NOT collisdeterministic FROM pg_collation WHERE oid = attcollation), false) AS loose
    FROM pg_attribute WHERE attrelid = (SELECT oid FROM relation) AND attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT name, place, whole, plain, typbasetype, required OR typnotnull, filled OR typdefault IS NOT NULL, made, loose
    FROM typed JOIN pg_type ON pg_type.oid = kind WHERE typtype = 'd'
)
"""
_COLUMN: Final = """
SELECT json_build_array(
    name, whole, plain, format_type(kind, NULL), typcategory::text, required, filled, made, loose, typlen > 0,
    typtype = 'd', CASE WHEN NOT pg_type_is_visible(kind) THEN (
        SELECT quote_ident(nspname) FROM pg_namespace WHERE oid = typnamespace
    ) END
)
FROM typed JOIN pg_type ON pg_type.oid = kind ORDER BY place
"""
_COLUMNS: Final = f"{_RELATION}{_TYPED} SELECT ARRAY({_COLUMN})".encode()
_FAMILY: Final = """
, family AS (
    SELECT oid FROM relation UNION SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = family.oid
)
"""
"""The table and its partitions, or the tables that inherit from it."""
_INDEX: Final = """
SELECT json_build_array(
    indisunique, indisexclusion, indimmediate, indisvalid, indpred IS NULL AND indexprs IS NULL, amname::text,
    ARRAY(
        SELECT attname::text FROM unnest(indkey::int2[]) WITH ORDINALITY AS k (number, n)
        JOIN pg_attribute ON attrelid = indrelid AND attnum = number WHERE n <= indnkeyatts
    ),
    ARRAY(
        SELECT attname::text FROM unnest(indkey::int2[]) AS k (number)
        JOIN pg_attribute ON attrelid = indrelid AND attnum = number
    ),
    NOT EXISTS (
        SELECT FROM unnest(indkey::int2[], indcollation::oid[], indclass::oid[]) WITH ORDINALITY
            AS k (number, collation_of, class_of, n)
        JOIN pg_attribute ON attrelid = indrelid AND attnum = number JOIN pg_opclass ON pg_opclass.oid = class_of
        WHERE n <= indnkeyatts AND NOT (attcollation = collation_of AND opcdefault)
    ), indrelid = (SELECT oid FROM relation), indexrelid::text
)
FROM pg_index JOIN family ON indrelid = family.oid JOIN pg_class i ON i.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
WHERE indisready
"""
_SAME: Final = b"""
SELECT indexrelid::text FROM pg_index WHERE indexrelid = ANY (%s::oid[]) AND NOT EXISTS (
    SELECT FROM unnest(indkey::int2[], indcollation::oid[], indclass::oid[]) WITH ORDINALITY
        AS k (number, collation_of, class_of, n)
    JOIN pg_attribute ON attrelid = indrelid AND attnum = number JOIN pg_opclass c ON c.oid = class_of
    WHERE n <= indnkeyatts AND NOT (
        (attcollation = collation_of OR 2 = (
            SELECT count(*) FROM pg_collation WHERE oid IN (attcollation, collation_of) AND collisdeterministic
        )) AND (opcdefault OR EXISTS (
            SELECT FROM pg_amop e JOIN pg_amop d ON d.amopopr = e.amopopr
            JOIN pg_opclass o ON o.opcfamily = d.amopfamily JOIN pg_am m ON m.oid = o.opcmethod
            WHERE e.amopfamily = c.opcfamily AND e.amopstrategy = 3 AND d.amopstrategy = 3 AND o.opcdefault
                AND m.amname = 'btree'
        ))
    )
)
"""
"""Which indexes have their columns' notion of equality, whatever they are made with. It takes longer than all else
that is asked, so it is asked of those alone that are not made with what their columns have."""
_ALL: Final = f"""{_RELATION}{_TYPED}{_FAMILY}
, referring AS (
    SELECT conrelid IN (SELECT oid FROM family) AS by_itself, ARRAY(
        SELECT attname::text FROM pg_attribute WHERE attrelid = confrelid AND attnum = ANY (confkey)
    ) <@ %s::text[] AS by_key
    FROM pg_constraint WHERE contype = 'f' AND confrelid IN (SELECT oid FROM family)
), own AS (
    SELECT contype FROM pg_constraint WHERE conrelid IN (SELECT oid FROM family)
)
SELECT ARRAY({_COLUMN}),
    EXISTS (
        SELECT FROM pg_rewrite WHERE ev_class IN (SELECT oid FROM family) AND ev_type <> '1'
    ),
    EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM family) AND NOT tgisinternal AND tgenabled <> 'D'
    ),
    EXISTS (SELECT FROM referring WHERE by_itself OR NOT by_key),
    EXISTS (SELECT FROM referring) OR EXISTS (SELECT FROM own WHERE contype IN ('c', 'f'))
        OR (SELECT count(*) > 1 FROM family)
        OR (SELECT relkind <> 'r' FROM pg_class JOIN family USING (oid) LIMIT 1)
        OR EXISTS (
            SELECT FROM pg_attribute WHERE attrelid IN (SELECT oid FROM family) AND attnum > 0 AND attgenerated <> ''
        ),
    ARRAY({_INDEX})
""".encode()


def check_names(names: Iterable[str]) -> None:
    """Whether PostgreSQL can have these names. Raises `TableError`."""
    for name in names:
        if len(name.encode()) > NAME_BYTES_MAX:
            raise TableError(f"PostgreSQL takes names of up to {NAME_BYTES_MAX} bytes, and {name!r} is longer")


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column: as a cast takes it, without its size, and what it is where it is a domain.

    `category` is a letter, as pg_type has it. `required` is one that takes no null, `filled` one that has a default,
    `made` one whose values PostgreSQL alone makes. Values of a `loose` one are equal by a collation, and not by their
    letters. Those of a `fixed` one have one size.
    """

    full: str
    plain: str
    base: str
    category: str
    required: bool
    filled: bool
    made: bool
    loose: bool
    fixed: bool


@dataclass(frozen=True, slots=True)
class Index:
    """An index of the table, or of a part of it.

    `plain` is one of columns alone, and of all rows; `same` has each column's own notion of equality. `stored` are the
    columns of the key and those it carries beside them; `own` is false for one of a partition.
    """

    unique: bool
    exclusive: bool
    immediate: bool
    valid: bool
    plain: bool
    method: str
    columns: Sequence[str]
    stored: Sequence[str]
    same: bool
    own: bool
    oid: str

    def is_key(self, names: Iterable[str]) -> bool:
        """Whether rows are found by it, where these columns are the key."""
        return self.own and self.unique and self.plain and set(self.columns) == set(names)


@dataclass(frozen=True, slots=True)
class Watched:
    """What else refuses or changes rows: rules; triggers; keys that refer within the table, or to other columns than
    the key's; anything at all that looks at a row as it is for a moment, such as a check; and the indexes that a row
    goes into."""

    rules: bool
    triggers: bool
    entangled: bool
    checked: bool
    indexes: Sequence[Index]


def read_columns(connection: Connection, table: str) -> dict[str, Column]:
    """The columns of a table that is there, by their names, in their order; its name is quoted."""
    return _read(connection, _COLUMNS, [table])[0]


def read_all(connection: Connection, table: str, key: list[str]) -> tuple[dict[str, Column], Watched]:
    """The columns, and what refuses or changes rows of a table that is there, whose key these columns are; its name is
    quoted."""
    columns, (rules, triggers, entangled, checked, indexes) = _read(connection, _ALL, [table, key])
    read = [Index(*index) for index in indexes]
    others = [index.oid for index in read if not index.same]
    if others:
        same = {oid for (oid,) in connection.execute(_SAME, [others])}
        read = [replace(index, same=index.same or index.oid in same) for index in read]
    return columns, Watched(rules, triggers, entangled, checked, read)


def _read(connection: Connection, query: bytes, parameters: Sequence[Any]) -> tuple[dict[str, Column], tuple[Any, ...]]:
    """The columns of the table, with which the one row of a query begins, and the rest of it."""
    found = connection.execute(query, parameters).fetchone()
    assert found is not None
    if hidden := {column[-1] for column in found[0]} - {None}:
        # without a type's own operators, PostgreSQL compares its values as those of another type
        wider = "set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), %s::text), true)"
        connection.execute(f"SELECT {wider}".encode(), [", ".join(sorted(hidden))])
        found = connection.execute(query, parameters).fetchone()
        assert found is not None
    return {name: Column(*types) for name, *types, is_domain, _ in found[0] if not is_domain}, found[1:]


class Catalogue:
    """Where a table is that may not be there yet."""

    def __init__(self, connection: Connection, place: PostgresPlace) -> None:
        """Looks for the table along the search path, where the place names no schema."""
        check_names([place.schema or "", place.table])
        wanted = quoted(place.table) if place.schema is None else f"{quoted(place.schema)}.{quoted(place.table)}"
        found = connection.execute(
            b"SELECT c.oid, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            b"WHERE c.oid = to_regclass(%s)",
            [wanted],
        ).fetchone()
        self.oid: int | None = None if found is None else found[0]
        self.schema: str | None
        if found is not None:
            self.schema = found[1]
        elif place.schema is not None:
            self.schema = place.schema
        else:
            (self.schema,) = connection.execute(b"SELECT current_schema()").fetchone() or (None,)
        if self.schema is None:
            raise TableError(f"{place}: the search path has no schema to make tables in; write #SCHEMA.TABLE")

"""The generator: what is committed is what the schema says, and a schema that says nonsense is refused by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.wire.messages import MODULES
from tools.codegen.__main__ import PROTOCOL, ROOT, not_generated, outputs, stale
from tools.codegen.layout import ModulePlan
from tools.codegen.modules import message_module
from tools.codegen.reference import differences, snake
from tools.codegen.schema import SchemaError, Versions, load, parse_file

REQUEST = """\
# Does things.
api 96 do_things
listeners broker

# Asks.
request DoThingsRequest 0-2 flexible 2+
{fields}

# Answers.
response DoThingsResponse 0-2 flexible 2+
  error_code int16
"""


def write(folder: Path, text: str, name: str = "96_do_things.txt") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_what_is_committed_is_what_the_schema_says() -> None:
    made = outputs()
    assert stale(made) == []
    path = ROOT / "src/headrace/wire/messages/k00_produce.py"
    assert stale(made | {path: made[path] + "# changed\n"}) == [
        "src/headrace/wire/messages/k00_produce.py: not what the schema says now"
    ]
    del made[path]
    assert stale(made) == ["src/headrace/wire/messages/k00_produce.py: no schema file for it that has a codec"]


def test_a_name_that_no_schema_file_has_is_refused() -> None:
    files = load(ROOT / "schema")
    assert not_generated(files, "# Reasons.\n\nk78_share_fetch\n") == {"k78_share_fetch"}
    with pytest.raises(SchemaError, match=r"not_generated.txt: no schema file makes k78_fetch"):
        not_generated(files, "k78_share_fetch\nk78_fetch\n")


def test_what_is_served_is_generated() -> None:
    """Nothing imports a module that is not written; handlers and their index find theirs by number."""
    assert {*SERVED, *CLUSTER} <= MODULES.keys()


@pytest.mark.parametrize("listing", sorted(PROTOCOL.glob("messages.txt")) or [None], ids=bool)
def test_the_schema_is_kafkas(listing: Path | None) -> None:
    """Where the listing lies beside the checkout; elsewhere Kafka's own classes are asked (test_kafka_oracle)."""
    if listing is None:
        return
    files = load(ROOT / "schema")
    errors = (ROOT / "schema" / "errors.txt").read_text("utf-8")
    assert differences(files, errors, PROTOCOL) == []
    fetch = next(file for file in files if file.key == 1).messages[0]
    fetch.fields[0].default = "7"
    fetch.fields[3].versions = Versions(1, None)
    fetch.fields[4].nullable = Versions(0, None)
    found = differences(files, errors.replace("UNKNOWN_TOPIC_ID retriable", "UNKNOWN_TOPIC_ID"), PROTOCOL)
    assert found == [
        "FetchRequest.cluster_id: the default differs from the reference",
        "FetchRequest.max_wait_ms: versions differs from the reference",
        "FetchRequest.min_bytes: it can be null in other versions in the reference",
        "errors.txt: a code, name or `retriable` differs from the reference",
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("  name text", "there is no type text"),
        ("  name string 3..4", "not a version range"),
        ("  name string sometimes", "unknown word sometimes"),
        ("  import string", "Python keyword"),
        ("  name", "index out of range"),
        ("  a Thing\n    b int8\n  c Thing\n    d int8", "Thing is declared twice"),
        ("  struct Thing\n    b int8\n  struct Thing\n    d int8", "declared twice"),
        ("  things [Thing]\n    only int8 2+", "takes no bytes"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, fields: str, why: str) -> None:
    path = write(tmp_path, REQUEST.format(fields=fields))
    with pytest.raises(SchemaError, match=why):
        message_module(parse_file(path), path.name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# Purpose.\napi 95 do_things\n", "txt:2: the file is not named after its API"),
        ("request DoThingsRequest 0\n", "txt:1: a message needs a line above it that says its purpose"),
        ("# Purpose.\nrequest DoThingsRequest 0 supple 1+\n", "txt:2: a message is"),
        ("nonsense\n", "txt:1: unknown word"),
    ],
)
def test_nonsense_at_the_margin_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        parse_file(write(tmp_path, text))


def test_structs_of_one_name(tmp_path: Path) -> None:
    """Shared where they hold the same; otherwise the response's has a name of its own."""
    text = REQUEST.format(fields="  same Same\n    a int8\n  other Other\n    a int8")
    text += "  same Same 1+\n    a int8 1+\n  other Other\n    a int16\n    b int16\n"
    plan = ModulePlan(parse_file(write(tmp_path, text)))
    names = [one.name for one in plan.classes]
    assert names == ["Same", "Other", "DoThingsRequest", "ResponseOther", "DoThingsResponse"]


def test_comments_on_fields_are_in_the_docstring(tmp_path: Path) -> None:
    fields = (
        "  # How many. -1:\n  # all of them.\n  count int32 1+\n  parts [Part]\n    # Its number.\n    number int8\n"
    )
    path = write(tmp_path, REQUEST.format(fields=fields))
    text = message_module(parse_file(path), path.name)
    assert text is not None
    assert '"""Asks.\n\n    count (1+): How many. -1: all of them.\n    """' in text
    assert '"""A part of DoThingsRequest.\n\n    number: Its number.\n    """' in text
    assert '"""Answers."""' in text


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("  # Apart.\n  struct Thing\n    b int8", "a struct has no comment"),
        ("  a int8\n  # Of nothing.", "not a comment on a field"),
    ],
)
def test_comments_on_nothing_are_refused(tmp_path: Path, fields: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        parse_file(write(tmp_path, REQUEST.format(fields=fields)))


def test_names() -> None:
    assert snake("ThrottleTimeMs") == "throttle_time_ms"
    assert snake("V3AndBelowTransactionalId") == "v3_and_below_transactional_id"
    assert snake("Enable2Pc") == "enable_2pc"
    assert snake("KRaftVersionFeature") == "kraft_version_feature"

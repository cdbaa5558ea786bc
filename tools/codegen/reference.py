"""Compares the schema with a listing of Kafka's own schemas, where one lies beside the checkout: every message, field,
type, version range, nullability, tag, default and flag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.codegen.schema import OWN_KEYS_FROM, Field, Message, SchemaFile, Struct, Versions

FLAG_NAMES = {"ignorable": "ignorable", "mapKey": "key", "zeroCopy": "copyless"}
IRREGULAR = {"Enable2Pc": "enable_2pc"}
BOUND = 1000
"""Higher than any version, where a range has no end."""


def snake(name: str) -> str:
    """`ThrottleTimeMs` -> `throttle_time_ms`."""
    if name in IRREGULAR:
        return IRREGULAR[name]
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def differences(files: list[SchemaFile], errors: str, folder: Path) -> list[str]:
    """What differs, one line each. Our own APIs are in no reference."""
    files = [file for file in files if file.key is None or file.key < OWN_KEYS_FROM]
    wrong: list[str] = []
    ours = {message.name: message for file in files for message in file.messages}
    theirs: dict[str, Message] = {}
    listeners: dict[int, str] = {}
    for path in [folder / "messages.txt", *sorted(folder.glob("records-*.txt"))]:
        for message, words in _messages(path):
            theirs[message.name] = message
            if message.kind == "request" and message.key is not None:
                listeners[message.key] = words.get("listeners", "")
    for name in sorted(ours.keys() ^ theirs.keys()):
        wrong.append(f"{name}: only in {'the schema' if name in ours else 'the reference'}")
    for name in sorted(ours.keys() & theirs.keys()):
        wrong += _message_differences(ours[name], theirs[name])
    wrong += _api_differences(files, listeners, (folder / "api_keys.tsv").read_text("utf-8"))
    wrong += _error_differences(errors, (folder / "errors.tsv").read_text("utf-8"))
    return wrong


def _messages(path: Path) -> Iterator[tuple[Message, dict[str, str]]]:
    """The messages of a reference file, each with the words of its head."""
    message: Message | None = None
    blocks: list[tuple[int, list[Field]]] = []
    words: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            if message is not None:
                yield message, words
            kind, name, *rest = line.split()
            words = dict(word.split("=", 1) for word in rest)
            key = int(words["apiKey"]) if "apiKey" in words else None
            kind = "record" if kind == "metadata" else kind
            message = Message(
                kind, name, key, _range(words["validVersions"]), _range(words.get("flexibleVersions")), ""
            )
            blocks = [(0, message.fields)]
            continue
        assert message is not None
        indent = len(line) - len(line.lstrip())
        while blocks[-1][0] >= indent:
            blocks.pop()
        if line.lstrip().startswith("struct "):
            _, name, versions = line.split()
            struct = message.structs.setdefault(name, Struct(name, Versions.parse(versions)))
            struct.versions = Versions.parse(versions)
            blocks.append((indent, struct.fields))
            continue
        item = _field(line.strip())
        blocks[-1][1].append(item)
        if item.is_struct:
            struct = message.structs.setdefault(item.type, Struct(item.type, item.versions))
            blocks.append((indent, struct.fields))
    if message is not None:
        yield message, words


def _range(text: str | None) -> Versions | None:
    return None if text in (None, "none") else Versions.parse(str(text))


def _field(line: str) -> Field:
    match = re.match(r"(\S+) (\S+) (\S*)(.*)", line)
    assert match is not None, line
    name, kind, versions, rest = match.groups()
    words = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', rest))
    flags = {FLAG_NAMES[word] for word in re.sub(r'\w+=("[^"]*"|\S+)', "", rest).split()}
    if words.get("flexible") == "none":
        flags.add("classic")
    return Field(
        name=snake(name),
        type=kind.removeprefix("[]"),
        array=kind.startswith("[]"),
        versions=Versions.parse(versions or words["taggedVersions"]),
        nullable=_range(words.get("null")),
        tag=int(words["tag"]) if "tag" in words else None,
        # A null without quotes is JSON's, which says nothing: the default is then empty, as for any other field.
        default=words["default"].strip('"') if words.get("default", "null") != "null" else None,
        flags=frozenset(flags),
    )


def _message_differences(ours: Message, theirs: Message) -> Iterator[str]:
    for what in ("kind", "key", "versions", "flexible"):
        mine, reference = getattr(ours, what), getattr(theirs, what)
        if what == "key" and ours.kind in ("data", "header"):
            continue
        if mine != reference:
            yield f"{ours.name}: {what} is {mine}, in the reference {reference}"
    for name in sorted(ours.structs.keys() ^ theirs.structs.keys()):
        yield f"{ours.name}: struct {name} is in one of the two alone"
    yield from _field_differences(ours.name, ours.fields, theirs.fields)
    for name in sorted(ours.structs.keys() & theirs.structs.keys()):
        if ours.structs[name].versions != theirs.structs[name].versions:
            yield f"{ours.name}: struct {name} has other versions in the reference"
        yield from _field_differences(f"{ours.name}.{name}", ours.structs[name].fields, theirs.structs[name].fields)


def _field_differences(where: str, ours: list[Field], theirs: list[Field]) -> Iterator[str]:
    if [item.name for item in ours] != [item.name for item in theirs]:
        yield f"{where}: the fields are not those of the reference, or in another order"
        return
    for mine, reference in zip(ours, theirs, strict=True):
        for what in ("type", "array", "versions", "tag", "flags"):
            if getattr(mine, what) != getattr(reference, what):
                yield f"{where}.{mine.name}: {what} differs from the reference"
        if _nullable(mine) != _nullable(reference):
            yield f"{where}.{mine.name}: it can be null in other versions in the reference"
        if (mine.default or "").strip('"') != (reference.default or "") or (mine.default is None) != (
            reference.default is None
        ):
            yield f"{where}.{mine.name}: the default differs from the reference"


def _nullable(item: Field) -> tuple[int, int] | None:
    """The versions that have the field and in which it can be null."""
    if item.nullable is None:
        return None
    return item.nullable.within(item.versions.low, BOUND if item.versions.high is None else item.versions.high)


def _api_differences(files: list[SchemaFile], listeners: dict[int, str], table: str) -> Iterator[str]:
    rows = {int(line.split("\t")[0]): line.split("\t") for line in table.splitlines()[1:]}
    apis = {file.key: file for file in files if file.key is not None}
    if rows.keys() != apis.keys():
        yield f"APIs: {sorted(rows.keys() ^ apis.keys())} are in one of the two alone"
    for key, file in apis.items():
        if key not in rows:
            continue
        _, name, versions, flexible, where, unstable = rows[key]
        request = file.messages[0]
        wanted = (snake(name), _range(versions), _range(flexible or "none"), where, unstable == "true")
        if (file.name, request.versions, request.flexible, ",".join(file.listeners), file.latest_unstable) != wanted:
            yield f"API {key}: its row differs from the reference"
        if listeners.get(key, "") != where:
            yield f"API {key}: the reference contradicts itself about listeners"


def _error_differences(ours: str, theirs: str) -> Iterator[str]:
    mine = [line.partition(": ")[0].split() for line in ours.splitlines() if line and not line.startswith("#")]
    reference = [[word for word in line.split("\t") if word != "-"] for line in theirs.splitlines()[1:]]
    if mine != reference:
        yield "errors.txt: a code, name or `retriable` differs from the reference"

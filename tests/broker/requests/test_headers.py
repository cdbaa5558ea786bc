"""Each handler's header says what it is: name, key and versions as in the table of APIs, and what is unsupported."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from headrace.broker.requests import apis
from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.wire.apis import APIS

FOLDER = Path(apis.__file__).parent


def header(key: int) -> str:
    return ast.get_docstring(ast.parse((FOLDER / f"{APIS[key].module}.py").read_text())) or ""


@pytest.mark.parametrize("key", sorted(SERVED))
def test_a_header_names_its_api(key: int) -> None:
    api = APIS[key]
    name = "".join(part.capitalize() for part in api.name.split("_"))
    several = api.min_version != api.max_version
    versions = f"versions {api.min_version}-{api.max_version}" if several else f"version {api.min_version}"
    assert re.match(rf"{name} \({int(key)}\), {versions}[:;.]", header(key)), header(key).splitlines()[0]


@pytest.mark.parametrize("key", sorted(SERVED))
def test_a_header_says_what_is_unsupported_if_anything_is(key: int) -> None:
    text = header(key)
    assert "Not done" not in text
    assert len(re.findall(r"^Unsupported: \S.*\.", text, re.MULTILINE | re.DOTALL)) == ("Unsupported" in text)


@pytest.mark.parametrize("key", sorted(SERVED))
def test_versions_that_a_header_names_exist(key: int) -> None:
    api = APIS[key]
    named = {int(number) for number in re.findall(r"\bv(\d+)\b", header(key))}
    assert named <= set(range(api.min_version, api.max_version + 1))


def test_every_file_of_a_handler_is_served() -> None:
    files = {path.stem for path in FOLDER.glob("k[0-9]*.py")}
    assert files == {APIS[key].module for key in (*SERVED, *CLUSTER)}

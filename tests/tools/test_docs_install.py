"""How to install is said in one place, which follows from one line on whether the package is on an index."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import headrace
from tools import docs_install, sbom

ROOT = Path(__file__).resolve().parents[2]
OPEN_ITEMS = ROOT / "docs" / "roadmap.md"
"""It may say what no page may say."""
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")} - {OPEN_ITEMS})
FROM_AN_INDEX = re.compile(r"pip (?:install|wheel|download)\b[^\n`]*(?<![\w/.-])headrace\b(?![-/.])")
"""The package by its name; not a file or a folder."""


def test_from_an_index_is_told_from_a_checkout() -> None:
    for text in ("pip install headrace", "`pip install 'headrace[spark]'`", "pip wheel --no-deps headrace && x"):
        assert FROM_AN_INDEX.search(text), text
    for text in ("pip install .", "pip install dist/headrace-0.1.0-py3-none-any.whl", "pip install './headrace[a]'"):
        assert not FROM_AN_INDEX.search(text), text


@pytest.mark.parametrize("on_an_index", [False, True])
def test_both_forms_of_the_page_name_the_command_where_it_works(on_an_index: bool) -> None:
    page = docs_install.page(on_an_index=on_an_index)
    assert bool(FROM_AN_INDEX.search(page)) == on_an_index
    assert ("not on a package index" in page) != on_an_index
    assert "[metrics,security]'" in page
    assert docs_install.table() in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_other_page_names_a_command_that_the_index_decides_about(page: Path) -> None:
    text = page.read_text("utf-8")
    if page == docs_install.PAGE:
        assert text == docs_install.page()
        return
    assert not FROM_AN_INDEX.search(text)
    assert "not on a package index" not in text


def test_each_extra_of_users_is_explained() -> None:
    assert set(docs_install.PURPOSE) == set(sbom.extras()) - {"demo", "dev", "tools"}


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "headrace.version.__version__"}
    assert metadata.version("headrace") == headrace.__version__
    versions = re.findall(r"^## (\d\S*?),? ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == headrace.__version__

"""What `dir()`, `help()` and TAB show of the public packages, which import their parts when they are first used."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = ("headrace", "headrace.client", "headrace.testing", "headrace.spark")


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_names_each_public_object(name: str) -> None:
    package = import_module(name)
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", PACKAGES)
def test_help_describes_each_public_object(name: str) -> None:
    package = import_module(name)
    text = pydoc.plain(pydoc.render_doc(package))
    assert [each for each in package.__all__ if each not in text and not each.startswith("__")] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_that_is_not_there_is_named_with_its_package(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"{name}.*nothing_of_the_kind"):
        import_module(name).nothing_of_the_kind  # noqa: B018


def test_help_works_without_pyarrow() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; import headrace; help(headrace)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scan(topic" in done.stdout

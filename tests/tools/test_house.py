"""The lock holds hashes and no addresses, generated pages are up to date, the layer contracts hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tools import docs, layers, lock

ROOT = Path(__file__).resolve().parents[2]


def test_the_lock_has_a_hash_for_every_pin_and_no_address() -> None:
    text = lock.LOCK.read_text()
    assert "://" not in text
    pins = [pin for pin in re.split(r"\n(?=[a-z])", text) if "==" in pin]
    assert len(pins) > 40
    assert all("--hash=sha256:" in pin for pin in pins)


def test_the_lock_covers_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [each for extra in project["optional-dependencies"].values() for each in extra]
    names = {re.split(r"[<>=\[]", each)[0].lower() for each in asked} - {"headrace"}
    pinned = set(re.findall(r"^([a-z0-9._-]+)==", lock.LOCK.read_text(), re.MULTILINE))
    assert names <= pinned


def test_an_address_does_not_get_into_the_lock() -> None:
    with pytest.raises(ValueError, match="address"):
        lock.pins_only("a==1\nb @ https://example.org/b.whl\n")


def test_the_pages_made_from_the_code_are_up_to_date() -> None:
    assert docs.main(["--check"]) == 0


def test_a_page_that_is_not_what_the_code_says_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "DOCS", tmp_path)
    assert docs.main(["--check"]) == 1
    assert "docs/configuration.md is not what the code says" in capsys.readouterr().err
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_contracts_of_packages_that_are_not_there_are_left_out() -> None:
    assert layers.existing_only("x\n    headrace.wire\n    headrace.nowhere\n") == "x\n    headrace.wire\n"


def test_the_layers_hold() -> None:
    assert layers.main() == 0

"""The lock holds hashes and no addresses, generated pages are up to date, the layer contracts hold."""

from __future__ import annotations

import re
import subprocess
import tomllib
import warnings
from pathlib import Path

import pytest
from peers import gssapi_package

from tools import docs, layers, lock

ROOT = Path(__file__).resolve().parents[2]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
KERBEROS = "kerberos"
"""The extra that is built against headers which a machine may lack: `make install` never meets it."""


def pinned(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", path.read_text(), re.MULTILINE))


LOCKS = (lock.LOCK, lock.BROKER_LOCK, lock.DIST_LOCK, lock.CHART_LOCK)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_a_hash_for_every_pin_and_no_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    pins = [pin for pin in re.split(r"\n(?=[a-z])", text) if "==" in pin]
    assert len(pins) > (5 if path == lock.CHART_LOCK else 20)
    assert all("--hash=sha256:" in pin for pin in pins)


@pytest.mark.parametrize(
    ("path", "extras"),
    [
        (lock.LOCK, [extra for extra in EXTRAS if extra != KERBEROS]),
        (lock.BROKER_LOCK, ["tools"]),
        (gssapi_package.LOCK, [KERBEROS]),
    ],
)
def test_a_lock_covers_what_the_project_asks_for(path: Path, extras: list[str]) -> None:
    asked = [each for extra in extras for each in EXTRAS[extra]]
    if extras != [KERBEROS]:
        asked += PROJECT["dependencies"]
    names = {re.split(r"[<>=\[]", each)[0].lower() for each in asked} - {"headrace"}
    assert names <= set(pinned(path))


def test_the_broker_can_be_installed_without_spark_in_the_same_versions() -> None:
    some, everything = pinned(lock.BROKER_LOCK), pinned(lock.LOCK)
    assert some.items() <= everything.items()
    assert not {"pyspark", "pyarrow", "pandas"} & set(some)
    assert "gssapi" not in everything
    for extras, name in (("EXTRAS=", lock.BROKER_LOCK.name), ("EXTRAS=all", lock.LOCK.name)):
        command = ["make", "--dry-run", "--always-make", "install", extras]
        said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        assert f"tools/install.py {name}" in said


def test_pyspark_has_nothing_against_the_pandas_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    import pandas as pd
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    assert "pandas>=2.2,<3" in EXTRAS["demo"]
    monkeypatch.setattr(pd, "__version__", pinned(lock.LOCK)["pandas"])
    with warnings.catch_warnings(action="error"):
        require_minimum_pandas_version()


def test_what_builds_a_release_is_pinned_and_shares_versions_with_the_rest() -> None:
    builds, everything = pinned(lock.DIST_LOCK), pinned(lock.LOCK)
    assert {re.split(r"[<>=]", each)[0] for each in lock.RELEASE} <= set(builds)
    assert all(builds[name] == everything[name] for name in builds.keys() & everything.keys())


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

"""The bill of materials lists all that the wheel needs, each with a version, hashes and a licence."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import sbom

LOCK = sbom.LOCK.read_text()


def wheel_needs() -> set[str]:
    """What a fresh environment gets with the wheel, found from what is installed alone."""
    found: set[str] = set()
    ahead = ["headrace"]
    while ahead:
        for text in metadata.requires(ahead.pop()) or ():
            wanted = Requirement(text)
            name = wanted.name.lower().replace("_", "-")
            if name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
                found.add(name)
                ahead.append(name)
    return found


def test_all_that_the_wheel_needs_is_listed_with_hashes_and_a_licence() -> None:
    packages = sbom.runtime_packages(LOCK)
    assert {each.name for each in packages} == wheel_needs() >= {"crc32c", "cramjam", "click", "rich", "mdurl"}
    for each in packages:
        assert each.version == metadata.version(each.name)
        assert each.licence and each.hashes
        assert all(f"--hash=sha256:{digest}" in LOCK for digest in each.hashes)


def test_a_package_that_the_lock_lacks_or_has_in_another_version_is_refused() -> None:
    without = "\n".join(line for line in LOCK.splitlines() if not line.startswith("mdurl=="))
    with pytest.raises(sbom.SbomError, match="mdurl is not in requirements.lock"):
        sbom.runtime_packages(without)
    version = metadata.version("click")
    with pytest.raises(sbom.SbomError, match=f"click {version} is installed, and requirements.lock has 0.0"):
        sbom.runtime_packages(LOCK.replace(f"click=={version}", "click==0.0"))


def test_hashes_are_those_of_the_package_alone() -> None:
    digests = [digit * 64 for digit in "abc"]
    lines = [
        "a_B==1 \\",
        *(f"    --hash=sha256:{digest} \\" for digest in digests[:2]),
        f"c==2 --hash=sha256:{digests[2]}",
    ]
    text = "\n".join(lines)
    assert sbom.pinned(text) == {"a-b": ("1", tuple(digests[:2])), "c": ("2", (digests[2],))}


def test_no_lock_names_a_place() -> None:
    assert "://" not in sbom.LIBRARY_LOCK.read_text()


@pytest.mark.soak
def test_the_same_commit_makes_the_same_bill(tmp_path: Path) -> None:
    """Installs CycloneDX's library, which knows what a bill may hold."""
    bills = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.json"
        environment = {"PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": "1000000000", "PYTHONPATH": str(sbom.ROOT / "src")}
        command = [sys.executable, "-m", "tools.sbom", str(path)]
        subprocess.run(command, cwd=sbom.ROOT, env=environment, check=True, capture_output=True)
        bills.append(path.read_bytes())
    assert bills[0] == bills[1]
    bill = json.loads(bills[0])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert datetime.fromisoformat(bill["metadata"]["timestamp"]) == datetime.fromtimestamp(1_000_000_000, tz=UTC)
    assert {each["name"] for each in bill["components"]} == wheel_needs()
    assert all(each["hashes"] and each["licenses"] and each["purl"] for each in bill["components"])
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    own = bill["metadata"]["component"]
    assert len(needs[own["purl"]]) == len(sbom.needs_of("headrace"))
    assert b"https://" not in bills[0]

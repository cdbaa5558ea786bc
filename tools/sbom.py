"""Writes the bill of materials of a release: what the wheel needs to run, with versions, hashes and licences.

    python -m tools.sbom [dist/headrace-VERSION.cdx.json]

It is CycloneDX 1.6, in JSON. Versions and hashes are those of requirements.lock (the hashes of every file of a version:
which of them is installed depends on the machine), licences those that the installed packages say. The same commit
gives the same bytes: the time is SOURCE_DATE_EPOCH, or that of the commit, and the serial number follows from the rest.

The library that knows CycloneDX is installed on demand beside the project, from tools/sbom.lock, by its hashes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Final, cast

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements.lock"
LIBRARY_LOCK: Final = ROOT / "tools" / "sbom.lock"
LIBRARY: Final = ROOT / "build" / "sbom"
PROJECT: Final = "headrace"
PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s\\;]+)(?P<rest>.*)$")
HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class SbomError(Exception):
    """The bill cannot be written; the text says why in one line."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package of the bill. `needs` are the names of those that it needs itself."""

    name: str
    version: str
    licence: str
    hashes: tuple[str, ...]
    needs: tuple[str, ...]


def canonical(name: str) -> str:
    """A name as the index of Python's packages compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """(version, SHA-256 of its files) of each package of a lock, by its canonical name."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    name = ""
    for line in text.splitlines():
        pin = PIN.match(line)
        if pin is not None:
            name = canonical(pin["name"])
            found[name] = (pin["version"], ())
        if name and not line.startswith("#"):
            version, hashes = found[name]
            found[name] = (version, (*hashes, *HASH.findall(line)))
    return found


def needs_of(name: str) -> tuple[str, ...]:
    """What an installed package needs on this machine without any of its extras; canonical names, sorted."""
    from packaging.requirements import Requirement

    wanted = (Requirement(text) for text in metadata.requires(name) or ())
    return tuple(
        sorted({canonical(each.name) for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})})
    )


def extras() -> dict[str, list[str]]:
    """The extras of pyproject.toml."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return found


def licence_of(name: str) -> str:
    """The SPDX expression of an installed package, or the name that it has for its licence. Raises SbomError."""
    found = cast(Message, metadata.metadata(name))
    said = str(found.get("License-Expression") or "").strip()
    if said:
        return said
    named = [each.rpartition(" :: ")[2] for each in found.get_all("Classifier") or () if each.startswith("License ::")]
    short = str(found.get("License") or "").strip()
    if short and "\n" not in short and len(short) < 60:
        return short
    if not named:
        raise SbomError(f"{name} says nothing of its licence")
    return " AND ".join(named)


def runtime_packages(lock: str) -> list[Package]:
    """All that the wheel needs without extras, and what these need, by name. Raises SbomError where the lock, or this
    machine, lacks one or has another version."""
    pins = pinned(lock)
    found: dict[str, Package] = {}
    ahead = list(needs_of(PROJECT))
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        if name not in pins:
            raise SbomError(f"{name} is not in {LOCK.name}: make lock")
        version, hashes = pins[name]
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise SbomError(f"{name} is not installed: make install") from None
        if installed != version:
            raise SbomError(f"{name} {installed} is installed, and {LOCK.name} has {version}: make install")
        needs = needs_of(name)
        found[name] = Package(name, version, licence_of(name), hashes, needs)
        ahead += needs
    return [found[name] for name in sorted(found)]


def release_time() -> datetime:
    """SOURCE_DATE_EPOCH, or when the commit was made."""
    said = os.environ.get("SOURCE_DATE_EPOCH")
    if said is None:
        command = ["git", "log", "-1", "--format=%ct"]
        said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return datetime.fromtimestamp(int(said), tz=UTC)


def bill_of(packages: list[Package], version: str, when: datetime) -> str:
    """The bill as text."""
    from cyclonedx.contrib.license.factories import LicenseFactory  # type: ignore[import-not-found]
    from cyclonedx.model import HashAlgorithm, HashType  # type: ignore[import-not-found]
    from cyclonedx.model.bom import Bom  # type: ignore[import-not-found]
    from cyclonedx.model.component import Component, ComponentType  # type: ignore[import-not-found]
    from cyclonedx.output import make_outputter  # type: ignore[import-not-found]
    from cyclonedx.schema import OutputFormat, SchemaVersion  # type: ignore[import-not-found]
    from packageurl import PackageURL  # type: ignore[import-not-found]

    licences = LicenseFactory()

    def component(name: str, its_version: str, licence: str, hashes: tuple[str, ...], kind: ComponentType) -> Component:
        purl = PackageURL("pypi", None, name, its_version)
        return Component(
            name=name,
            version=its_version,
            type=kind,
            bom_ref=purl.to_string(),
            purl=purl,
            licenses=[licences.make_from_string(licence)],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in hashes],
        )

    own = component(PROJECT, version, licence_of(PROJECT), (), ComponentType.APPLICATION)
    parts = {
        each.name: component(each.name, each.version, each.licence, each.hashes, ComponentType.LIBRARY)
        for each in packages
    }
    lines = [f"{each.name} {each.version} {' '.join(each.hashes)}" for each in packages]
    serial = uuid.uuid5(uuid.NAMESPACE_OID, "\n".join([PROJECT, version, when.isoformat(), *lines]))
    bom = Bom(components=parts.values(), serial_number=serial)
    bom.metadata.timestamp = when
    bom.metadata.component = own
    bom.register_dependency(own, [parts[name] for name in needs_of(PROJECT)])
    for each in packages:
        bom.register_dependency(parts[each.name], [parts[name] for name in each.needs])
    return f"{make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)}\n"


def with_library() -> None:
    """Makes CycloneDX's library importable; it is installed beside the project once for each lock."""
    done = LIBRARY / ".done"
    lock = LIBRARY_LOCK.read_text()
    if not done.exists() or done.read_text() != lock:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--upgrade", "--target", str(LIBRARY), "-r", str(LIBRARY_LOCK)]
        subprocess.run(command, check=True)
        done.write_text(lock)
    sys.path.append(str(LIBRARY))


def main(arguments: list[str]) -> int:
    version = metadata.version(PROJECT)
    path = Path(arguments[0]) if arguments else ROOT / "dist" / f"{PROJECT}-{version}.cdx.json"
    try:
        packages = runtime_packages(LOCK.read_text())
        with_library()
        text = bill_of(packages, version, release_time())
    except SbomError as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"{path}: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

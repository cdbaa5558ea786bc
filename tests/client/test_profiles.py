"""The file of profiles: what it keeps, whom it is for, and what becomes of it when it is damaged or written at once."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import profiles
from headrace.client.cluster import Client
from headrace.client.profiles import (
    Profile,
    ProfileError,
    Profiles,
    changing_profiles,
    check_name,
    profile_named,
    profiles_path,
    reach,
    read_profiles,
)
from headrace.client.security import PLAINTEXT

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2";'
PROD = {
    "bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": LOGIN,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "there" / "profiles.json"
    monkeypatch.setenv("HEADRACE_PROFILES", str(found))
    return found


def keep(name: str, properties: dict[str, str]) -> None:
    with changing_profiles() as held:
        held.by_name[name] = Profile(name, properties)


def test_a_profile_is_kept_for_its_owner_alone(path: Path) -> None:
    assert read_profiles() == Profiles()
    old = os.umask(0)
    try:
        keep("prod", PROD)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(each.name for each in path.parent.iterdir()) == ["profiles.json", "profiles.json.lock"]
    found = profile_named("prod")
    assert (found.bootstrap, dict(found.properties)) == ("a:1,b:2", PROD)
    assert "hunter2" not in repr(found) and "hunter2" not in repr(read_profiles())
    assert found.security().protocol == "SASL_PLAINTEXT"
    assert found.spark_options()["kafka.bootstrap.servers"] == "a:1,b:2"


@given(st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True), st.text(), max_size=4))
def test_every_text_comes_back(texts: dict[str, str]) -> None:
    # what a directory of a test would be is made once for all examples
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "profiles.json"
        with changing_profiles(where) as held:
            for name, text in texts.items():
                held.by_name[name] = Profile(name, {"sasl.jaas.config": text})
        found = read_profiles(where)
    assert {name: each.properties["sasl.jaas.config"] for name, each in found.by_name.items()} == texts


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_PROFILES", raising=False)
    monkeypatch.setenv("HOME", "/ann")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/conf")
    assert profiles_path() == Path("/conf/headrace/profiles.json")
    for relative in ("", "conf"):
        monkeypatch.setenv("XDG_CONFIG_HOME", relative)
        assert profiles_path() == Path("/ann/.config/headrace/profiles.json")
    monkeypatch.setattr(Path, "home", without_home)
    with pytest.raises(ProfileError, match="this user has no home directory: HEADRACE_PROFILES says where"):
        profiles_path()
    monkeypatch.setenv("XDG_CONFIG_HOME", "/conf")
    assert profiles_path() == Path("/conf/headrace/profiles.json")


def without_home() -> Path:
    """As for a user that is a bare number, in a container."""
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_use_is_refused(path: Path, mode: int) -> None:
    keep("prod", PROD)
    path.chmod(mode)
    before = path.read_bytes()
    for act in (read_profiles, lambda: keep("other", {})):
        with pytest.raises(ProfileError, match=r"chmod 600") as refused:
            act()
        assert f"(mode {mode:04o})" in str(refused.value) and "hunter2" not in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "line 1 is not as JSON has it"),
        (b'{"version": 1,\n"hunter2', "line 2 is not as JSON has it"),
        (b"\xff\xfe\xff", "it is not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "it is not a file of profiles"),
        (b'{"version": 2, "profiles": {}}', "it is of version 2; this release reads version 1"),
        (b'{"version": 1, "profiles": []}', "it names no profiles"),
        (b'{"version": 1, "in_use": 7, "profiles": {}}', "it names no profiles"),
        (b'{"version": 1, "profiles": {"hunter2 x": {}}}', "profile 1 has no name"),
        (b'{"version": 1, "profiles": {"a": {"sasl.jaas.config": 7}}}', "profile a holds something else than texts"),
        (b'{"version": 1, "profiles": {"a": {"client.id": "hunter2"}}}', "profile a holds what is no property"),
        (b" " * ((1 << 20) + 1), "more than 1048576 bytes"),
    ],
)
def test_a_damaged_file_is_one_line_and_stays(path: Path, data: bytes, words: str) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    path.chmod(0o600)
    for act in (read_profiles, lambda: keep("other", {})):
        with pytest.raises(ProfileError) as refused:
            act()
        line = str(refused.value)
        assert line.startswith(f"{path}: ") and words in line and "hunter2" not in line and "\n" not in line
    assert path.read_bytes() == data


def test_what_is_no_file_is_refused_at_once(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(ProfileError, match="it is no file"):
        read_profiles()
    path.unlink()
    path.mkdir()
    with pytest.raises(ProfileError, match=str(path)):
        read_profiles()


def test_a_change_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("prod", PROD)
    before, there = path.read_bytes(), {each.name for each in path.parent.iterdir()}
    with pytest.raises(RuntimeError), changing_profiles() as held:
        del held.by_name["prod"]
        raise RuntimeError
    assert path.read_bytes() == before

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ProfileError, match="it cannot be written: No space left on device"):
            keep("other", {})
    assert path.read_bytes() == before and {each.name for each in path.parent.iterdir()} == there
    with pytest.raises(ProfileError, match="the most that it can hold"):
        keep("large", {"sasl.jaas.config": "x" * profiles.FILE_BYTES_MAX})
    assert path.read_bytes() == before


def test_a_link_stays_one(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere.json")
    keep("prod", PROD)
    assert path.is_symlink() and profile_named("prod").bootstrap == "a:1,b:2"


WRITER = """
import sys
from headrace.client.profiles import Profile, changing_profiles
for number in range(20):
    with changing_profiles() as held:
        name = f"{sys.argv[1]}-{number}"
        held.by_name[name] = Profile(name, {"bootstrap.servers": "x:1"})
"""


def test_writers_at_once_lose_nothing(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in ("a", "b", "c")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(read_profiles().by_name) == 60
    assert len(json.loads(path.read_text())["profiles"]) == 60


def test_a_writer_waits_for_another_one_only_so_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "LOCK_PATIENCE_S", 0.1)
    with (
        changing_profiles(),
        pytest.raises(ProfileError, match="another process has been changing it"),
        changing_profiles(),
    ):
        pass
    assert path.exists()


@pytest.mark.parametrize("name", ["", "-x", ".x", "a b", "a/b", "x" * 65, "ä", "a\n"])
def test_names_that_no_profile_has(name: str) -> None:
    with pytest.raises(ProfileError):
        check_name(name)


def test_clients_take_a_profile(path: Path) -> None:
    keep("prod", PROD)
    keep("bare", {"security.protocol": "PLAINTEXT"})
    with Client(profile="prod") as client:
        assert client.bootstrap == [("a", 1), ("b", 2)] and client.security.protocol == "SASL_PLAINTEXT"
    assert reach("c:3", PLAINTEXT, "prod") == ("c:3", PLAINTEXT)
    assert reach(None, None, "bare")[0] == "127.0.0.1:9092"
    assert reach(None, None, None) == ("127.0.0.1:9092", PLAINTEXT)
    with pytest.raises(ValueError, match="there is no profile other; there are: bare, prod"):
        Client(profile="other")
    assert path.exists()

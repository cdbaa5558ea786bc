"""Profiles: names for clusters, each with its brokers and the client properties by which connections to it are
protected, in one file of the user's.

The file is JSON of version 1: `{"version": 1, "in_use": NAME or null, "profiles": {NAME: {PROPERTY: TEXT}}}`. It holds
secrets, so that it is its owner's alone (0600): one that others may read is refused. It is replaced whole, under a lock
beside it (`.lock`), so that neither a crash nor a second writer loses what it held.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.client.security import Protection, Security

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
PATH_VARIABLE: Final = "HEADRACE_PROFILES"
FILE: Final = "profiles.json"
VERSION: Final = 1
FILE_BYTES_MAX: Final = 1 << 20
PROFILES_MAX: Final = 1000
LOCK_PATIENCE_S: Final = 10.0
"""How long a writer waits for another one."""
LOCK_PAUSE_S: Final = 0.02
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ProfileError(ValueError):
    """What keeps profiles from being read or written; the text is one line, without anything that they hold."""


class NoProfileError(ProfileError):
    """There is no profile of that name."""


class NoHomeError(ProfileError):
    """Nobody says where the file is, and this user has no home."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. `repr` shows no property."""

    name: str
    properties: Mapping[str, str] = field(repr=False)

    @property
    def bootstrap(self) -> str | None:
        """Its brokers, where it names any."""
        from headrace.config.client_properties import BOOTSTRAP_SERVERS

        return self.properties.get(BOOTSTRAP_SERVERS)

    def security(self) -> Security:
        """How connections are protected. Raises ConfigError, one line without secrets."""
        from headrace.client.security import security_of

        return security_of(self.properties)

    def spark_options(self) -> dict[str, str]:
        """The options of Spark's sources and sinks that say the same: `kafka.bootstrap.servers` and so on."""
        return {f"kafka.{name}": text for name, text in self.properties.items()}


@dataclass(slots=True)
class Profiles:
    """What the file holds: profiles by name, and the name of the one that is used where none is named."""

    by_name: dict[str, Profile] = field(default_factory=dict)
    in_use: str | None = None

    def named(self, name: str) -> Profile:
        """Raises NoProfileError."""
        found = self.by_name.get(name)
        if found is None:
            there = ", ".join(sorted(self.by_name)[:10]) or "none"
            raise NoProfileError(f"there is no profile {name}; there are: {there}")
        return found


def profiles_path() -> Path:
    """Where the file is: HEADRACE_PROFILES says it, or it is in the user's directory of configurations. Raises
    NoHomeError where there is none."""
    path = os.environ.get(PATH_VARIABLE)
    if path:
        return Path(path)
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "headrace" / FILE
        return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "headrace" / FILE
    except RuntimeError:
        raise NoHomeError(f"this user has no home directory: {PATH_VARIABLE} says where the profiles are") from None


def check_name(name: str) -> str:
    """The name. Raises ProfileError for one that a profile cannot have."""
    if _NAME.fullmatch(name) is None:
        raise ProfileError(f"{name!r} is no name of a profile; take up to 64 letters, digits, dots and hyphens")
    return name


def read_profiles(path: Path | None = None) -> Profiles:
    """What the file holds; nothing where there is none. Raises ProfileError."""
    where = profiles_path() if path is None else path
    try:
        # opening a pipe of that name would block
        opened = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ProfileError(f"{where}: {error.strerror}") from None
    try:
        _check_file(os.fstat(opened), where)
        data = os.pread(opened, FILE_BYTES_MAX, 0)
    except OSError as error:
        raise ProfileError(f"{where}: {error.strerror}") from None
    finally:
        os.close(opened)
    return _parsed(data, where)


def _check_file(found: os.stat_result, where: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ProfileError(f"{where}: it is no file")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ProfileError(
            f"{where}: it holds secrets, and others than its owner may use it (mode {mode:04o}); "
            f"after `chmod 600 {where}` it is read"
        )
    if found.st_size > FILE_BYTES_MAX:
        raise ProfileError(f"{where}: it is damaged: it holds more than {FILE_BYTES_MAX} bytes")


def profile_named(name: str) -> Profile:
    """The profile of that name in the user's file. Raises ProfileError."""
    return read_profiles().named(check_name(name))


def reach(
    bootstrap: str | Sequence[str] | None, security: Protection | None, profile: str | None
) -> tuple[str | Sequence[str], Security]:
    """Returns the bootstrap servers and the protection of connections: those given, else the profile's, else the
    defaults.

    Raises ProfileError, ConfigError, or what `protection_of` does.
    """
    from headrace.client.security import PLAINTEXT, protection_of

    named = None if profile is None else profile_named(profile)
    if bootstrap is None:
        bootstrap = (None if named is None else named.bootstrap) or DEFAULT_BOOTSTRAP
    if security is not None:
        return bootstrap, protection_of(security)
    return bootstrap, PLAINTEXT if named is None else named.security()


@contextmanager
def changing_profiles(path: Path | None = None) -> Iterator[Profiles]:
    """What the file holds, to be changed: it is written when the block ends without an error. Raises ProfileError.

    Only one process at a time is in such a block.
    """
    # a link stays one: what it leads to is replaced
    where = Path(os.path.realpath(profiles_path() if path is None else path))
    try:
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open(os.open(f"{where}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb")
    except OSError as error:
        raise ProfileError(f"{error.filename or where}: {error.strerror}") from None
    with lock:
        _take(lock, where)
        profiles = read_profiles(where)
        yield profiles
        _write(profiles, where)


def _take(lock: IO[bytes], where: Path) -> None:
    import fcntl

    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise ProfileError(
                    f"{where}: another process has been changing it for {LOCK_PATIENCE_S:.0f} s"
                ) from None
            time.sleep(LOCK_PAUSE_S)
        except OSError as error:
            raise ProfileError(f"{where}.lock: {error.strerror}") from None
        else:
            return


def _write(profiles: Profiles, where: Path) -> None:
    from headrace.env.posix import PosixDisk

    held = {name: dict(profiles.by_name[name].properties) for name in sorted(profiles.by_name)}
    document = {"version": VERSION, "in_use": profiles.in_use, "profiles": held}
    data = json.dumps(document, indent=2, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
    if len(data) > FILE_BYTES_MAX or len(held) > PROFILES_MAX:
        raise ProfileError(f"{where}: {PROFILES_MAX} profiles and {FILE_BYTES_MAX} bytes are the most that it can hold")
    try:
        PosixDisk().write_file_atomically(str(where), data)
    except OSError as error:
        raise ProfileError(f"{where}: it cannot be written: {error.strerror}") from None


def _parsed(data: bytes, where: Path) -> Profiles:
    try:
        document = json.loads(data)
    except RecursionError:
        raise ProfileError(f"{where}: it is damaged: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ProfileError(f"{where}: it is damaged: line {error.lineno} is not as JSON has it") from None
    except ValueError:
        raise ProfileError(f"{where}: it is damaged: it is not UTF-8 text") from None
    why = _wrong(document)
    if why:
        raise ProfileError(f"{where}: {why}")
    by_name = {name: Profile(name, properties) for name, properties in document["profiles"].items()}
    return Profiles(by_name, document.get("in_use"))


def _wrong(document: Any) -> str:
    """Returns the error in the document, without its contents; empty if there is none."""
    from headrace.config.client_properties import is_kept

    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        return "it is damaged: it is not a file of profiles"
    if document["version"] != VERSION:
        return f"it is of version {document['version']}; this release reads version {VERSION}"
    profiles, in_use = document.get("profiles"), document.get("in_use")
    if not isinstance(profiles, dict) or not (in_use is None or isinstance(in_use, str)):
        return "it is damaged: it names no profiles"
    for number, (name, properties) in enumerate(profiles.items(), 1):
        if _NAME.fullmatch(name) is None:
            return f"it is damaged: profile {number} has no name that a profile can have"
        if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
            return f"it is damaged: profile {name} holds something else than texts"
        if not all(map(is_kept, properties)):
            return f"it is damaged: profile {name} holds what is no property of brokers or security"
    return ""

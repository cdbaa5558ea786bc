"""How a command finds its cluster, and who it is there: the command line, then environment variables, then a profile.

Each property is looked up in these places, and the first one that says it counts:

1. the file of --command-config; the brokers of --bootstrap
2. the profile of --profile
3. variables such as HEADRACE_SASL_JAAS_CONFIG; HEADRACE_BOOTSTRAP_SERVERS
4. the file of HEADRACE_COMMAND_CONFIG
5. the profile of HEADRACE_PROFILE
6. the profile in use, where no profile is named, and no brokers: it logs in at its own alone
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.cli.failures import NOT_FOUND, USAGE, Failure

if TYPE_CHECKING:
    from headrace.client.security import Security

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
PREFIX: Final = "HEADRACE_"
BOOTSTRAP_VARIABLES: Final = ("HEADRACE_BOOTSTRAP_SERVERS", "HEADRACE_BOOTSTRAP")
COMMAND_CONFIG_VARIABLE: Final = "HEADRACE_COMMAND_CONFIG"
PROFILE_VARIABLE: Final = "HEADRACE_PROFILE"


@dataclass(frozen=True, slots=True)
class Place:
    """What one place says: client properties, and how a person finds it."""

    where: str
    properties: Mapping[str, str]


def access(bootstrap: str | None, command_config: str | None, profile: str | None) -> tuple[str, Security]:
    """The brokers to contact first, and how connections are protected, by the options of a command, the environment and
    profiles.

    Raises `Failure`, one line without secrets.
    """
    if bootstrap is not None and not bootstrap.strip():
        raise Failure("--bootstrap names no broker: give HOST:PORT", USAGE)
    from_variables = brokers_of_variables()
    named = os.environ.get(PROFILE_VARIABLE) or None
    places: list[Place] = []
    if command_config:
        places.append(file_of(command_config))
    if profile is not None:
        places.append(profile_of(profile))
        brokers = bootstrap or brokers_in(places[-1:]) or from_variables
    else:
        brokers = bootstrap or from_variables
    places += variables()
    if path := os.environ.get(COMMAND_CONFIG_VARIABLE):
        places.append(file_of(path))
    if named is not None:
        places.append(profile_of(named))
        brokers = brokers or brokers_in(places[-1:])
    elif profile is None and brokers is None and (used := profile_in_use()) is not None:
        places.append(used)
        brokers = brokers_in([used])
    return brokers or DEFAULT_BOOTSTRAP, protection(places)


def other_access(bootstrap: str | None, command_config: str | None, profile: str | None) -> tuple[str | None, Security]:
    """The same for a second cluster, of which the command line alone speaks."""
    places = [file_of(command_config)] if command_config else []
    named = [profile_of(profile)] if profile is not None else []
    return bootstrap or brokers_in(named), protection(places + named)


def brokers_of_variables() -> str | None:
    """Raises `Failure` where two variables do not agree."""
    named = {os.environ[name] for name in BOOTSTRAP_VARIABLES if os.environ.get(name)}
    if len(named) > 1:
        raise Failure(f"{' and '.join(BOOTSTRAP_VARIABLES)} name different brokers: set one of them", USAGE)
    return next(iter(named), None)


def brokers_in(profiles: Iterable[Place]) -> str | None:
    """The brokers that profiles name; files of client properties are about security alone."""
    return next((found for each in profiles if (found := each.properties.get("bootstrap.servers"))), None)


def file_of(path: str) -> Place:
    """A file of client properties."""
    from headrace.config import load_properties_file

    try:
        found = load_properties_file(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", USAGE) from None
    except ValueError as error:
        raise Failure(f"{path}: {error}", USAGE) from None
    return Place(path, found)


def profile_of(name: str) -> Place:
    """A profile that somebody has named."""
    from headrace.client.profiles import NoProfileError, ProfileError, profile_named

    try:
        return Place(f"profile {name}", profile_named(name).properties)
    except NoProfileError as error:
        raise Failure(f"{error}; `headrace profile add` makes one", NOT_FOUND) from None
    except ProfileError as error:
        raise Failure(str(error)) from None


def profile_in_use() -> Place | None:
    """Returns the profile that applies by default; None if there is none."""
    from headrace.client.profiles import NoHomeError, ProfileError, profiles_path, read_profiles

    try:
        if not profiles_path().exists():
            return None
        profiles = read_profiles()
        if profiles.in_use is None:
            return None
        return Place(f"profile {profiles.in_use}", profiles.named(profiles.in_use).properties)
    except NoHomeError:
        return None  # as in a container whose user is a bare number
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}") from None
    except ProfileError as error:
        raise Failure(str(error)) from None


def variables() -> list[Place]:
    """What variables say, each a place of its own. Raises `Failure` for one that is like a property and is none."""
    if not any(name.startswith((f"{PREFIX}SECURITY_", f"{PREFIX}SSL_", f"{PREFIX}SASL_")) for name in os.environ):
        return []
    from headrace.config.client_properties import VariableError, properties_in, variable_of

    try:
        found = properties_in(os.environ)
    except VariableError as error:
        raise Failure(str(error), USAGE) from None
    return [Place(variable_of(name), {name: found[name]}) for name in sorted(found)]


def protection(places: Iterable[Place]) -> Security:
    """What they say of security together, stores opened once. Raises `Failure`."""
    from headrace.client.security import PLAINTEXT, security_of

    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for place in places:
        for name, text in place.properties.items():
            if name not in found:
                found[name], origin[name] = text, place.where
    if not found:
        return PLAINTEXT
    from headrace.config import ConfigError

    try:
        security = security_of(found)
        security.open()
    except ConfigError as error:
        where = origin.get(error.name) or ", ".join(dict.fromkeys(origin.values()))
        raise Failure(f"{where}: {error}", USAGE) from None
    except ValueError as error:
        raise Failure(f"{', '.join(dict.fromkeys(origin.values()))}: {error}", USAGE) from None
    return security

"""Names in the pages' examples and sentences exist: commands and their options, settings, make's targets, variables,
and lines of logs."""

from __future__ import annotations

import ast
import pkgutil
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from headrace.cli import main
from headrace.cli.serve.environment import settings_of
from headrace.config import FAMILIES, GROUP_SETTINGS, SETTINGS, TOPIC_SETTINGS
from headrace.config.client_properties import IS_SECRET
from headrace.metadata import levels
from headrace.security.mechanisms import MODULE_OF

ROOT = Path(__file__).parents[2]
GENERATED = {"cli.md", "configuration.md", "spark-options.md"}
"""Pages that tools.docs writes as a whole, from the tables themselves."""
PAGES = sorted(
    page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if page.name not in GENERATED and page.parent.name != "adr"
)  # fmt: skip
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
SHELL = {"", "sh", "console", "bash", "text"}
DOTTED = re.compile(r"[a-z][a-z0-9]*(?:\.[a-z0-9_-]+)+")
OF_CLIENTS = {
    "bootstrap.servers", "client.rack", "group.instance.id", "isolation.level", "session.timeout.ms",
    "transaction.timeout.ms", "transactional.id", "auto.offset.reset", "enable.idempotence", "compression.type",
}  # fmt: skip
"""Settings of Kafka's consumers and producers, which no table of ours lists."""
OF_OTHERS = ("spark.", "kafka.", "org.apache.kafka.", "os.", "asyncio.", "pyspark.")
"""What names of Spark's, of Kafka's and of Python's own begin with."""
OF_KUBERNETES = {"HEADRACE_SSL_SERVICE_HOST"}


def spans(page: str) -> list[str]:
    """What stands in backticks within sentences."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", page))


# --- commands ---------------------------------------------------------------------------------------------------------


def shell_lines(page: str) -> Iterator[str]:
    """The commands of a page: the lines of its blocks, joined if one goes on, and those within its sentences."""
    for language, text in FENCE.findall(page):
        if language in SHELL:
            for line in text.replace("\\\n", " ").splitlines():
                if language != "console" or line.startswith("$ "):
                    yield line.removeprefix("$ ")
    yield from spans(page)


def calls(line: str) -> Iterator[list[str]]:
    """The arguments of each `headrace` in a command, which others may precede and follow."""
    if "headrace " not in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();|&\n")
    lexer.whitespace_split = True
    found: list[str] | None = None
    for word in [*lexer, ";"]:
        if set(word) <= set("();|&") or word.startswith((">", "<")):
            if found:
                yield found
            found = None
        elif found is not None:
            found.append(word)
        elif word == "headrace":
            found = []
        for inner in re.findall(r"\$\((headrace [^)]*)\)", word):
            yield from calls(inner)


@cache
def command_at(path: tuple[str, ...]) -> click.Command | None:
    """The command of these words."""
    if not path:
        return main
    group = command_at(path[:-1])
    return group.get_command(click.Context(group), path[-1]) if isinstance(group, click.Group) else None


def unknown_in(words: list[str]) -> list[str]:
    """The options, and the name of a command, that `headrace` does not have."""
    path: tuple[str, ...] = ()
    command: click.Command = main
    wrong: list[str] = []
    for word in words:
        flag = word.partition("=")[0]
        if re.fullmatch(r"--[a-z].*|-[a-zA-Z]", flag):
            if flag not in {"-h", "--help", *(name for each in command.params for name in each.opts)}:
                wrong.append(f"{command.name} {flag}")
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z][a-z-]*", word):
            path = (*path, word)
            below = command_at(path)
            if below is None:
                return [*wrong, f"{command.name} {word}"]
            command = below
    return wrong


def test_calls_are_found_and_looked_up() -> None:
    assert list(calls("printf 'a' | headrace produce orders -k : > x; headrace topic list")) == [
        ["produce", "orders", "-k", ":"],
        ["topic", "list"],
    ]
    assert unknown_in(["topic", "create", "orders", "--partitions", "2", "-b", "x"]) == []
    assert unknown_in(["topic", "create", "orders", "--pieces=2"]) == ["create --pieces"]
    assert unknown_in(["topic", "make", "orders"]) == ["topic make"]
    assert list(calls('x --id "$(headrace storage random-uuid)" y')) == [["storage", "random-uuid"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_of_a_page_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    wrong = [each for line in shell_lines(text) for words in calls(line) for each in unknown_in(words)]
    assert not wrong


def test_the_pages_have_commands() -> None:
    found = sum(1 for page in PAGES for line in shell_lines(page.read_text("utf-8")) for _ in calls(line))
    assert found > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_target_of_make_that_a_page_names_exists(page: Path) -> None:
    if page.name == "roadmap.md":
        return  # it names targets that do not exist yet
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for line in shell_lines(page.read_text("utf-8")):
        for target, rest in re.findall(r"(?:^|&& |[;|] ?)make ([a-z][a-z-]*)((?: [A-Z_]+=\S*)*)", line):
            assert target in targets, line
            for variable in re.findall(r" ([A-Z_]+)=", rest):
                assert re.search(rf"\$\([^()]*\b{variable}\b|\({variable}\)|^{variable} \?=", makefile, re.MULTILINE), (
                    line
                )


# --- settings ---------------------------------------------------------------------------------------------------------


@cache
def settings() -> set[str]:
    return {
        *(setting.name for setting in SETTINGS),
        *(name for setting in SETTINGS for name in setting.synonyms),
        *TOPIC_SETTINGS, *GROUP_SETTINGS, *IS_SECRET, *OF_CLIENTS, *levels.NOT_SERVED,
        levels.METADATA_VERSION, levels.KRAFT_VERSION, levels.GROUP_VERSION, levels.TRANSACTION_VERSION,
        levels.ELR_VERSION,
    }  # fmt: skip


@cache
def code() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))


def is_setting(name: str) -> bool:
    """Whether a node, a topic, a group or a client has it, behind a listener and a mechanism or not."""
    mechanisms = "|".join(mechanism.lower() for mechanism in MODULE_OF)
    bare = re.sub(rf"^(listener\.name\.[a-z0-9_]+\.)?(({mechanisms})\.)?", "", name)
    return bare in settings() or name.startswith(tuple(each.prefix for each in FAMILIES))


@cache
def files() -> set[str]:
    """The names of files of the repository."""
    return {path.name for folder in ("", "src/**/", "examples/**/") for path in ROOT.glob(f"{folder}*")}


def is_name_of_the_code(name: str) -> bool:
    """A logger, a metric or a file that the code names as it stands or puts together; or a module or a method."""
    first, last = name.split(".", 1)
    if f'"{name}' in code() or (f'"{first}"' in code() and f'"{last}"' in code()) or f"    def {last}(" in code():
        return True
    prefix, _, last = name.rpartition(".")
    if f'"{prefix}."' in code() and f'"{last}"' in code():
        return True
    try:
        return pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError):
        return False


def is_known(name: str) -> bool:
    is_file = name in files() or name.endswith((".properties", ".py", ".txt", ".crt"))
    return is_setting(name) or name.startswith(OF_OTHERS) or is_file or is_name_of_the_code(name)


def test_settings_are_told_from_what_is_none() -> None:
    assert is_setting("log.dirs") and is_setting("listener.name.clients.scram-sha-256.sasl.jaas.config")
    assert not is_setting("log.dir.names") and not is_known("log.dir.names")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    names = {each.partition("=")[0] for each in spans(page.read_text("utf-8"))}
    assert not sorted(name for name in names if DOTTED.fullmatch(name) and not is_known(name))


@cache
def texts() -> str:
    """Every string of the code; those that stand side by side are one."""
    trees = (ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / "src").rglob("*.py")))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_message_that_a_page_quotes_exists(page: Path) -> None:
    """Sentences in backticks; one of two parts, with a colon between them, may be put together by the code."""
    text = FENCE.sub("", page.read_text("utf-8"))
    quoted = (" ".join(each.split()) for each in re.findall(r"`([a-z][a-z',:;\s-]+)`", text))
    for message in quoted:
        if len(message.split()) > 3 and not message.startswith(("headrace ", "make ", "kafka-")):
            assert all(part in texts() for part in message.split(": ")), message


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_of_an_example_exists(page: Path) -> None:
    for language, text in FENCE.findall(page.read_text("utf-8")):
        if language == "properties":
            lines = re.sub(r"\\\n\s*", "", text).splitlines()
            keys = [line.partition("=")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
            assert not [key for key in keys if not is_setting(key)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_variable_of_ours_that_a_page_names_exists(page: Path) -> None:
    names = set(re.findall(r"\b(HEADRACE_[A-Z_]+[A-Z])\b", page.read_text("utf-8"))) - OF_KUBERNETES
    properties = {f"HEADRACE_{name.upper().replace('.', '_')}" for name in IS_SECRET}
    server = {name for name in settings_of(dict.fromkeys(names, "")) if is_setting(name)}
    properties |= {name for name in names if set(settings_of({name: ""})) & server}
    assert not sorted(name for name in names if name not in properties and f'"{name}"' not in code())

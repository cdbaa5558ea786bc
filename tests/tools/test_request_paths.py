"""How answers travel back: what the check finds, and that the paths of the broker meet its rules."""

from __future__ import annotations

import pytest

from tools.request_paths import EXCEPTIONS, RECORDED, RequestPath, Step, package_of, paths, violations


def path(*back: tuple[str, str]) -> RequestPath:
    """A path whose way back has steps of these kinds and packages, innermost first."""
    steps = [Step(kind, names.split(), names.split(), None) for kind, names in back]
    return RequestPath("a request", Step("read", ["net"], ["Connection._readable"], None), steps)


@pytest.mark.parametrize(
    ("back", "wrong"),
    [
        ([], []),
        ([("completion", "partitions"), ("completion", "requests"), ("completion", "net"), ("completion", "net")], []),
        ([("coroutine", "env quorum"), ("coroutine", "requests net"), ("completion", "net")], []),
        ([("completion", "requests"), ("completion", "partitions"), ("completion", "requests")], ["requests"]),
        ([("completion", "quorum"), ("coroutine", "quorum requests quorum")], ["quorum"]),
        ([("completion", "quorum"), ("coroutine", "requests"), ("callback", "net")], ["3 kinds"]),
    ],
)
def test_what_is_wrong_with_a_way_back(back: list[tuple[str, str]], wrong: list[str]) -> None:
    found = list(path(*back).violations())
    assert len(found) == len(wrong)
    assert all(each in text for each, text in zip(wrong, found, strict=True))


def test_an_exception_has_to_be_needed() -> None:
    turns = path(("completion", "net"), ("completion", "requests"), ("completion", "net"))
    assert list(violations([turns], {"a request": "a reason"})) == []
    assert list(violations([turns], {})) == ["a request: the way back enters net twice"]
    (found,) = violations([path()], {"a request": "a reason"})
    assert found.endswith("is listed still")


def test_packages_of_files() -> None:
    assert package_of("broker/net/connection.py") == "net"
    assert package_of("broker/broker.py") == "broker"
    assert package_of("raft/machine.py") == "raft"


@pytest.mark.slow
def test_the_paths_of_the_broker() -> None:
    found = paths()
    assert list(violations(found, EXCEPTIONS)) == []
    by_name = {each.name: each for each in found}
    assert by_name.keys() == RECORDED.keys()
    produce = by_name["produce"]
    assert (produce.entered, produce.kinds) == (["partitions", "requests", "net"], ["completion"])
    assert "requests/produce_run.py" in {each.removeprefix("broker/") for each in produce.down.files}
    assert not by_name["fetch"].back, "an answer that is known at once has no way back"
    assert by_name["create topic"].entered == ["quorum", "requests", "net"]

"""What all tests share: named skips where a machine lacks Java, none where CI=true, options of long tests."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Generator

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.nodeid import NodeId
from hypothesis import settings
from peers import class_archive, kafka, shared
from peers.either import bootstrap, either_headrace, either_kafka, topic
from peers.headrace import HeadracePeer

__all__ = ["bootstrap", "either_headrace", "either_kafka", "topic"]

# how long an example takes says how busy the machine is
settings.register_profile("headrace", deadline=None)
# `make check` tries a third of the examples, where a test does not say how many it needs
settings.register_profile("check", settings.get_profile("headrace"), max_examples=33)
settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-frames", type=int, default=20_000, help="mutated frames that the fuzz test sends")
    parser.addoption("--fuzz-logins", type=int, default=20_000, help="mutations of what is read before a login")
    parser.addoption("--against", choices=["headrace", "kafka"], default="headrace", help="whom tests/compat asks")
    parser.addoption("--kills", type=int, default=20, help="how often the crash test kills the broker")
    parser.addoption("--soak", action="store_true", help="run the tests that take many minutes too")
    parser.addoption("--cluster-kills", type=int, default=10, help="how many rounds of kills a cluster goes through")
    parser.addoption("--rewrite", action="store_true", help="write the traces of transcripts as they are now")


SHARED_BROKERS = {"kafka": "tests/compat", "ours": "tests/compat", "bootstrap": "tests"}
"""Fixtures of a whole run, and the folder whose conftest has them."""


class Groups:
    """With `--dist loadgroup` a file is tested by one process, and so are all files that share a broker: it is started
    once a run."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Marks each test with its group, and names it after that where processes share the work.

        Files that share a broker come first, as one process has all of them, and then files with slow tests, also where
        those are left out, so that no process has a long one left when the others are done.
        """
        broker_of = {item.path: folder for item in items if (folder := _shared(item))}
        groups = {item: broker_of.get(item.path) or item.nodeid.partition("::")[0] for item in items}
        for item, group in groups.items():
            item.add_marker(pytest.mark.xdist_group(group))
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        yield
        items.sort(key=lambda item: (item.path not in broker_of, item.path not in slow))
        if config.getoption("loadgroup", False):
            for item, group in groups.items():
                _name_after(item, group)


def _shared(item: pytest.Item) -> str:
    """Returns the folder whose broker a test shares, or nothing."""
    found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    of = (folder for name, folder in SHARED_BROKERS.items() if name in found and found[name][-1].baseid == folder)
    return next(of, "")


def _name_after(item: pytest.Item, group: str) -> None:
    """Ends the id of a test with its group, by which pytest-xdist shares the work out. It does so itself, in an
    attribute that pytest 9.1 and later do not look at: it would share out single tests, without a word."""
    ending = f"@{group}"
    if not item.nodeid.endswith(ending):
        item._id = NodeId.parse(item.nodeid + ending)
    assert item.nodeid.endswith(ending), "tests are shared out by files"


def pytest_configure(config: pytest.Config) -> None:
    """In the background of a shell SIGINT is ignored, and SIGHUP under nohup: so they would be by the processes that
    tests signal. As the package has a plugin, pytest would rewrite the assertions of all its modules, to explain those
    that fail: it costs a third of the time of collection, and a twelfth of what the pure packages then take."""
    hook = config.pluginmanager.rewrite_hook
    if isinstance(hook, AssertionRewritingHook):
        hook._must_rewrite.discard("headrace")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.pluginmanager.register(Groups())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests marked `soak` out unless they are asked for. Those marked `jvm` are skipped by name if Java or the
    jars cannot be had; else whatever Spark a test starts is to start quickly, in a process of its own too.
    """
    if not config.getoption("--soak"):
        soak = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item not in soak]
    if not any(item.get_closest_marker("jvm") for item in items):
        return
    why = kafka.missing()
    if why:
        for item in items:
            if item.get_closest_marker("jvm"):
                item.add_marker(pytest.mark.skip(reason=why))
        return
    os.environ.setdefault(class_archive.SUBMIT, class_archive.submit_arguments())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A shared broker that died since the last test is started once more. A death of Apache Kafka's is named in the
    summary; one of ours fails the test that finds it."""
    kafka.allow(True)
    for death in shared.start_again():
        if isinstance(death.peer, HeadracePeer):
            pytest.fail(death.text, pytrace=False)
        warnings.warn(death.text)
    kafka.allow(item.get_closest_marker("jvm") is not None or item.config.getoption("--against") == "kafka")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails while a shared broker is dead says so: that is why."""
    report = yield
    if report.failed:
        report.sections.extend(("a shared broker died", death.text) for death in shared.deaths())
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip is a hole that nobody sees: with CI=true it fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter is not None else 0
    if reporter is not None and skipped and os.environ.get("CI") == "true":
        reporter.write_line(f"CI=true: {skipped} skipped, and a skip fails", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

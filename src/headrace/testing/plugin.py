"""The pytest plugin: `headrace_broker`, a fresh broker for each test, `headrace_shared_broker`, one for the run, and
`headrace_cluster`, a fresh cluster of three for each test.

Override `headrace_settings` to give a module's or a package's brokers other settings:

    @pytest.fixture(scope="session")
    def headrace_settings():
        return {"auto.create.topics.enable": False}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import SettingValue, TestBroker, TestCluster


@pytest.fixture(scope="session")
def headrace_settings() -> Mapping[str, SettingValue]:
    """Settings, as in a server.properties, of the brokers that the fixtures start."""
    return {}


@pytest.fixture
def headrace_broker(headrace_settings: Mapping[str, SettingValue]) -> Iterator[TestBroker]:
    """A broker with nothing in it; `headrace_broker.bootstrap` is what clients connect to."""
    # Imported here: a plugin is loaded in every run of pytest, whether or not anything uses it.
    from headrace.testing import broker

    with broker(headrace_settings) as running:
        yield running


@pytest.fixture(scope="session")
def headrace_shared_broker(headrace_settings: Mapping[str, SettingValue]) -> Iterator[TestBroker]:
    """One broker for the whole run; tests that share it take topics of their own."""
    from headrace.testing import broker

    with broker(headrace_settings) as running:
        yield running


@pytest.fixture
def headrace_cluster(headrace_settings: Mapping[str, SettingValue]) -> Iterator[TestCluster]:
    """Three brokers with nothing in them; `headrace_cluster.bootstrap` is what clients connect to."""
    from headrace.testing import cluster

    with cluster(settings=headrace_settings) as running:
        yield running

"""No API and no version of one is without a row in the matrix of rights: whoever adds one adds what asks for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.broker.controller_node import SERVED_ALONE
from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.wire.apis import APIS, ApiKey

from .rights import NOWHERE, Case
from .rights_asked import cases
from .rights_of_nodes import cases_of_controllers

OURS_ALONE = frozenset({ApiKey.HEADRACE_GROUP_END_TXN})
"""No Kafka answers it; tests/broker/requests/apis says who may."""


def rows(asked: Iterable[Case]) -> set[tuple[int, int]]:
    """API and version."""
    return {(case.key, version) for case in asked for version in case.versions()}


def served(role: str) -> set[tuple[int, int]]:
    keys = {*SERVED, *CLUSTER} - OURS_ALONE
    return {
        (int(key), version)
        for key in keys
        if role in APIS[key].listeners
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    }


def test_every_api_of_a_brokers_listener_has_rows() -> None:
    assert rows(cases()) == served("broker")


def test_every_api_of_a_controllers_listener_has_rows() -> None:
    assert rows(cases_of_controllers()) == served("controller")
    assert {key for key, _ in served("controller")} == {int(key) for key in SERVED_ALONE}


@pytest.mark.parametrize("asked", [cases, cases_of_controllers], ids=["broker", "controller"])
def test_every_row_can_be_asked(asked: type[Iterable[Case]]) -> None:
    for case in asked():
        for version in case.versions():
            case.make(NOWHERE).encode(version)

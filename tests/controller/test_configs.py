"""Alterations of settings: what is refused by its form."""

from __future__ import annotations

from headrace.controller.configs import Alteration, AlterOperation, check_form
from headrace.controller.context import MAX_RECORDS_PER_REQUEST
from headrace.metadata.image import ResourceType
from headrace.wire.errors import ErrorCode


def test_more_settings_than_one_decision_writes_are_refused_as_they_are() -> None:
    """Their names and values are not looked at: the controller would do that in one turn."""
    most = [(f"n{number}", AlterOperation.SET, "1") for number in range(MAX_RECORDS_PER_REQUEST)]
    assert check_form(Alteration(ResourceType.BROKER, "1", most)) is None
    refused = check_form(Alteration(ResourceType.BROKER, "1", [*most, most[0]]))
    assert refused is not None and refused.code is ErrorCode.POLICY_VIOLATION

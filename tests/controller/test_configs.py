"""Alterations of settings: what is refused by its form."""

from __future__ import annotations

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller.configs import SETTINGS_MAX, Alteration, AlterOperation, check_form, decide_alter_configs
from headrace.controller.context import ControllerContext
from headrace.metadata.image import ClusterImage, ConfigsImage, ResourceType
from headrace.wire.errors import ErrorCode


def test_more_settings_than_one_decision_writes_are_refused_as_they_are() -> None:
    """Their names and values are not looked at: the controller would do that in one turn."""
    most = [(f"n{number}", AlterOperation.SET, "1") for number in range(SETTINGS_MAX)]
    assert check_form(Alteration(ResourceType.BROKER, "1", most)) is None
    refused = check_form(Alteration(ResourceType.BROKER, "1", [*most, most[0]]))
    assert refused is not None and refused.code is ErrorCode.POLICY_VIOLATION


def test_a_resource_has_no_more_settings_than_one_turn_checks() -> None:
    """A broker may have settings that nobody knows, of several requests together."""
    context = ControllerContext(1, 1, 1, SettingsRules(BrokerConfig.load({})), lambda: bytes(16))
    few = {f"n{number}": "1" for number in range(SETTINGS_MAX - 1)}
    image = ClusterImage(configs=ConfigsImage({(ResourceType.BROKER, "1"): few}))
    alone = [Alteration(ResourceType.BROKER, "1", [(name, AlterOperation.SET, "1")]) for name in ("one", "two")]
    both = Alteration(ResourceType.BROKER, "1", [*alone[0].changes, *alone[1].changes])
    codes = [decide_alter_configs(image, [each], context).reply[0].code for each in (*alone, both)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]

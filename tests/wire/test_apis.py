"""The API table and the error codes, against the rules by which they are made."""

from __future__ import annotations

from headrace.wire.apis import APIS, Api, ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages import MODULES, request_class
from tools.codegen.schema import OWN_KEYS_FROM


def test_the_table() -> None:
    assert APIS[0] == Api(0, "produce", 3, 13, 9, ("broker",))
    assert APIS[ApiKey.FETCH].listeners == ("broker", "controller")
    assert APIS[47].flexible_from is None
    assert len([key for key in ApiKey if key < OWN_KEYS_FROM]) == 95
    assert [key for key in ApiKey if key >= OWN_KEYS_FROM] == [ApiKey.HEADRACE_GROUP_END_TXN]
    assert set(ApiKey) - APIS.keys() == {4, 5, 6, 7}


def test_an_unstable_version_is_not_in_the_table() -> None:
    assert APIS[ApiKey.INIT_PRODUCER_ID].max_version == 5
    assert request_class(22).MAX_VERSION == 6


def test_every_codec_has_its_row_and_versions() -> None:
    for key, module in MODULES.items():
        cls, api = request_class(key), APIS[key]
        assert api.module == module
        assert api.min_version == cls.MIN_VERSION
        assert api.max_version in (cls.MAX_VERSION, cls.MAX_VERSION - 1)


def test_errors() -> None:
    assert int(ErrorCode.NONE) == 0
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.NOT_COORDINATOR.retriable
    assert not ErrorCode.TOPIC_ALREADY_EXISTS.retriable
    assert len(ErrorCode) == 138
    for code in ErrorCode:
        assert message_of(code).endswith(".")
        assert not message_of(code).startswith("Unknown error code")
    assert "500" in message_of(500)

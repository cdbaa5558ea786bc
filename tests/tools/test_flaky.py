"""Which tests `make flaky` takes for a change."""

from __future__ import annotations

import pytest

from tools.flaky import test_files as files_for

EVERY = [
    "tests/log/test_log.py",
    "tests/log/test_segment.py",
    "tests/broker/net/test_connection.py",
    "tests/broker/net/test_output.py",
    "tests/broker/test_broker.py",
    "tests/tools/test_tidy.py",
]


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (["tests/log/test_log.py"], ["tests/log/test_log.py"]),
        (["src/headrace/log/segment.py"], ["tests/log/test_log.py", "tests/log/test_segment.py"]),
        (["tests/broker/net/pages.py"], ["tests/broker/net/test_connection.py", "tests/broker/net/test_output.py"]),
        (["src/headrace/broker/settings/rules.py"], ["tests/broker/test_broker.py"]),
        (["src/headrace/wire/batch.py", "docs/security.md", "src/headrace/__init__.py"], []),
        (["tests/tools/test_tidy.py", "tests/log/test_log.py"], ["tests/log/test_log.py", "tests/tools/test_tidy.py"]),
    ],
)  # fmt: skip
def test_the_tests_of_what_changed(changed: list[str], wanted: list[str]) -> None:
    assert files_for(changed, EVERY) == wanted

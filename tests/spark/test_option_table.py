"""The table of options says what the options do."""

from __future__ import annotations

import pytest

from headrace.spark.option_table import BATCH_KEYS, OPTIONS, SINK_KEYS, SOURCE_KEYS, Option, Use
from headrace.spark.options import sink_options, source_options

SINK = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SOURCE = {**SINK, "subscribe": "t"}


def test_each_is_there_once_and_has_a_use() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert {*SOURCE_KEYS, *SINK_KEYS} == {option.name for option in OPTIONS}
    assert set(BATCH_KEYS) < set(SOURCE_KEYS)
    for option in OPTIONS:
        assert option.default is None or not option.otherwise, option.name
        assert option.about.endswith(".") and "\n" not in option.about, option.name


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.default is not None], ids=lambda o: o.name)
def test_a_default_given_is_as_none_given(option: Option) -> None:
    assert option.default is not None
    # a mode is for values that can be malformed
    more = {"valueFormat": "string"} if option.name == "mode" else {}
    chosen = {**more, option.name: option.default}
    for use, streaming in ((Use.BATCH, False), (Use.STREAM, True)):
        if use & option.use:
            given = source_options({**SOURCE, **chosen}, streaming=streaming)
            assert given == source_options({**SOURCE, **more}, streaming=streaming)
    if Use.SINK & option.use:
        assert sink_options({**SINK, **chosen}) == sink_options(SINK)

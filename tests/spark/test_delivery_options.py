"""The sink's options about delivery, and what contradicts them."""

from __future__ import annotations

import pytest

from headrace.spark.delivery_options import ExactlyOnce
from headrace.spark.options import sink_options

BROKERS = {"kafka.bootstrap.servers": "h:1"}
ONCE = {**BROKERS, "delivery": "exactly-once", "topic": "t"}


def test_at_least_once_is_what_holds_where_nothing_is_said() -> None:
    assert sink_options(BROKERS).exactly_once is None
    assert sink_options({**BROKERS, "delivery": "At-Least-Once", "markerTopic": "m"}).exactly_once is None


def test_what_is_said() -> None:
    assert sink_options(ONCE).exactly_once == ExactlyOnce(256 << 20, "t", False, "")
    more = {"exactlyoncemaxbytes": "1000", "markertopic": "m", "markermissing": "Trust", "checkpointlocation": "/c"}
    assert sink_options(ONCE | more).exactly_once == ExactlyOnce(1000, "m", True, "/c")
    named_by_rows = {**BROKERS, "delivery": "exactly-once", "markerTopic": "m"}
    assert sink_options(named_by_rows).exactly_once == ExactlyOnce(marker_topic="m")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {**BROKERS, "delivery": "once"},
            "'delivery' must be at-least-once, exactly-once or exactly-once-per-task, not 'once'",
        ),
        (ONCE | {"kafka.acks": "1"}, "needs the option 'kafka.acks' to be all, not '1'"),
        (ONCE | {"kafka.enable.idempotence": "false"}, "needs 'kafka.enable.idempotence'"),
        (ONCE | {"kafka.transactional.id": "x"}, "leave 'kafka.transactional.id' out"),
        ({**BROKERS, "delivery": "exactly-once"}, "give the option 'markerTopic'"),
        (ONCE | {"exactlyOnceMaxBytes": "0"}, "'exactlyOnceMaxBytes' must be a positive whole number, not '0'"),
        (ONCE | {"exactlyOnceMaxBytes": "1g"}, "not '1g'"),
        (ONCE | {"markerMissing": "ignore"}, "'markerMissing' must be fail or trust, not 'ignore'"),
    ],
)
def test_complaints(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as said:
        sink_options(options)
    assert str(said.value).endswith(".") and "\n" not in str(said.value)

"""Options: named and behaving as in Spark's Kafka connector; every complaint one sentence."""

from __future__ import annotations

import pytest

from headrace.spark.options import sink_options, source_options
from headrace.wire.records import Compression

BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_defaults_of_a_batch_and_of_a_stream() -> None:
    batch = source_options({**BROKERS, "subscribe": "a, b,a"}, streaming=False)
    assert batch.subscription.topics == ("a", "b")
    assert (batch.starting, batch.ending, batch.fail_on_data_loss) == ("earliest", "latest", True)
    stream = source_options({**BROKERS, "subscribePattern": "fl.*"}, streaming=True)
    assert (stream.starting, stream.max_offsets_per_trigger, stream.include_headers) == ("latest", None, False)


def test_names_are_the_same_in_any_case() -> None:
    options = source_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "h:1",
            "ASSIGN": '{"t": [1, 0, 1]}',
            "startingoffsets": '{"t": {"0": 5, "1": -1}}',
            "MaxOffsetsPerTrigger": "100",
            "failondataloss": "False",
            "includeHeaders": "TRUE",
            "kafka.isolation.level": "read_committed",
        },
        streaming=True,
    )
    assert options.subscription.assigned == (("t", 0), ("t", 1))
    assert options.starting == {"t": {0: 5, 1: -1}}
    assert (options.max_offsets_per_trigger, options.fail_on_data_loss, options.include_headers) == (100, False, True)
    assert options.isolation == "read_committed"


def test_what_spark_adds_is_no_option_of_ours() -> None:
    sink = sink_options({**BROKERS, "topic": "t", "checkpointlocation": "/x", "path": "/y"})
    assert (sink.topic, sink.compression) == ("t", Compression.NONE)
    assert sink_options({**BROKERS, "kafka.compression.type": "zstd"}).compression is Compression.ZSTD


@pytest.mark.parametrize(
    ("options", "streaming", "sentence"),
    [
        ({"subscribe": "t"}, False, "'kafka.bootstrap.servers' is missing"),
        ({"kafka.bootstrap.servers": "h:x", "subscribe": "t"}, False, "'h:x' is not HOST:PORT"),
        (BROKERS, False, "Exactly one of .* got 0"),
        ({**BROKERS, "subscribe": "t", "assign": "{}"}, False, "Exactly one of .* got 2"),
        ({**BROKERS, "subscribe": " , "}, False, "names no topic"),
        ({**BROKERS, "subscribePattern": "("}, False, "no regular expression"),
        ({**BROKERS, "assign": '{"t": 1}'}, False, "'assign' looks like"),
        ({**BROKERS, "assign": "t"}, False, "no valid JSON"),
        ({**BROKERS, "subscribe": "t", "startingOffset": "earliest"}, False, "no option 'startingOffset'"),
        ({**BROKERS, "subscribe": "t", "kafka.security.protocol": "SSL"}, False, "protocol' is not supported"),
        ({**BROKERS, "subscribe": "t", "startingOffsets": "latest"}, False, "is 'earliest' or offsets"),
        ({**BROKERS, "subscribe": "t", "startingOffsets": '{"t": {"0": -1}}'}, False, "cannot start at the latest"),
        ({**BROKERS, "subscribe": "t", "startingOffsets": '{"t": {"0": "x"}}'}, True, "'startingOffsets' looks like"),
        ({**BROKERS, "subscribe": "t", "endingOffsets": "latest"}, True, "for batch reads"),
        ({**BROKERS, "subscribe": "t", "endingOffsets": "earliest"}, False, "'endingOffsets' is 'latest' or"),
        ({**BROKERS, "subscribe": "t", "endingOffsets": '{"t": {"0": -2}}'}, False, "cannot end at the earliest"),
        ({**BROKERS, "subscribe": "t", "maxOffsetsPerTrigger": "0"}, True, "positive whole number, not '0'"),
        ({**BROKERS, "subscribe": "t", "failOnDataLoss": "maybe"}, True, "true or false, not 'maybe'"),
        ({**BROKERS, "subscribe": "t", "kafka.isolation.level": "none"}, True, "read_uncommitted or read_committed"),
    ],
)
def test_complaints_are_one_sentence(options: dict[str, str], streaming: bool, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        source_options(options, streaming=streaming)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({**BROKERS, "topics": "t"}, "no option 'topics'"),
        ({**BROKERS, "kafka.compression.type": "brotli"}, "not 'brotli'"),
        ({"topic": "t"}, "is missing"),
    ],
)
def test_complaints_about_a_sink(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sink_options(options)

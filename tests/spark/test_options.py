"""Options: named and behaving as in Spark's Kafka connector; every complaint one sentence."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.spark.option_table import SINK_KEYS, SOURCE_KEYS
from headrace.spark.options import Times, read_options, sink_options, source_options, warn_of_ignored
from headrace.spark.row_types import RowOptions
from headrace.wire.records import Compression

from .protobuf_files import files

AVRO = """{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""
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


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("10s", 10), ("250", 0.25), ("250ms", 0.25), ("1h", 3600), ("2 min", 120)]
)
def test_times_are_written_as_sparks(text: str, seconds: float) -> None:
    chosen = source_options({**BROKERS, "subscribe": "t", "maxTriggerDelay": text}, streaming=True)
    assert chosen.max_trigger_delay_s == seconds


def test_a_time_goes_before_an_offset() -> None:
    given = {**BROKERS, "subscribe": "t", "startingOffsets": "earliest"}
    given["startingOffsetsByTimestamp"] = '{"t": {"0": 5}}'
    assert source_options(given, streaming=True).starting == Times(by_partition={"t": {0: 5}})
    given["startingTimestamp"] = "7"
    assert source_options(given, streaming=True).starting == Times(7)


def test_what_spark_adds_is_no_option_of_ours() -> None:
    sink = sink_options({**BROKERS, "topic": "t", "checkpointlocation": "/x", "path": "/y"})
    assert (sink.topic, sink.compression) == ("t", Compression.NONE)
    assert sink_options({**BROKERS, "kafka.compression.type": "zstd"}).compression is Compression.ZSTD


@pytest.mark.parametrize(
    ("options", "streaming", "sentence"),
    [
        ({"subscribe": "t"}, False, "'kafka.bootstrap.servers' is missing"),
        ({"kafka.bootstrap.servers": "h:x", "subscribe": "t"}, False, "'h:x' is not HOST:PORT"),
        ({"kafka.bootstrap.servers": "a:1,h", "subscribe": "t"}, True, "wrong: 'h' has no port; .* such as h:9092"),
        ({"kafka.bootstrap.servers": "[::1]", "subscribe": "t"}, True, r"such as \[::1\]:9092"),
        (BROKERS, False, "Give exactly one of .* not 0"),
        ({**BROKERS, "subscribe": "t", "assign": "{}"}, False, "Give exactly one of .* not 2"),
        ({**BROKERS, "subscribe": " , "}, False, "names no topic"),
        ({**BROKERS, "subscribePattern": "("}, False, "not a regular expression"),
        ({**BROKERS, "assign": '{"t": 1}'}, False, "'assign' must look like"),
        ({**BROKERS, "assign": "t"}, False, "not valid JSON"),
        ({**BROKERS, "subscribe": "t", "startingOffset": "latest"}, False, "no option 'startingOffset'; did you mean"),
        ({**BROKERS, "subscribe": "t", "wholly": "x"}, False, "no option 'wholly'; it has subscribe, .*groupIdPrefix"),
        ({**BROKERS, "subscribe": "t", "kafka.sasl.login.class.name": "k"}, False, "the client setting '.*name'"),
        ({**BROKERS, "subscribe": "t", "kafka.group": "g"}, True, "did you mean 'kafka.group.id'"),
        ({**BROKERS, "subscribe": "t", "startingOffsets": "latest"}, False, "must be 'earliest' or offsets"),
        ({**BROKERS, "subscribe": "t", "startingOffsets": '{"t": {"0": -1}}'}, False, "cannot start at the latest"),
        ({**BROKERS, "subscribe": "t", "startingOffsets": '{"t": {"0": "x"}}'}, True, "must look like"),
        ({**BROKERS, "subscribe": "t", "endingOffsets": "latest"}, True, "for batch reads"),
        ({**BROKERS, "subscribe": "t", "endingOffsets": "earliest"}, False, "'endingOffsets' must be 'latest' or"),
        ({**BROKERS, "subscribe": "t", "endingOffsets": '{"t": {"0": -2}}'}, False, "cannot end at the earliest"),
        ({**BROKERS, "subscribe": "t", "maxOffsetsPerTrigger": "0"}, True, "positive whole number, not '0'"),
        ({**BROKERS, "subscribe": "t", "minPartitions": "-1"}, True, "'minPartitions' must be a positive whole number"),
        ({**BROKERS, "subscribe": "t", "startingTimestamp": "noon"}, True, "Timestamp' must be a whole number"),
        ({**BROKERS, "subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, True, "must look like"),
        ({**BROKERS, "subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, True, "be error or latest, not 'x'"),
        ({**BROKERS, "subscribe": "t", "endingOffsetsByTimestamp": "{}"}, True, "for batch reads"),
        ({**BROKERS, "subscribe": "t", "maxTriggerDelay": "soon"}, True, "must be a time such as 15m"),
        (
            {**BROKERS, "subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            True,
            r"'minOffsetsPerTrigger' \(9\) is larger than",
        ),
        ({**BROKERS, "subscribe": "t", "failOnDataLoss": "maybe"}, True, "true or false, not 'maybe'"),
        ({**BROKERS, "subscribe": "t", "kafka.isolation.level": "none"}, True, "read_uncommitted or read_committed"),
    ],
)
def test_complaints_are_one_sentence(options: dict[str, str], streaming: bool, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        source_options(options, streaming=streaming)
    assert "\n" not in str(caught.value) and str(caught.value)[-1] in ".?"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({**BROKERS, "topics": "t"}, "no option 'topics'; did you mean 'topic'"),
        ({**BROKERS, "kafka.partitioner.class": "C"}, "sink does not support the client setting '.*class'"),
        ({**BROKERS, "kafka.compression.type": "brotli"}, "not 'brotli'"),
        ({"topic": "t"}, "is missing"),
    ],
)
def test_complaints_about_a_sink(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sink_options(options)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("startingoffset", "no option 'startingOffset'; did you mean 'startingOffsets'?"),
        ("subscribepatern", "no option 'subscribePatern'; did you mean 'subscribePattern'?"),
        ("maxoffsetspertriger", "no option 'maxOffsetsPerTriger'; did you mean 'maxOffsetsPerTrigger'?"),
        ("faildataloss", "no option 'failDataLoss'; did you mean 'failOnDataLoss'?"),
        ("kafka.fetch.minbytes", "setting 'kafka.fetch.minbytes'; did you mean 'kafka.fetch.min.bytes'?"),
        ("StartingOffset", "no option 'StartingOffset'; did you mean 'startingOffsets'?"),
    ],
)
def test_a_name_that_spark_handed_over_in_small_letters_is_said_as_it_was_given(given: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        read_options({**BROKERS, "subscribe": "t", given: "x"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "earliest"}, "option 'endingOffsets' must be 'latest' or offsets as JSON, not 'earliest'."),
        ({"endingOffsets": "latest", "failOnDataLoss": "x"}, "'failOnDataLoss' must be true or false, not 'x'."),
        ({"endingTimestamp": "1", "minPartitions": "0"}, "'minPartitions' must be a positive whole number, not '0'."),
        ({"endingOffsets": "latest", "valueFormat": "xml"}, "'valueFormat' must be one of raw, .*, not 'xml'."),
        ({"startingOffsets": "latest", "maxTriggerDelay": "soon"}, "'maxTriggerDelay' must be a time"),
        ({"startingOffsets": "late", "endingOffsets": "latest"}, "'startingOffsets' must be 'earliest' or 'latest'"),
        (
            {"startingOffsets": "latest", "endingOffsets": "latest"},
            r"neither a batch read \(the option 'startingOffsets' .*, not 'latest'\) nor a stream \(the option "
            r"'endingOffsets' is for batch reads; a stream has no end\).",
        ),
    ],
)
def test_a_wrong_value_is_named_before_spark_says_for_what_the_options_are(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read_options({**BROKERS, "subscribe": "t", **options})
    assert "\n" not in str(caught.value)


def test_what_fits_one_kind_of_read_is_taken() -> None:
    given = {**BROKERS, "subscribe": "t"}
    assert read_options({**given, "endingOffsets": "latest"}).starting == "earliest"
    assert read_options({**given, "startingOffsets": "latest"}).starting == "latest"
    assert read_options({**given, "startingOffsets": '{"t": {"0": -1}}'}).starting == {"t": {0: -1}}


PORTED = {
    "kafkaConsumer.pollTimeoutMs": "5000",
    "fetchOffset.numRetries": "3",
    "fetchoffset.retryintervalms": "10",
    "kafka.max.poll.records": "1000",
    "kafka.Linger.ms": "5",
}


def test_options_that_mean_nothing_here_are_named_in_one_warning_and_ignored() -> None:
    given = {**BROKERS, "subscribe": "t", **PORTED, "kafka.acks": "all"}
    assert source_options(given, streaming=True) == source_options({**BROKERS, "subscribe": "t"}, streaming=True)
    sentence = (
        "The headrace source has no use for these options and ignores them: fetchOffset.numRetries, "
        "fetchOffset.retryIntervalMs, kafka.acks, kafka.linger.ms, kafka.max.poll.records, kafkaConsumer.pollTimeoutMs."
    )
    with pytest.warns(RuntimeWarning) as said:
        warn_of_ignored(given, SOURCE_KEYS, "source")
    assert [str(each.message) for each in said] == [sentence]
    write = {**BROKERS, "topic": "t", "kafka.acks": "all", "kafka.group.id": "g", **PORTED}
    assert sink_options(write) == sink_options({**BROKERS, "topic": "t"})
    with pytest.warns(RuntimeWarning, match=r"The headrace sink .* kafka\.group\.id, kafka\.linger\.ms"):
        warn_of_ignored(write, SINK_KEYS, "sink")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_ignored({**BROKERS, "subscribe": "t", "path": "x"}, SOURCE_KEYS, "source")


@pytest.mark.parametrize(
    "name", ["kafka.sasl.login.class", "kafka.ssl.engine.factory.class", "kafka.auto.offset.reset"]
)
def test_what_says_what_is_read_or_how_safely_is_not_ignored(name: str) -> None:
    with pytest.raises(ValueError, match=f"does not support the client setting '{name}'"):
        read_options({**BROKERS, "subscribe": "t", name: "x"})


def test_how_a_row_is_made() -> None:
    given = {**BROKERS, "subscribe": "t"}
    assert source_options(given, streaming=True).row == RowOptions()
    fixed = RowOptions().columns
    typed = {**given, "valueFormat": "JSON", "valueSchema": "id INT", "eventTime": "timestamp"}
    typed["includeHeaders"] = "true"
    row = source_options(typed, streaming=True).row
    assert row.columns == (*fixed, "headers", "_corrupt_record", "event_time")
    assert (row.value.name, row.fail_fast, row.event_time) == ("json", False, "timestamp")
    row = source_options({**typed, "mode": "failFast", "columns": "offset, value"}, streaming=True).row
    assert (row.columns, row.fail_fast) == (("offset", "value"), True)
    batch = source_options({**given, "valueFormat": "json", "eventTime": "left_at"}, streaming=False).row
    assert batch.value.to_be_inferred and batch.event_time == "left_at"


@pytest.mark.parametrize(
    ("options", "streaming", "sentence"),
    [
        ({"valueFormat": "xml"}, True, "'valueFormat' must be one of raw, string, json, avro, protobuf, not 'xml'"),
        ({"valueFormat": "json"}, True, "A stream of JSON values needs the option 'valueSchema'"),
        ({"valueSchema": "id INT"}, True, "'valueSchema' is for the valueFormat json, avro or protobuf, not raw"),
        ({"valueFormat": "json", "valueSchema": "id"}, True, "look like 'id BIGINT, name STRING', but the type of"),
        ({"valueFormat": "json", "valueSchema": "{"}, False, "but it is not valid JSON"),
        ({"valueHeader": "registry"}, True, "'valueHeader' is for the valueFormat json, avro or protobuf, not raw"),
        ({"valueFormat": "json", "valueHeader": "yes"}, True, "'valueHeader' must be none or registry, not 'yes'"),
        ({"valueFormat": "avro"}, False, "Avro values need the option 'valueSchema', the JSON of their schema"),
        (
            {"valueFormat": "avro", "valueSchema": "id INT"},
            False,
            "the JSON of an Avro record, but it is not valid JSON",
        ),
        ({"valueFormat": "avro", "valueSchema": AVRO, "eventTime": "on"}, True, "this read has id, at, timestamp"),
        ({"valueFormat": "avro", "valueDescriptor": "x"}, True, "is for the valueFormat protobuf, not avro"),
        ({"valueFormat": "protobuf", "valueSchema": "p.Row"}, False, "Protobuf values need the options 'valueSchema'"),
        (
            {"valueFormat": "protobuf", "valueSchema": "p.Row", "valueDescriptor": "/none/x.desc"},
            True,
            "'valueDescriptor' names '/none/x.desc', and headrace cannot read it: No such file or directory",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": "p.Row", "valueDescriptor": __file__},
            True,
            "headrace cannot decode the message 'p.Row' of .*: the file is not a FileDescriptorSet",
        ),
        ({"mode": "PERMISSIVE"}, False, "'mode' is for a valueFormat other than raw"),
        ({"valueFormat": "string", "mode": "DROPMALFORMED"}, False, "PERMISSIVE or FAILFAST, not 'DROPMALFORMED'"),
        ({"columns": "key,valeu"}, False, "'columns' names 'valeu'; this read has key, value, topic"),
        ({"columns": "key,headers"}, False, "'columns' names 'headers'"),
        ({"columns": "_corrupt_record"}, False, "'columns' names '_corrupt_record'"),
        ({"columns": "key,offset,key"}, False, "'columns' names 'key' twice"),
        ({"columns": ""}, False, "'columns' names ''; this read has"),
        ({"eventTime": "left_at"}, True, "'eventTime' names 'left_at'; this read has timestamp"),
        (
            {"valueFormat": "json", "valueSchema": "id STRING", "eventTime": "id"},
            True,
            "'eventTime' names 'id', which is string; it must be timestamp, or bigint in milliseconds",
        ),
    ],
)
def test_complaints_about_a_row(options: dict[str, str], streaming: bool, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        source_options({**BROKERS, "subscribe": "t", **options}, streaming=streaming)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_what_workers_need_goes_with_the_options(tmp_path: Path) -> None:
    file = tmp_path / "messages.desc"
    file.write_bytes(files().SerializeToString())
    given = {
        **BROKERS,
        "subscribe": "t",
        "valueFormat": "protobuf",
        "valueSchema": "Inner",
        "valueDescriptor": str(file),
    }
    row = source_options(given, streaming=True).row
    file.unlink()
    carried = pickle.loads(pickle.dumps(row))
    assert carried == row
    assert carried.value.decoder().decode(pa.array([b"\x08\x07"])).to_pylist() == [{"a": 7, "colours": []}]
    given = {**BROKERS, "subscribe": "t", "valueFormat": "avro", "valueSchema": AVRO, "valueHeader": "registry"}
    carried = pickle.loads(pickle.dumps(source_options(given, streaming=True).row))
    assert carried.value.decoder(only="id").decode(pa.array([b"\0\0\0\0\x01\x02\x04"])).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    ("absent", "options"),
    [
        ("fastavro", {"valueFormat": "avro", "valueSchema": AVRO}),
        ("google.protobuf", {"valueFormat": "protobuf", "valueSchema": "p.Row", "valueDescriptor": __file__}),
    ],
)
def test_a_library_that_is_not_there(absent: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [absent, *[name for name in sys.modules if name.startswith(absent + ".")]]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"needs (fastavro|protobuf): pip install headrace\[spark\]\.$"):
        source_options({**BROKERS, "subscribe": "t", **options}, streaming=True)


def test_formats_that_are_not_used_are_not_loaded() -> None:
    code = "import sys, headrace.spark.data_source; print({'fastavro', 'google.protobuf'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "set()"


def test_the_schema_is_told_without_arrow() -> None:
    """Spark asks for it in a process of its own, once a session, before the first query."""
    code = """if True:
        import sys
        from pyspark_headrace import DefaultSource
        assert not [name for name in sys.modules if name.startswith("headrace.spark.opt")]
        options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "valueFormat": "string"}
        options["eventTime"] = "timestamp"
        print(DefaultSource(options).schema())
        print({"pyarrow", "headrace.client.cluster"} & set(sys.modules))
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith("`key` binary, `value` string, ") and said[0].endswith("`event_time` timestamp")
    assert said[1] == "set()"

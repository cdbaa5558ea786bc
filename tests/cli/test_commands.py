"""The commands against a real broker: what they print, what they change, how they end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.output import Progress
from headrace.cli.places import places
from headrace.client import reading
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.client.membership import Member
from headrace.wire.errors import ErrorCode

CODES = ("none", "gzip", "snappy", "lz4", "zstd")


def test_a_topic_whose_leader_is_gone_is_described_without_its_offsets(
    run: Any, run_json: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader was there when the command asked who leads."""

    def gone(*_: Any, **__: Any) -> Any:
        raise BrokerError(code, f"topic {topic} partition 0")

    run("topic", "create", topic, "-p", "1")
    monkeypatch.setattr(reading, "list_offsets", gone)
    code = ErrorCode.LEADER_NOT_AVAILABLE
    (found,) = run_json("topic", "describe", topic)[0]["partitions"]
    assert (found["partition"], found["earliest"], found["latest"]) == (0, None, None)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code.name in run("topic", "describe", topic, code=1).stderr


def test_topics(run: Any, run_json: Any, topic: str) -> None:
    assert "could create" in run("topic", "create", topic, "--dry-run").stdout
    assert topic not in [each["topic"] for each in run_json("topic", "list")]
    run("topic", "create", topic, "-p", "2", "--set", "retention.ms=5000")
    assert "TOPIC_ALREADY_EXISTS" in run("topic", "create", topic, code=1).stderr
    assert "already exists" in run("topic", "create", topic, "--if-not-exists").stdout
    (listed,) = [each for each in run_json("topic", "list") if each["topic"] == topic]
    assert (listed["partitions"], listed["replicas"], listed["internal"]) == (2, 1, False)
    assert topic in run("topic", "list").stdout
    run("topic", "alter", topic, "-p", "3", "--set", "cleanup.policy=compact", "--unset", "retention.ms")
    assert "can only grow" in run("topic", "alter", topic, "-p", "1", code=1).stderr
    run("topic", "alter", topic, code=2)
    (described,) = run_json("topic", "describe", topic)
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert [p["latest"] for p in described["partitions"]] == [0, 0, 0]
    assert "cleanup.policy=compact" in run("topic", "describe", topic).stdout
    assert "--yes" in run("topic", "delete", topic, code=2).stderr
    run("topic", "delete", topic, "-y")
    assert "no such topic" in run("topic", "describe", topic, code=4).stderr
    run("topic", "delete", topic, "-y", code=4)


def test_changes_say_in_json_what_they_did(run: Any, run_json: Any, topic: str) -> None:
    assert run_json("topic", "create", topic, "--dry-run") == {"topic": topic, "created": False, "executed": False}
    created = run_json("topic", "create", topic, "-p", "2")
    assert (created["created"], created["partitions"], created["replicas"]) == (True, 2, 1)
    again = run_json("topic", "create", topic, "--if-not-exists")
    assert again == {**created, "created": False}
    altered = run_json("topic", "alter", topic, "-p", "3", "--set", "retention.ms=-1", "--unset", "cleanup.policy")
    assert altered == {
        "topic": topic,
        "executed": True,
        "partitions": 3,
        "set": {"retention.ms": "-1"},
        "unset": ["cleanup.policy"],
    }
    assert run_json("config", "alter", "topic", topic, "--append", "cleanup.policy=compact", "--dry-run") == {
        "kind": "topic",
        "name": topic,
        "executed": False,
        "set": {},
        "unset": [],
        "append": {"cleanup.policy": "compact"},
        "subtract": {},
    }
    run("produce", topic, "-p", "1", stdin="a\nb\n")
    trimmed = run_json("topic", "trim", topic, "-p", "1", "--before", "1", "-y")
    assert trimmed == [{"topic": topic, "partition": 1, "earliest": 1}]
    assert [json.loads(line)["value"] for line in run("consume", topic, "--json").stdout.splitlines()] == ["b"]
    run("consume", topic, "-g", topic)
    part = run_json("group", "delete", topic, "--topic", f"{topic}:1", "-y")
    assert part == [{"group": topic, "deleted": False, "partitions": [{"topic": topic, "partition": 1}]}]
    half = run("group", "delete", topic, "no-such-group", "-y", "--json", code=4)
    assert json.loads(half.stdout) == [{"group": topic, "deleted": True}], "what is done is said, whatever fails later"
    assert run_json("topic", "delete", topic, "-y") == [{"topic": topic, "deleted": True}]


def test_a_topic_that_is_there_could_not_be_created(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    assert "already exists" in run("topic", "create", topic, "--if-not-exists", "--dry-run").stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"value": "x", "partition": "0"}', '"partition" must be a whole number'),
        ('{"value": "x", "partition": -1}', '"partition" must be a whole number'),
        ('{"value": "x", "timestamp": "now"}', '"timestamp" must be a whole number'),
        ('{"value": "x", "timestamp": 9223372036854775808}', '"timestamp" must be a whole number'),
        ('{"value": "x", "headers": {"a": "b"}}', '"headers" must be a list'),
        ('{"value": "x", "headers": [{"nome": "b"}]}', '"headers" must be a list'),
        ('{"value": "x", "headers": [7]}', '"headers" must be a list'),
        ('{"value_base64": "!"}', '"value_base64" is not base64'),
        ('{"value_base64": 7}', '"value_base64" is not base64'),
    ],
)
def test_an_object_that_is_no_record_is_named(run: Any, topic: str, line: str, words: str) -> None:
    run("topic", "create", topic, "-p", "1")
    (said,) = run("produce", topic, "--format", "json", stdin=line + "\n", code=1).stderr.splitlines()
    assert said.startswith("headrace: standard input line 1: ") and words in said
    assert run("consume", topic).stdout == ""


@pytest.mark.parametrize("separator", ["→", "=\\t=", "\\x00", "\\\\"])
def test_separators_of_any_kind(run: Any, topic: str, separator: str) -> None:
    meant = {"=\\t=": "=\t=", "\\x00": "\0", "\\\\": "\\"}.get(separator, separator)
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "-k", separator, stdin=f"k{meant}v\n")
    assert run("consume", topic, "-k", separator).stdout == f"k{meant}v\n"
    assert json.loads(run("consume", topic, "--json").stdout)["key"] == "k"


def test_records_that_a_topic_does_not_take(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1", "--set", "cleanup.policy=compact", "--set", "max.message.bytes=500")
    (line,) = run("produce", topic, stdin="no key\n", code=1).stderr.splitlines()
    assert line.startswith(f"headrace: topic {topic} partition 0: ")
    assert line.endswith("(INVALID_RECORD)")
    (line,) = run("produce", topic, "--key", "k", stdin="x" * 1000, code=1).stderr.splitlines()
    assert "MESSAGE_TOO_LARGE" in line
    assert "max.message.bytes" in line
    assert run("consume", topic).stdout == ""


def test_trimming_a_topic(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin="a\nb\nc\n")
    assert "begins at offset 2" in run("topic", "trim", topic, "--before", "2", "-y").stdout
    assert run("consume", topic).stdout == "c\n"
    run("topic", "trim", topic, "--before", "soon", "-y", code=2)


@pytest.mark.parametrize("codec", CODES)
def test_text_goes_in_and_comes_out_as_it_was(run: Any, topic: str, codec: str) -> None:
    run("topic", "create", topic, "-p", "1")
    lines = "h=1,e=\tk1\tvalue one\n\tk2\tNULL\nn\tNULL\t\n"
    sent = run("produce", topic, "-k", "\\t", "--headers", "--null", "NULL", "-z", codec, stdin=lines)
    assert "3 records" in sent.stderr
    assert run("consume", topic, "-k", "\\t", "--headers", "--null", "NULL").stdout == lines
    assert run("consume", topic).stdout == "value one\n\n\n"


def test_json_goes_in_and_comes_out_as_it_was(run: Any, run_json: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    records: list[dict[str, Any]] = [
        {"key": "a", "value": "1", "headers": [{"name": "h", "value": None}], "partition": 1, "timestamp": 1234},
        {"key": None, "value_base64": "//79", "headers": [], "partition": 1, "timestamp": 1235},
        {"key": "t", "value": None, "headers": [{"name": "b", "value_base64": "/w=="}], "partition": 1, "timestamp": 9},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    assert run_json("produce", topic, "--format", "json", stdin=lines)["records"] == 3
    printed = [json.loads(line) for line in run("consume", topic, "--format", "json").stdout.splitlines()]
    for offset, (record, found) in enumerate(zip(records, printed, strict=True)):
        assert found == {**record, "topic": topic, "offset": offset, "timestamp_type": "create"}
    assert (
        "line 2: not JSON"
        in run("produce", topic, "--format", "json", stdin=lines.splitlines()[0] + "\n{", code=1).stderr
    )


def test_values_that_are_json_are_sent_as_their_text(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "--format", "json", stdin='{"value": {"n": [1, 2]}}\n')
    assert json.loads(run("consume", topic).stdout) == {"n": [1, 2]}


def test_files_and_fixed_parts(run: Any, topic: str, tmp_path: Path) -> None:
    run("topic", "create", topic, "-p", "1")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a\r\nb")
    two.write_bytes(b"c\nd\n")
    run("produce", topic, str(one), str(two), "--key", "k", "--header", "src=x")
    assert run("consume", topic, "-k", "=", "--headers").stdout == "".join(f"src=x\tk={v}\n" for v in "abcd")
    run("produce", topic, "--whole", str(two))
    assert run("consume", topic, "--from", "-1").stdout == "c\nd\n\n"
    assert "No such file" in run("produce", topic, str(tmp_path / "none"), code=4).stderr
    run("produce", topic, "--whole", code=2)


def test_where_to_begin_and_end(run: Any, bootstrap: str, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    stamped = "".join(
        json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1000}) + "\n" for n in range(10)
    )
    run("produce", topic, "--format", "json", stdin=stamped)

    def values(*arguments: str) -> str:
        return "".join(run("consume", topic, *arguments).stdout.split())

    assert values() == "0123456789"
    assert values("--from", "latest") == ""
    assert values("--from", "7") == values("--from", "-3") == "789"
    assert values("--from", "2", "--until", "5") == "234"
    assert values("--until", "99") == "0123456789"
    assert values("--from", "2023-11-14T22:13:25+00:00", "--until", "2023-11-14T22:13:28+00:00") == "567"
    assert values("-n", "3") == "012"
    assert values("-f", "-n", "3") == "012"
    assert "is not a time" in run("consume", topic, "--from", "soon", code=2).stderr
    run("consume", topic, "-f", "--until", "5", code=2)
    assert values("--from", "5", "--until", "5") == ""
    for start in ("5", "latest", "-3"):
        run("consume", topic, "--from", start, "--until", "2", code=2)
    assert "no partition 9" in run("consume", topic, "-p", "9", code=4).stderr
    assert values("--from", "0001-01-02") == "0123456789"
    assert values("--from", "9" * 30) == ""
    with Client(bootstrap) as client:
        assert places(client, [(topic, 0)], "9" * 30, "read_uncommitted") == {(topic, 0): 10}, "not back to the start"


def test_a_read_knows_how_much_there_is_to_read(run: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Progress] = []

    def progress(*arguments: Any, **options: Any) -> Progress:
        made.append(Progress(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("headrace.cli.consume.Progress", progress)
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin="a\nb\nc\nd\n")
    for arguments in ([], ["--from", "1"], ["--from", "1", "-n", "2"], ["-f", "-n", "2"]):
        run("consume", topic, *arguments)
    assert [(each.total, each.done) for each in made] == [(4, 4), (3, 3), (2, 2), (None, 2)]


def test_hex_shows_every_byte(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "-k", ":", stdin=b"k:\xff\x00\n")
    assert f"{topic}/0/0 " in run("consume", topic, "--format", "hex").stdout
    assert "key 6b value ff00" in run("consume", topic, "--format", "hex").stdout


def test_groups(run: Any, run_json: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    run("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    run("produce", topic, "-p", "1", stdin="d\n")
    assert sorted(run("consume", topic, "-g", topic).stdout.split()) == ["a", "b", "c", "d"]
    assert run("consume", topic, "-g", topic).stdout == ""
    run("produce", topic, "-p", "0", stdin="e\n")
    (described,) = run_json("group", "describe", topic)
    assert (described["state"], described["lag"]) == ("Empty", 1)
    assert [(p["committed"], p["latest"], p["lag"]) for p in described["partitions"]] == [(3, 4, 1), (1, 1, 0)]
    assert "total lag 1" in run("group", "describe", topic).stdout
    assert topic in run("group", "list").stdout
    assert topic in [each["group"] for each in run_json("group", "list")]

    shown = run_json("group", "reset", topic, "--shift-by", "-2")
    assert [(p["from"], p["to"]) for p in shown["partitions"]] == [(3, 1), (1, 0)]
    assert not shown["executed"]
    assert run_json("group", "describe", topic)[0]["lag"] == 1
    run("group", "reset", topic, "--to-offset", "2", "--topic", f"{topic}:0", "--execute")
    assert run("consume", topic, "-g", topic).stdout == "c\ne\n"
    for target, offsets in (("--to-earliest", [0, 0]), ("--to-latest", [4, 1]), ("--to-current", [4, 1])):
        assert [p["to"] for p in run_json("group", "reset", topic, target, "--execute")["partitions"]] == offsets
    late = run_json("group", "reset", topic, "--to-datetime", "2001-01-01")
    assert [p["to"] for p in late["partitions"]] == [0, 0]
    run("group", "reset", topic, code=2)
    run("group", "reset", topic, "--to-earliest", "--to-latest", code=2)
    assert "no partition 7" in run("group", "reset", topic, "--to-earliest", "--topic", f"{topic}:7", code=4).stderr

    run("group", "delete", topic, "--topic", f"{topic}:1", "-y")
    assert [p["partition"] for p in run_json("group", "describe", topic)[0]["partitions"]] == [0]
    run("group", "delete", topic, "-y")
    assert "GROUP_ID_NOT_FOUND" in run("group", "describe", topic, code=4).stderr
    assert "GROUP_ID_NOT_FOUND" in run("group", "delete", topic, "-y", code=4).stderr


def test_a_group_with_members_is_not_reset(run: Any, bootstrap: str, topic: str) -> None:
    """And that is said before anything is planned, with --execute and without."""
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin="a\n")
    run("consume", topic, "-g", topic)
    with Client(bootstrap) as client:
        member = Member(client, topic, [topic])
        while not member.joined:
            member.poll()
        for options in ([], ["--execute"], ["--json"]):
            done = run("group", "reset", topic, "--to-earliest", *options, code=1)
            assert done.stdout == ""
            assert done.stderr == f"headrace: group {topic} has 1 member; stop its consumers first\n"
        assert f"{topic}: Stable, 1 member, " in run("group", "describe", topic).stdout
        member.leave()
    run("group", "reset", topic, "--to-earliest", "--execute")


def test_configurations(run: Any, run_json: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("config", "alter", "topic", topic, "--set", "retention.ms=77", "--append", "cleanup.policy=compact")
    shown = {each["name"]: each for each in run_json("config", "describe", "topic", topic)}
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["source"]) == ("77", "topic")
    assert set(shown["cleanup.policy"]["value"].split(",")) == {"compact", "delete"}
    everything = run_json("config", "describe", "topic", topic, "-a", "--docs")
    assert len(everything) > 20
    assert any(each["documentation"] for each in everything)
    assert "retention.ms" in run("config", "describe", "topic", topic).stdout
    run("config", "alter", "topic", topic, "--unset", "retention.ms", "--dry-run")
    assert "INVALID_CONFIG" in run("config", "alter", "topic", topic, "--set", "retention.ms=x", code=1).stderr
    run("config", "alter", "topic", topic, code=2)
    run("config", "describe", "broker", "one", code=2)
    assert "no such broker" in run("config", "describe", "broker", "77", code=4).stderr
    node = run_json("cluster", "describe")["brokers"][0]["id"]
    assert "log.dirs" in run("config", "describe", "broker", str(node)).stdout
    run("config", "alter", "broker", "default", "--set", "log.retention.ms=123456789")
    default = {each["name"]: each["value"] for each in run_json("config", "describe", "broker", "default")}
    assert default["log.retention.ms"] == "123456789"
    run("config", "alter", "broker", "default", "--unset", "log.retention.ms")


def test_the_cluster(run: Any, run_json: Any, bootstrap: str) -> None:
    described = run_json("cluster", "describe")
    assert [f"{b['host']}:{b['port']}" for b in described["brokers"]] == [bootstrap]
    assert described["quorum"]["leader"] == described["brokers"][0]["id"]
    assert described["log_dirs"][0]["error"] == 0
    text = run("cluster", "describe").stdout
    assert bootstrap in text
    assert "metadata.version" in text


@pytest.mark.slow
def test_a_topic_that_is_not_there(run: Any) -> None:
    started = time.monotonic()
    for arguments in (
        ["consume", "nowhere"],
        ["produce", "nowhere", "--no-create"],
        ["topic", "describe", "nowhere"],
        ["topic", "alter", "nowhere", "--set", "retention.ms=1"],
        ["config", "describe", "topic", "nowhere"],
    ):
        failed = run(*arguments, stdin="", code=4)
        assert len(failed.stderr.splitlines()) == 1
        assert "topic nowhere: " in failed.stderr
    assert time.monotonic() - started < 40


def test_mistyped_names_get_a_suggestion(run: Any, topic: str) -> None:
    assert "Did you mean 'topic'?" in run("topics", code=2).stderr
    name = f"riders-{topic}-{topic}"
    mistyped = name.replace("riders", "rideers")
    run("topic", "create", name, "-p", "1")
    run("produce", name, stdin="a\n")
    run("consume", name, "--group", name)
    for arguments in (("consume", mistyped), ("topic", "describe", mistyped), ("group", "describe", mistyped)):
        assert run(*arguments, code=4).stderr.endswith(f"; did you mean {name}?\n")


def test_offsets_at_a_time(run: Any, run_json: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    for partition, timestamp in ((0, 1_000), (0, 2_000), (1, 500)):
        record = json.dumps({"value": "v", "timestamp": timestamp, "partition": partition})
        run("produce", topic, "--format", "json", stdin=record + "\n")

    def offsets(*arguments: str) -> list[int | None]:
        return [each["offset"] for each in run_json("topic", "offsets", topic, *arguments)["partitions"]]

    assert offsets() == [2, 1]
    assert offsets("--at", "earliest") == [0, 0]
    assert offsets("--at", "newest") == [1, 0]
    assert offsets("--at", "1970-01-01T00:00:01.500+00:00") == [1, None]
    assert offsets("--at", "-1h") == [None, None]
    assert "is not a time" in run("topic", "offsets", topic, "--at", "soon", code=2).stderr
    heading, first, _ = run("topic", "offsets", topic).stdout.splitlines()
    assert (heading.split(), first.split()[:2]) == (["PARTITION", "OFFSET", "TIMESTAMP"], ["0", "2"])

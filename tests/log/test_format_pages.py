"""The pages of formats against what the code writes: a worked example byte by byte, and the names of files."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import headrace.testing
from headrace.client import admin
from headrace.client.producer import Producer
from headrace.log.log import Log

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
LOG_PAGE = (FORMATS / "log.md").read_text(encoding="utf-8")
PAGES = LOG_PAGE + (FORMATS / "metadata.md").read_text(encoding="utf-8")
OFFSETS = re.compile(r"^\d{20}(-\d{10})?")


def example_batches() -> list[bytes]:
    """The batches of the worked example, as the page has them."""
    (example,) = re.findall(r"\(149 bytes\):\n\n```\n(.+?)```", LOG_PAGE, re.DOTALL)
    lines = [re.match(r"[0-9a-f ]*", line)[0].rstrip() for line in example.splitlines()]  # type: ignore[index]
    whole = bytes.fromhex("".join(lines))
    assert len(whole) == 149
    end = 12 + struct.unpack_from(">i", whole, 8)[0]
    return [whole[:end], whole[end:]]


def hex_behind(words: str) -> bytes:
    """The bytes in backticks or in a block that the page has behind `words`."""
    found = re.search(re.escape(words) + r"\s+`+\s*([0-9a-f ]+?)\s*[`(]", LOG_PAGE)
    assert found is not None, words
    return bytes.fromhex(found[1])


def test_the_worked_example_is_what_a_log_writes(open_at: Callable[..., Log], tmp_path: Path) -> None:
    log = open_at({"index_interval_bytes": 64})
    for batch in example_batches():
        as_sent = bytes(8) + batch[8:12] + struct.pack(">i", -1) + batch[16:]  # the broker stamps offset and epoch
        assert not log.writer.append(as_sent, leader_epoch=3, now_ms=1_700_000_000_000).error
    log.state.take_snapshot()
    log.close()
    written = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    first = "00000000000000000000"
    assert written[f"{first}.log"] == b"".join(example_batches())
    assert written[f"{first}.index"] == hex_behind("`.index` is")
    assert written[f"{first}.timeindex"] == hex_behind("`.timeindex` is")
    assert written["00000000000000000003.snapshot"] == hex_behind("at offset 3:")
    (epochs,) = re.findall(r"`(0\\n1\\n3 0\\n)` for the example", LOG_PAGE)
    assert written["leader-epoch-checkpoint"] == epochs.replace("\\n", "\n").encode()


def test_every_file_that_a_broker_leaves_is_on_a_page(tmp_path: Path) -> None:
    for first in (True, False):  # the second time there are snapshots and checkpoints of the first
        with headrace.testing.broker(data=tmp_path) as broker, broker.client() as client:
            if first:
                admin.create_topic(client, "flights")
            with Producer(client) as producer:
                producer.send("flights", b"one", partition=0)
    listed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"flights-0/partition.metadata", "flights-0/00000000000000000000.log", "meta.properties"} <= listed
    unnamed = []
    for path in sorted(listed):
        name = path.rpartition("/")[2]
        generic = OFFSETS.sub("", name)  # what is left of 00000000000000000003.snapshot is .snapshot
        if (generic if generic != name else name) not in PAGES:
            unnamed.append(path)
    assert not unnamed


def test_the_page_names_no_file_that_the_code_does_not() -> None:
    (tree,) = re.findall(r"```\nlog\.dirs/\n(.+?)```", LOG_PAGE, re.DOTALL)
    source = "".join(path.read_text(encoding="utf-8") for path in Path(headrace.__file__).parent.rglob("*.py"))
    names = [line.split()[0] for line in tree.splitlines()]
    assert len(names) > 10
    for name in names:
        if not name.endswith("/"):
            assert f'"{OFFSETS.sub("", name)}"' in source, name

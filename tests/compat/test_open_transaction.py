"""A directory with transactions in every state goes from Apache Kafka to ours and on to Kafka, and the other way round:
producers end under the second broker what they began under the first, and what was decided is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.moved import PARTITIONS, PATIENCE_S, Writer, assert_told
from peers.transactions import set_transaction_version, state_of

from headrace.client import Client
from headrace.client.admin import create_topic
from headrace.transactions.records import decode
from headrace.transactions.transaction import Transaction
from headrace.wire.batch import iter_headers
from headrace.wire.records import decode_batch

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC, HELD = "paid", "held"
SMALL = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
FIRST = "00000000000000000000.log"
KINDS = ("committed", "aborted", "open to commit", "open to abort", "decided to commit", "decided to abort")


@contextmanager
def served(peer: KafkaPeer, kind: str, end: str) -> Iterator[Client]:
    """One of the two kinds of broker on the directory of `peer`, and on its port; `end` says how it ends."""
    broker: KafkaPeer | HeadracePeer = peer
    if kind == "ours":
        broker = HeadracePeer(peer.directory, properties=peer.write_properties(), port=peer.port)
    broker.start()
    try:
        with Client(broker.bootstrap, timeout_s=PATIENCE_S) as client:
            yield client
    finally:
        if end == "kill":
            broker.kill()
        else:
            assert broker.stop() in (0, None)


def open_all(bootstrap: str, stage: str, *, is_left_decided: bool) -> dict[str, Writer]:
    """A transaction of each kind, begun. One that is decided, and no more than that, is what a crash leaves.

    It is left to our broker alone. While Apache Kafka's starts, its coordinator may take a partition without a leader
    for a deleted one, and complete the transaction without that partition's marker: no reader passes it then.
    """
    kinds = [kind for kind in KINDS if is_left_decided or "decided" not in kind]
    made = {kind: Writer(bootstrap, f"{stage} {kind}", TOPIC, commits="commit" in kind) for kind in kinds}
    for kind, each in made.items():
        each.begin(*([(HELD, 0)] if "decided" in kind else []))
    return made


def end_all(client: Client, made: dict[str, Writer]) -> None:
    """But for those that are to stay open."""
    for kind, each in made.items():
        if not kind.startswith("open"):
            each.end()
            assert state_of(client, each.name).startswith("Complete")


def undo(data: Path, made: dict[str, Writer]) -> None:
    """Of a broker that was killed: the logs as they would be, had it died when transactions were decided, and before
    all markers and what comes after them were written."""
    decided = {each.name for kind, each in made.items() if "decided" in kind}
    if not decided:
        return
    kept: list[bytes] = []
    undone = 0
    state = data / "__transaction_state-0" / FIRST
    buffer = state.read_bytes()
    for at, header in iter_headers(buffer):
        (record,) = decode_batch(buffer, at)
        found = decode(bytes(record.key or b""), record.value)
        assert isinstance(found, Transaction)
        if found.transactional_id in decided and found.state.label.startswith("Complete"):
            undone += 1
        else:
            kept.append(len(kept).to_bytes(8, "big") + buffer[at + 8 : at + header.size])
    assert undone == len(decided)
    state.write_bytes(b"".join(kept))
    held = data / f"{HELD}-0" / FIRST
    buffer = held.read_bytes()
    *_, (first, before), (_, last) = iter_headers(buffer)
    assert before.is_control and last.is_control
    held.write_bytes(buffer[:first])


def go_on(client: Client, made: dict[str, Writer]) -> None:
    """The next broker has it all as the last one left it: what is decided ends by itself, and what is open is ended by
    whoever began it."""
    for kind, each in made.items():
        if kind.startswith("open"):
            assert state_of(client, each.name) == "Ongoing"
            each.end()
        assert state_of(client, each.name) == ("CompleteCommit" if each.commits else "CompleteAbort")


@pytest.mark.parametrize(
    ("kinds", "version", "end"),
    [
        (("kafka", "ours", "kafka"), 2, "kill"),
        (("ours", "kafka", "ours"), 1, "kill"),
        pytest.param(("kafka", "ours", "kafka"), 1, "stop", marks=pytest.mark.soak),
        pytest.param(("ours", "kafka", "ours"), 2, "stop", marks=pytest.mark.soak),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else str(each),
)
def test_what_one_begins_the_other_ends(tmp_path: Path, kinds: tuple[str, str, str], version: int, end: str) -> None:
    peer, first, second, third = KafkaPeer(tmp_path, SMALL), *kinds
    with served(peer, first, end) as client:
        set_transaction_version(client, version)
        create_topic(client, TOPIC, partitions=PARTITIONS)
        create_topic(client, HELD, partitions=1)
        begun = open_all(peer.bootstrap, "begun", is_left_decided=end == "kill" and second == "ours")
        end_all(client, begun)
    undo(peer.data, begun)
    with served(peer, second, end) as client:
        go_on(client, begun)
        assert_told(client, [TOPIC, HELD], begun.values())
        again = open_all(peer.bootstrap, "begun again", is_left_decided=end == "kill" and third == "ours")
        end_all(client, again)
    undo(peer.data, again)
    with served(peer, third, end) as client:
        go_on(client, again)
        everybody = [*begun.values(), *again.values()]
        assert_told(client, [TOPIC, HELD], everybody)
        for each in everybody:
            each.begin()
            each.end(commits=True)
            each.close()

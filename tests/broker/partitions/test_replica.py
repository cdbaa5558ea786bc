"""One replica: what its leader says of epochs, and when it acknowledges."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from log.clocks import HandClock

from headrace.broker.partitions.replica import Replica
from headrace.env.posix import PosixDisk
from headrace.log.epochs import LeaderEpochs
from headrace.metadata.image import Partition
from headrace.replicas.partition import PartitionState


@pytest.mark.parametrize(
    ("written", "answers"),
    [
        # Epochs with records, and (epoch, end offset) by the epoch that is asked; 6 leads without a record.
        ([(1, 0), (3, 5)], {1: (1, 5), 2: (1, 5), 3: (3, 10), 4: (3, 10), 5: (3, 10), 6: (6, 10), 7: (-1, -1)}),
        ([], {-1: (-1, -1), 4: (4, 10), 6: (6, 10), 7: (-1, -1)}),
    ],
)
def test_epochs_without_a_record(written: list[tuple[int, int]], answers: dict[int, tuple[int, int]]) -> None:
    epochs = LeaderEpochs(PosixDisk(), "unused")
    for epoch, offset in written:
        epochs.assign(epoch, offset)
    log = SimpleNamespace(
        epochs=epochs,
        end_offset=10,
        end_offset_for_epoch=lambda epoch: epochs.end_offset_for(epoch, 10),
        has_no_gap=lambda: None,
    )
    replica = Replica("t", 0, bytes(16), log, PartitionState(1, 10), HandClock(0), False)  # type: ignore[arg-type]
    assert replica.become_leader(Partition(0, (1,), (bytes(16),), (1,), 1, 6, 6))
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in answers} == answers

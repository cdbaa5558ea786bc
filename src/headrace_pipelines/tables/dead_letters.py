"""Records that no row can be made of, sent as they are to a topic of their own, with headers that say where and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.arrow.decode import HEADERS_FIELD
from headrace_pipelines.tables.changes import OFFSET, PARTITION, WRITTEN
from headrace_pipelines.tables.decoding import KEY, REASON, VALUE

PREFIX: Final = "headrace.dead_letter."
"""What the names of the headers that are added begin with; behind it `topic`, `partition`, `offset` and `reason`."""
COLUMNS: Final = pa.schema([KEY, VALUE, WRITTEN, HEADERS_FIELD])


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The way to the topic; `write` returns once the brokers have the rows, `COLUMNS`, of the batch of that number."""

    source: str
    """The topic that is read."""
    write: Callable[[pa.RecordBatch, int], None]
    once: bool = False
    """Whether `write` writes a batch once: then it hears of batches without letters too."""

    def send(self, unreadable: pa.Table, batch_id: int) -> None:
        """Key, value, timestamp and headers as they were, and our headers behind those."""
        if not unreadable.num_rows and not self.once:
            return
        names = (PARTITION.name, OFFSET.name, REASON.name, HEADERS_FIELD.name)
        columns = zip(*(unreadable[name].to_pylist() for name in names), strict=True)
        headers = [self._headers(*row) for row in columns]
        kept = [unreadable[field.name].combine_chunks() for field in (KEY, VALUE, WRITTEN)]
        self.write(pa.record_batch([*kept, pa.array(headers, HEADERS_FIELD.type)], schema=COLUMNS), batch_id)

    def _headers(self, partition: int, offset: int, reason: str, had: Any) -> list[Any]:
        fields = {"topic": self.source, "partition": str(partition), "offset": str(offset), "reason": reason}
        ours = [{"key": PREFIX + name, "value": text.encode(errors="replace")} for name, text in fields.items()]
        return [*(had or ()), *ours]

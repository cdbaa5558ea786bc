"""How `headrace consume --print-control-records` prints control records: as text that says what they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.cli.record_formats import TIMESTAMP_TYPES, Formatter, hex_line

if TYPE_CHECKING:
    from headrace.wire.batch import BatchHeader
    from headrace.wire.records import Record

ControlFormatter = Callable[[str, int, "Record", "BatchHeader"], bytes]
"""Takes the topic, the partition, the record and the header of its batch."""

MARKERS = ("ABORT", "COMMIT")


def readable(header: BatchHeader, record: Record) -> Record:
    """Returns the record with a text that says what it is as its value, and no key."""
    about = _about(header, record)
    kind, *rest = about.items()
    text = " ".join([f"control record {kind[1]}", *(f"{name}={value}" for name, value in rest)])
    return record._replace(key=None, value=text.encode())


def control_format(form: str | None, formatter: Formatter) -> ControlFormatter:
    """Returns the format of control records beside the `formatter` of data records.

    JSON has an object "control" in place of key, value and headers, so that `produce` refuses the line.
    """

    def json_line(topic: str, partition: int, record: Record, header: BatchHeader) -> bytes:
        shown = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": TIMESTAMP_TYPES[header.timestamp_type],
            "control": _about(header, record),
        }
        return json.dumps(shown).encode() + b"\n"

    def hex_text(topic: str, partition: int, record: Record, header: BatchHeader) -> bytes:
        line = hex_line(topic, partition, record, header.timestamp_type)
        return line.removesuffix(b"\n") + b"  " + (readable(header, record).value or b"") + b"\n"

    def text(topic: str, partition: int, record: Record, header: BatchHeader) -> bytes:
        return formatter(topic, partition, readable(header, record), header.timestamp_type)

    return {"json": json_line, "hex": hex_text}.get(form or "", text)


def _about(header: BatchHeader, record: Record) -> dict[str, Any]:
    """Returns the type of a control record, and of a transaction marker whose transaction it ends."""
    from headrace.wire.markers import read_marker

    marker = read_marker(record)
    if marker is None:
        return {"type": None if record.key is None else int.from_bytes(record.key[2:4], "big")}
    kind, coordinator_epoch = marker
    return {
        "type": MARKERS[kind],
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "coordinator_epoch": coordinator_epoch,
    }

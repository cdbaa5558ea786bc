"""meta.properties, in Kafka's form: what is written is read, and anything else is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    decode_meta_properties,
    encode_meta_properties,
)
from headrace.wire import uuids

IDS = st.binary(min_size=16, max_size=16)
WHOLE = {"version": "1", "node.id": "3", "cluster.id": "c", "directory.id": uuids.to_text(b"d" * 16)}


@given(
    cluster=IDS,
    node=st.integers(0, 2**31 - 1),
    directory=IDS,
    time_text=st.text(st.characters(codec="ascii", categories=("L", "N", "Zs"))),
)
def test_what_is_written_is_read(cluster: bytes, node: int, directory: bytes, time_text: str) -> None:
    properties = MetaProperties(uuids.to_text(cluster), node, directory)
    assert decode_meta_properties(encode_meta_properties(properties, time_text)) == properties


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(MetaPropertiesError):
        decode_meta_properties(data)


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.text(max_size=30) | st.from_regex(r"[-0-9A-Za-z_]{22}")))
def test_any_values_are_read_or_refused_by_name(values: dict[str, str]) -> None:
    text = "".join(f"{key}={value}\n" for key, value in {**WHOLE, **values}.items())
    try:
        assert len(decode_meta_properties(text.encode()).directory_id) == 16
    except MetaPropertiesError:
        return


@pytest.mark.parametrize("key", [key for key in WHOLE if key != "directory.id"])
def test_a_file_without_a_value_is_refused(key: str) -> None:
    lines = [f"{each}={value}" for each, value in WHOLE.items()]
    assert decode_meta_properties("\n".join(lines).encode()) == MetaProperties("c", 3, b"d" * 16)
    with pytest.raises(MetaPropertiesError):
        decode_meta_properties("\n".join(each for each in lines if not each.startswith(key)).encode())

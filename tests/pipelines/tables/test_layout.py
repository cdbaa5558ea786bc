"""Layouts of tables, and what is none."""

from __future__ import annotations

import pytest

from headrace_pipelines.tables.layout import JSON, columns_of, layout_of


def test_a_key_of_one_column_is_text_and_of_several_json() -> None:
    one = layout_of("id BIGINT", "name STRING, price DECIMAL(10, 2)")
    assert one.stored() == {"key": "`id` bigint", "value": "`name` string, `price` decimal(10,2)", "key_format": "text"}
    assert (one.names, one.key_names) == (["id", "name", "price"], ["id"])
    assert layout_of("shop STRING, id INT", "n INT").key_format == "json"
    assert layout_of("id INT", "n INT", "json").key_format == "json"


def test_variants() -> None:
    told = "`variant` variant, `a, variant` array<decimal(10,2)>, `j` variant, `s` string"
    layout = layout_of("id INT", "variant VARIANT NOT NULL, `a, variant`: ARRAY<DECIMAL(10, 2)>, j: Variant, s STRING")
    assert layout.stored()["value"] == told
    assert [field.type == JSON for field in layout.value] == [True, False, True, False]
    assert columns_of(told) == layout.value


@pytest.mark.parametrize(
    ("key", "value", "form", "words"),
    [
        ("id", "n INT", None, "must look like 'id BIGINT', but the type of the last field is missing"),
        ("id INT", "n", None, "the value's columns must look like"),
        ("id INT", " ", None, "the columns of the value are missing"),
        ("id ARRAY<INT>", "n INT", None, "'id' is not a single value"),
        ("a INT, b INT", "n INT", "text", "a text key has one column"),
        ("a VARIANT", "n INT", None, "'a' is not a single value"),
        ("a INT", "n ARRAY<VARIANT>", None, "a field cannot be 'VARIANT'"),
        ("a INT", "n INT", "avro", "text or json, not 'avro'"),
        ("Id INT", "n INT, iD INT", None, "two columns have the names 'Id' and 'iD'"),
    ],
)
def test_wrong_ones(key: str, value: str, form: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=".") as complaint:
        layout_of(key, value, form)
    assert words in str(complaint.value)

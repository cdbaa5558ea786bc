"""Families as text: what Prometheus reads, in pieces that are small."""

from __future__ import annotations

import pytest

from headrace.broker.telemetry.exposition import SAMPLES_AT_ONCE, PrometheusText
from headrace.broker.telemetry.families import Family, counters, gauge, gauges, histograms
from headrace.broker.telemetry.histogram import Histogram

parser = pytest.importorskip("prometheus_client.parser")


def test_a_large_family_is_made_in_pieces() -> None:
    text = PrometheusText()
    family = counters("many", "Some.", [({"topic": f"t{i}"}, i) for i in range(100)])
    pieces = list(text.pieces(family))
    assert all(piece.count(b"\n") <= SAMPLES_AT_ONCE + 2 for piece in pieces)
    assert b"".join(pieces).count(b"#") == 2, "what it is stands there once"
    (found,) = parser.text_string_to_metric_families(b"".join(pieces).decode())
    assert (found.name, found.type, found.documentation) == ("many", "counter", "Some.")
    assert [(sample.labels["topic"], sample.value) for sample in found.samples] == [(f"t{i}", i) for i in range(100)]


def test_labels_of_any_text() -> None:
    strange = 'a"b\\c\nd é'
    pieces = PrometheusText().pieces(gauges("one", "Two\nlines.", [({"topic": strange}, 1.5)]))
    (found,) = parser.text_string_to_metric_families(b"".join(pieces).decode())
    assert found.samples[0].labels == {"topic": strange}
    assert found.samples[0].value == 1.5


def test_a_family_without_samples_is_said() -> None:
    (piece,) = PrometheusText().pieces(Family("none", "gauge", "Nothing yet.", []))
    assert piece == b"# HELP none Nothing yet.\n# TYPE none gauge\n"
    assert list(PrometheusText().pieces(gauge("a", "A.", 3))) == [b"# HELP a A.\n# TYPE a gauge\na 3.0\n"]


def test_a_histogram() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.1)
    histogram.observe(0.5, 3)
    histogram.observe(7.0)
    assert list(histogram.buckets()) == [(0.1, 1), (1.0, 4), (float("inf"), 5)]
    assert histogram.count == 5
    assert histogram.sum == pytest.approx(8.6)
    pieces = PrometheusText().pieces(histograms("h", "H.", [({"api": "x"}, histogram)], unit=1000))
    (found,) = parser.text_string_to_metric_families(b"".join(pieces).decode())
    assert found.type == "histogram"
    said = {(sample.name, sample.labels.get("le")): sample.value for sample in found.samples}
    assert said == {
        ("h_bucket", "100"): 1,
        ("h_bucket", "1000"): 4,
        ("h_bucket", "+Inf"): 5,
        ("h_count", None): 5,
        ("h_sum", None): pytest.approx(8600),
    }

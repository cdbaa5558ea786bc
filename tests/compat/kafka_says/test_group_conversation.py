"""Everything about groups that can be asked in one sitting: our answers are Kafka's, field by field."""

from __future__ import annotations

import json

import pytest
from compat.kafka_says.group_conversation import RECORDING, common_versions, converse, differences, flat
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_groups_as_kafka_answers(request: pytest.FixtureRequest) -> None:
    """`--rewrite` also records what Kafka said, for the test that runs without it."""
    with KafkaPeer() as kafka, HeadracePeer() as ours:
        versions = common_versions(kafka.port, ours.port)
        theirs = converse(kafka.port, versions)
        answers = converse(ours.port, versions)
    if request.config.getoption("--rewrite"):
        spans = {str(key): [span.start, span.stop] for key, span in versions.items()}
        RECORDING.write_text(json.dumps({"versions": spans, "answers": theirs}, indent=0, sort_keys=True) + "\n")
    assert differences(answers, theirs) == {}
    assert len(dict(flat("", theirs))) > 3000, "the conversation became shorter"

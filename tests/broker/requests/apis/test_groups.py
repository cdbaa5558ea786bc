"""The group APIs at every version, against what Apache Kafka answered when it was asked the same."""

from __future__ import annotations

import json

from broker.raw import Raw
from compat.kafka_says.group_conversation import RECORDING, converse, differences

from headrace.testing.running import broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest


def test_groups_as_kafka_answered() -> None:
    recorded = json.loads(RECORDING.read_text())
    versions = {int(key): range(*span) for key, span in recorded["versions"].items()}
    with broker() as running:
        answers = converse(running.port, versions)
    assert differences(answers, recorded["answers"]) == {}


def test_keys_of_a_coordinator_that_is_not_served_are_final(raw: Raw) -> None:
    share = raw.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:id:0"]), 6)
    assert not ErrorCode(share.coordinators[0].error_code).retriable


def test_deleted_groups_say_why_not_from_version_3_on(raw: Raw) -> None:
    raw.ask(FindCoordinatorRequest(coordinator_keys=["nobody"]), 4)
    (result,) = raw.ask(DeleteGroupsRequest(["nobody"]), 3).results
    assert (result.error_code, bool(result.error_message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)


def test_authorized_operations_of_a_group(raw: Raw) -> None:
    raw.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    (group,) = raw.ask(DescribeGroupsRequest(["g"], include_authorized_operations=True), 5).groups
    # Read, delete, describe, describe and alter configs: bits 3, 6, 8, 10 and 11.
    assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

"""Long answers: a worker makes their bytes, once."""

from __future__ import annotations

from typing import Any

from headrace.broker.net.long_answers import _encode
from headrace.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsResponse


def test_the_body_of_a_long_answer_is_not_copied() -> None:
    made: list[Any] = []

    class Noting(DescribeGroupsResponse):
        def encode_onto(self, out: bytearray, version: int) -> None:
            made.append(out)
            super().encode_onto(out, version)

    groups = [DescribedGroup(group_id=f"n{number}", error_code=number % 2) for number in range(10)]
    (body,), codes = _encode(5, Noting(groups=groups))
    assert body is made[0] and codes == {1: 5}
    assert body == DescribeGroupsResponse(groups=groups).encode(5)

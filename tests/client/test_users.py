"""SCRAM users through the client, against both brokers."""

from __future__ import annotations

import pytest

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.client.users import Credential, delete_password, list_credentials, set_password
from headrace.wire.errors import ErrorCode


def test_a_user_is_made_listed_and_deleted(client: Client, topic: str) -> None:
    set_password(client, topic, "s3cret", "SCRAM-SHA-256", iterations=5000)
    set_password(client, topic, "s3cret")
    assert list_credentials(client, [topic, "nobody-at-all"]) == [
        Credential(topic, "SCRAM-SHA-256", 5000),
        Credential(topic, "SCRAM-SHA-512", 4096),
    ]
    assert topic in {each.user for each in list_credentials(client)}
    delete_password(client, topic, "SCRAM-SHA-256")
    delete_password(client, topic, "SCRAM-SHA-512")
    assert list_credentials(client, [topic]) == []


@pytest.mark.parametrize(
    ("iterations", "code"), [(4095, ErrorCode.UNACCEPTABLE_CREDENTIAL), (16_385, ErrorCode.UNACCEPTABLE_CREDENTIAL)]
)
def test_what_is_refused(client: Client, topic: str, iterations: int, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        set_password(client, topic, "s3cret", iterations=iterations)
    assert refused.value.code == code and "s3cret" not in str(refused.value)
    with pytest.raises(BrokerError) as refused:
        delete_password(client, topic, "SCRAM-SHA-512")
    assert refused.value.code == ErrorCode.RESOURCE_NOT_FOUND

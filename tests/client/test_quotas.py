"""Quotas through the client, against both brokers."""

from __future__ import annotations

import pytest

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.client.quotas import Quotas, alter_quotas, entity_text, find_quotas


def test_quotas_are_set_found_and_removed(client: Client, topic: str) -> None:
    alter_quotas(client, {"user": topic}, {"producer_byte_rate": 1000.0, "request_percentage": 50.5})
    alter_quotas(client, {"user": topic, "client-id": "app"}, {"consumer_byte_rate": 7.0})
    alter_quotas(client, {"user": topic}, {"producer_byte_rate": 5.0}, validate_only=True)
    own = Quotas({"user": topic}, {"producer_byte_rate": 1000.0, "request_percentage": 50.5})
    with_app = Quotas({"user": topic, "client-id": "app"}, {"consumer_byte_rate": 7.0})
    assert find_quotas(client, {"user": topic}) == [own, with_app]
    assert find_quotas(client, {"user": topic}, strict=True) == [own]
    assert with_app in find_quotas(client, {}, ["user", "client-id"], strict=True)
    assert own in find_quotas(client, {})
    alter_quotas(client, {"user": topic}, {"producer_byte_rate": 9.0}, ["request_percentage"])
    altered = Quotas({"user": topic}, {"producer_byte_rate": 9.0})
    assert find_quotas(client, {"user": topic}, strict=True) == [altered]
    alter_quotas(client, {"user": topic}, {}, ["producer_byte_rate"])
    alter_quotas(client, {"user": topic, "client-id": "app"}, {}, ["consumer_byte_rate"])
    assert find_quotas(client, {"user": topic}) == []


def test_a_key_that_there_is_not(client: Client, topic: str) -> None:
    with pytest.raises(BrokerError) as refused:
        alter_quotas(client, {"user": topic}, {"no_such_rate": 1.0})
    assert f"quotas of user {topic}" in str(refused.value)


def test_whom_they_are_about_in_words() -> None:
    assert entity_text({"client-id": "app", "user": "ann"}) == "user ann, client id app"
    assert entity_text({"user": None}) == "every user without its own"
    assert entity_text({"ip": "1.2.3.4"}) == "address 1.2.3.4"

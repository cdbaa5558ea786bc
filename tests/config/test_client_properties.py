"""Which client properties there are, which of them are secrets, and how variables name them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.client_properties import (
    HIDDEN,
    IS_SECRET,
    VariableError,
    is_kept,
    properties_in,
    property_of,
    shown,
    variable_of,
)


@given(st.from_regex(r"[a-z]+([._-][a-z]+)*", fullmatch=True))
def test_a_variable_says_the_property_that_it_was_made_of(name: str) -> None:
    assert property_of(variable_of(name)) == name


def test_names_are_as_kafkas_docker_image_has_them() -> None:
    for variable, name in (
        ("HEADRACE_SECURITY_PROTOCOL", "security.protocol"),
        ("HEADRACE_SASL_JAAS_CONFIG", "sasl.jaas.config"),
        ("HEADRACE_SSL_A__B", "ssl.a_b"),
        ("HEADRACE_SSL_A___B", "ssl.a-b"),
    ):
        assert property_of(variable) == name and variable_of(name) == variable


def test_properties_of_variables() -> None:
    environment = {
        "HEADRACE_SECURITY_PROTOCOL": "SSL",
        "HEADRACE_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "",
        "HEADRACE_BOOTSTRAP": "x:1",
        "HEADRACE_VERSION": "7",
        "headrace_ssl_x": "y",
        "HEADRACE_SSL_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_SSL_SERVICE_PORT_TLS": "9093",
        "HEADRACE_SSL_PORT": "tcp://10.0.0.1:9093",
        "HEADRACE_SSL_PORT_9093_TCP_ADDR": "10.0.0.1",
        "HEADRACE_SASL_PORT_9093_TCP": "tcp://10.0.0.1:9093",
    }
    assert properties_in(environment) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("HEADRACE_SASL_JAS_CONFIG", "HEADRACE_SASL_JAAS_CONFIG is sasl.jaas.config"),
        ("HEADRACE_SECURITY_PROTOCL", "HEADRACE_SECURITY_PROTOCOL is security.protocol"),
        ("HEADRACE_SSL_CLIENT_AUTH", "there is no property ssl.client.auth of clients"),
        ("HEADRACE_SASL_", "there is no property sasl."),
    ],
)
def test_what_is_like_a_property_and_none(variable: str, words: str) -> None:
    with pytest.raises(VariableError) as refused:
        properties_in({variable: "hunter2"})
    assert words in str(refused.value) and "hunter2" not in str(refused.value)


def test_secrets_are_hidden_and_so_is_what_nobody_knows() -> None:
    for name in (
        "sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.keystore.key", "ssl.truststore.password",
        "sasl.oauthbearer.client.credentials.client.secret", "ssl.of.tomorrow",
    ):  # fmt: skip
        assert shown(name, "hunter2") == HIDDEN
    assert shown("sasl.mechanism", "PLAIN") == "PLAIN"
    assert all(map(is_kept, IS_SECRET)) and not is_kept("client.id")

"""Waiting until Apache Kafka's broker has applied the metadata that its controller has committed.

A change is answered when the controller has committed it. The broker describes it a moment later, when it has read the
metadata log that far, and uses it (authorizer, credentials, quotas, replicas) a moment after that. Ours answers later.
"""

from __future__ import annotations

from headrace.client.cluster import Client
from headrace.client.quotas import alter_quotas, find_quotas

from .waiting import until

_MARKER = {"client-id": "a marker of the tests"}
_RATE = "producer_byte_rate"


def wait_until_metadata_is_applied(bootstrap: str) -> None:
    """Returns when a broker of Apache Kafka describes and uses all that was committed before.

    The broker takes changes in the order of the log, one batch of them after the other: it describes a marker when it
    describes what is before it, and describes the removal of the marker when it also uses what is before the marker.
    """
    with Client(bootstrap) as client:
        alter_quotas(client, _MARKER, {_RATE: 1e9})
        until(lambda: find_quotas(client, _MARKER), "a marker is described")
        alter_quotas(client, _MARKER, {}, [_RATE])
        until(lambda: not find_quotas(client, _MARKER), "a marker is no longer described")

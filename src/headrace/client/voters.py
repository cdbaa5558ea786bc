"""Changes of the voters of the metadata quorum: adds controllers and removes voters.

Functions over a `Client`, one a task, as in `moves`. Every broker takes these and has the controller decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.client.conversation import Steps
from headrace.client.operations import operation
from headrace.client.routing import Router


@operation
def add_voter(
    router: Router, voter: int, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]]
) -> Steps[None]:
    """Makes a controller a voter: its node id, the id of its metadata directory, and its (listener, host, port)s. It
    has to run, and to have what the leader has: where it does not yet, this waits. Raises `BrokerError`,
    DUPLICATE_VOTER where a node with this id votes already, `ProtocolMismatchError`."""
    from headrace.wire.messages import k80_add_raft_voter as k80

    yield from router.checked(
        k80.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=int(router.timeout_s * 1000),
            voter_id=voter,
            voter_directory_id=directory_id,
            listeners=[k80.Listener(*endpoint) for endpoint in endpoints],
        ),
        k80.AddRaftVoterResponse,
        lambda r: (r.error_code, r.error_message or None),
        f"voter {voter}",
    )


@operation
def remove_voter(router: Router, voter: int, directory_id: bytes) -> Steps[None]:
    """Removes a voter, whether it runs or not.

    Raises `BrokerError`, VOTER_NOT_FOUND if no voter has this id and directory, `ProtocolMismatchError`.
    """
    from headrace.wire.messages import k81_remove_raft_voter as k81

    yield from router.checked(
        k81.RemoveRaftVoterRequest(cluster_id=None, voter_id=voter, voter_directory_id=directory_id),
        k81.RemoveRaftVoterResponse,
        lambda r: (r.error_code, r.error_message or None),
        f"voter {voter}",
    )

"""Many writers, one commit: transactions that others have written in are ended with one's own, all or none.

    child = TransactionalProducer(client, child_id(client, "load", f"load-{task}"))     # on each of many machines
    child.begin()
    child.send("paid", b"...")
    opened = child.hand_over()                      # three values, to be sent to the parent

    main = TransactionalProducer(client, "load")
    main.begin()
    main.send_offsets("load", {("paid", 0): 17})
    main.commit([opened, ...])

The request is Headrace's own, HeadraceGroupEndTxn (docs/formats/group-end-txn.md): `serves_groups` says whether the
main id's coordinator has it. One append of its log is the decision, so the children's ids must be of the main one's
partition of `__transaction_state`: `child_id` makes such. What nobody ends is aborted at its timeout; `end_leftovers`
does so before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from headrace.client.conversation import Steps
from headrace.client.describe import describe_features
from headrace.client.errors import BrokerError, ConnectionLostError, ProtocolMismatchError, UnreachableError
from headrace.client.operations import operation
from headrace.client.routing import TRANSACTION, Router
from headrace.client.transacting import OpenTransaction, TransactionalMachine
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.sharding import partition_of

STATE_TOPIC = "__transaction_state"


@operation
def serves_groups(router: Router, transactional_id: str) -> Steps[bool]:
    """Whether the coordinator of this id ends groups, and the cluster has transactions that can be in one."""
    retry = router.retry()
    while True:
        try:
            connection = yield from router.coordinator_connection(transactional_id, kind=TRANSACTION)
            if not connection.channel.supports(ApiKey.HEADRACE_GROUP_END_TXN):
                return False
            return (yield from describe_features.steps(router)).get("transaction.version", 0) >= 2
        except (UnreachableError, ConnectionLostError) as error:
            router.forget_coordinator(transactional_id, kind=TRANSACTION)
            yield from retry.pause(error)


@operation
def child_id(router: Router, main_id: str, stem: str) -> Steps[str]:
    """`stem~N`, with the first N that puts it into the main id's partition of `__transaction_state`. The coordinator of
    some id must have been asked for before, as that makes the topic."""
    count = len((yield from router.topic(STATE_TOPIC)).partitions)
    wanted = partition_of(main_id, count)
    salt = 0
    while partition_of(name := f"{stem}~{salt}", count) != wanted:
        salt += 1
    return name


@operation
def abandon(router: Router, opened: Iterable[OpenTransaction]) -> Steps[None]:
    """Abort transactions that were handed over. One that is over, however it ended, stays as it is: its epoch was that
    of one transaction alone. Raises `ClientError` where a coordinator cannot be asked."""
    from headrace.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

    for each in opened:
        request = EndTxnRequest(each.transactional_id, each.producer_id, each.epoch, False)
        try:
            yield from router.at_coordinator(
                each.transactional_id, request, EndTxnResponse, lambda r: r.error_code, kind=TRANSACTION
            )
        except BrokerError as error:
            if error.retriable:
                raise


@operation
def end_leftovers(router: Router, main_id: str, *, keep: Collection[str] = ()) -> Steps[list[str]]:
    """Abort open transactions of ids `MAIN_ID-...` at the main id's coordinator, but for those to `keep`; returns
    whose.

    Their producers are fenced. Where the broker cannot list ids by a pattern (before Apache Kafka 4.1) nothing is
    done: the timeout does it. Raises `ClientError`.
    """
    from headrace.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

    request = ListTransactionsRequest(["Ongoing"], transactional_id_pattern=re.escape(f"{main_id}-") + ".*")
    try:
        listed = yield from router.at_coordinator(
            main_id, request, ListTransactionsResponse, lambda r: r.error_code, kind=TRANSACTION
        )
    except ProtocolMismatchError:
        return []
    except BrokerError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return []
    left = sorted({each.transactional_id for each in listed.transaction_states}.difference(keep))
    for name in left:
        yield from TransactionalMachine(router, name, {}).initialize_steps()
    return left

"""What can go wrong in a client, each as one line that a person can act on.

Every exception here derives from `ClientError`, so a caller that only wants to report may catch that one. `BrokerError`
carries the Kafka error code that a broker answered; the others are about reaching a broker at all.
"""

from __future__ import annotations

from headrace.wire.errors import ErrorCode, message_of


class ClientError(Exception):
    """Something a client could not do. `str()` of it is one line, fit for a terminal."""


class UnreachableError(ClientError):
    """No broker answers at the addresses given."""


class HungUpError(UnreachableError):
    """The server at the address closes the connection before any answer of Kafka's protocol."""


class UntrustedError(ClientError):
    """A broker's certificate is not believed. To try again would not change that."""


class RefusedError(UnreachableError):
    """The machine at an address answers that no process listens there."""


class ConnectionLostError(ClientError):
    """A connection ended with calls outstanding; whether they took effect is unknown."""


class TimedOutError(ClientError):
    """The time allowed has passed. The work may still take effect at the broker."""


class ProtocolMismatchError(ClientError):
    """The other side does not speak Kafka's protocol, or no version of it that we share."""


class BrokerError(ClientError):
    """A broker's answer that is an error.

    `code` is Kafka's error code, `about` names the thing it is about ("topic flights partition 3"), `detail` is the
    broker's own message where it sent one.
    """

    def __init__(self, code: int, about: str, detail: str | None = None) -> None:
        self.code = code
        self.about = about
        self.detail = detail
        super().__init__(f"{about}: {detail or message_of(code)} ({code_name(code)})")

    @property
    def retriable(self) -> bool:
        return is_retriable(self.code)


class OffsetOutOfRangeError(BrokerError):
    """The offset asked for is not in the log: retention took it, or it has not been written yet."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"topic {topic} partition {partition} offset {offset}")


class UnknownTopicError(BrokerError):
    """The cluster has no such topic or partition."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        self.topic = topic
        where = f"topic {topic}" if partition is None else f"topic {topic} partition {partition}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where, "the cluster has no such topic or partition")


class FencedError(BrokerError):
    """A newer producer has the transactional id: this one is out, and nothing of its open transaction is ever seen."""

    def __init__(self, transactional_id: str, code: int) -> None:
        self.transactional_id = transactional_id
        why = "a newer producer with this id has taken over; run one producer an id"
        super().__init__(code, f"transactional id {transactional_id}", why)


class InDoubtError(ClientError):
    """Whether a transaction was committed is not known: the request was sent, and what came back does not say."""


def code_name(code: int) -> str:
    """`ErrorCode.NAME` of a code, or its number where we do not know it (a newer broker)."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def is_retriable(code: int) -> bool:
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False

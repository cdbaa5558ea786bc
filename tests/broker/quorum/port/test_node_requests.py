"""What nodes ask of the controller is the same value on both sides of the wire."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quorum.port import node_requests as wire
from headrace.broker.requests.pieces import at_once
from headrace.controller.brokers import Registered, Registration
from headrace.controller.context import ApiError
from headrace.controller.directories import AssignDirectories, DirectoriesAssigned
from headrace.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.controller.in_sync import AlterPartitions, PartitionAlteration, PartitionsAltered
from headrace.controller.membership import FenceBrokers, RegisterBroker, RegisterController
from headrace.controller.producer_ids import AllocateProducerIds, ProducerIdBlock
from headrace.metadata import image as im
from headrace.wire.errors import ErrorCode

IDS = st.binary(min_size=16, max_size=16)
EPOCHS = st.integers(-1, 2**40)
ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER])
ENDPOINTS = st.lists(
    st.builds(im.Endpoint, st.text(max_size=5), st.text(max_size=9), st.integers(0, 65535), st.integers(0, 3)),
    max_size=3,
).map(tuple)
FEATURES = st.lists(
    st.builds(im.SupportedFeature, st.text(max_size=5), st.integers(0, 9), st.integers(0, 9)), max_size=3
).map(tuple)
TOPIC = bytes(15) + b"t"
PARTITION = im.Partition(0, (1, 2, 3), (bytes(16),) * 3, (1, 2, 3), 1, 4, 9)
IMAGE = im.ClusterImage(
    topics=im.TopicsImage({TOPIC: im.Topic("t", TOPIC, (PARTITION,))}, {"t": im.Topic("t", TOPIC, (PARTITION,))}),
    brokers={2: im.Broker(2, 77, bytes(16), (), (), None, False, False, ())},
)


def over(message: Any) -> Any:
    """The message after a way over the wire, in its newest version."""
    return type(message).decode(message.encode(message.MAX_VERSION), message.MAX_VERSION)


def form_of(request: Any) -> wire.WireForm:
    form = wire.wire_form(request, IMAGE)
    assert form is not None
    return form


@given(
    st.builds(
        Registration, st.integers(0, 9), IDS, ENDPOINTS, st.just(()), st.none() | st.text(max_size=4),
        st.lists(IDS, max_size=2).map(tuple), st.text(max_size=9), FEATURES, EPOCHS,
    )
)  # fmt: skip
def test_registrations(registration: Registration) -> None:
    request = RegisterBroker(registration)
    assert wire.read_registration(over(form_of(request).request)) == request


@given(st.builds(Registered, ERRORS, st.none(), EPOCHS))
def test_answers_to_registrations(reply: Registered) -> None:
    form = form_of(RegisterBroker(Registration(1, bytes(16), (), (), None, ())))
    response = form.response_class(error_code=reply.error, broker_epoch=reply.broker_epoch)  # type: ignore[call-arg]
    assert form.read(over(response)) == reply


@given(st.builds(im.Controller, st.integers(0, 9), IDS, ENDPOINTS, FEATURES, st.booleans()))
def test_registrations_of_controllers(controller: im.Controller) -> None:
    request = RegisterController(controller)
    form = form_of(request)
    assert wire.read_controller_registration(over(form.request)) == request
    refused = form.response_class(error_code=31, error_message="no")  # type: ignore[call-arg]
    assert form.read(over(refused)) == ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")


@given(
    st.builds(
        Heartbeat, st.integers(0, 9), EPOCHS, EPOCHS, st.booleans(), st.booleans(),
        st.lists(IDS, max_size=2).map(tuple), st.none() | st.lists(IDS, max_size=2).map(tuple),
    ),
    st.builds(HeartbeatReply, ERRORS, st.booleans(), st.booleans(), st.booleans()),
)  # fmt: skip
def test_heartbeats(heartbeat: Heartbeat, reply: HeartbeatReply) -> None:
    form = form_of(heartbeat)
    assert wire.read_heartbeat(over(form.request)) == heartbeat
    response: Any = form.response_class()
    response.error_code, response.is_caught_up, response.is_fenced, response.should_shut_down = reply
    assert form.read(over(response)) == reply


def test_changes_of_in_sync_sets() -> None:
    change = PartitionAlteration(TOPIC, 0, 4, 9, ((1, 70), (2, 77)), 0)
    gone = PartitionAlteration(bytes(16), 5, 1, 2, ((1, -1),), 1)
    request = AlterPartitions(1, 70, [change, gone])
    form = form_of(request)
    assert at_once(wire.read_alter_partitions(over(form.request), 3)) == request
    after = im.Partition(0, (1, 2, 3), (bytes(16),) * 3, (1, 2), 1, 4, 10)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    reply = PartitionsAltered(ErrorCode.NONE, [(TOPIC, 0, ErrorCode.NONE, after), (bytes(16), 5, unknown, None)])
    assert form.read(over(at_once(wire.altered_response(reply)))) == reply


def test_an_old_leader_knows_no_epochs_of_members() -> None:
    form = form_of(AlterPartitions(1, 70, [PartitionAlteration(TOPIC, 0, 4, 9, ((1, 70),), 0)]))
    form.request.topics[0].partitions[0].new_isr = [1, 2]  # type: ignore[attr-defined]
    asked = at_once(wire.read_alter_partitions(form.request, 2))  # type: ignore[arg-type]
    assert asked is not None and asked.changes[0].members == ((1, -1), (2, -1))


def test_producer_ids() -> None:
    form = form_of(AllocateProducerIds(2))
    said = over(form.request)
    assert (said.broker_id, said.broker_epoch) == (2, 77)
    response = form.response_class(producer_id_start=3000, producer_id_len=1000)  # type: ignore[call-arg]
    assert form.read(over(response)) == ProducerIdBlock(3000, 4000)


def test_directories() -> None:
    chosen = [(TOPIC, 0, b"a" * 16), (TOPIC, 1, b"b" * 16), (b"u" * 16, 0, b"a" * 16)]
    request = AssignDirectories(2, chosen, 77)
    form = form_of(request)
    read = at_once(wire.read_assignments(over(form.request)))
    assert sorted(read.chosen) == sorted(chosen) and read.broker_epoch == 77
    results = [(topic, index, ErrorCode.NONE) for topic, index, _ in read.chosen]
    reply = DirectoriesAssigned(ErrorCode.NONE, results)
    answer = form.read(over(at_once(wire.assigned_response(read, reply))))
    assert sorted(answer.results) == sorted(results)


def test_other_requests_have_no_wire_form() -> None:
    assert wire.wire_form(FenceBrokers([]), IMAGE) is None

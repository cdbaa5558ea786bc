"""Hypothesis strategies for histories of metadata records that a controller could have written."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headrace.metadata.image import RawRecord
from headrace.wire.messages import metadata_records as mr

_names = st.sampled_from(["a", "b", "my.topic", "x_y", "__consumer_offsets"])
_values = st.one_of(st.none(), st.sampled_from(["1", "compact", "", "ü"]))
_ids = st.integers(1, 6).map(lambda n: n.to_bytes(16, "big"))
_brokers = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Records in an order in which each can be applied: topics exist before their partitions, and so on."""
    level = draw(st.sampled_from([7, 13, 17, 23, 30]))
    records: list[Any] = [mr.FeatureLevelRecord(name="metadata.version", feature_level=level)]
    alive: dict[bytes, tuple[str, int]] = {}
    brokers: dict[int, int] = {}
    for step in range(draw(st.integers(0, 25))):
        records += draw(st.sampled_from(_STEPS))(draw, step, alive, brokers, level)
    return records


def _topic(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    name, topic_id = draw(_names), step.to_bytes(16, "little")
    if any(existing == name for existing, _ in alive.values()):
        return
    count = draw(st.integers(1, 3))
    alive[topic_id] = (name, count)
    yield mr.TopicRecord(name=name, topic_id=topic_id)
    for index in range(count):
        replicas = draw(_brokers)
        record = mr.PartitionRecord(
            partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas[:1], leader=replicas[0],
            leader_epoch=draw(st.integers(0, 5)), partition_epoch=0, removing_replicas=[], adding_replicas=[],
        )  # fmt: skip
        if level >= 17:
            record.directories = [draw(_ids) for _ in replicas]
        yield record


def _change(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    if not alive:
        return
    topic_id = draw(st.sampled_from(sorted(alive)))
    record = mr.PartitionChangeRecord(partition_id=draw(st.integers(0, alive[topic_id][1] - 1)), topic_id=topic_id)
    record.leader = draw(st.sampled_from([-2, -1, 0, 1]))
    if draw(st.booleans()):
        record.isr = draw(_brokers)
    if draw(st.booleans()):
        record.replicas = draw(_brokers)
        record.adding_replicas = draw(st.lists(st.integers(0, 3), max_size=2))
        if level >= 17:
            record.directories = [draw(_ids) for _ in record.replicas]
    if level >= 23 and draw(st.booleans()):
        record.eligible_leader_replicas = draw(st.lists(st.integers(0, 3), max_size=2))
        record.last_known_elr = draw(st.lists(st.integers(0, 3), max_size=2))
    record.leader_recovery_state = draw(st.sampled_from([-1, 0, 1]))
    yield record


def _delete(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    if alive:
        topic_id = draw(st.sampled_from(sorted(alive)))
        del alive[topic_id]
        yield mr.RemoveTopicRecord(topic_id=topic_id)


def _config(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    kind = draw(st.sampled_from([2, 4, 16, 32]))
    name = draw(_names) if kind != 4 else draw(st.sampled_from(["", "1"]))
    yield mr.ConfigRecord(
        resource_type=kind, resource_name=name, name=draw(st.sampled_from(["k", "j"])), value=draw(_values)
    )


def _broker(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    broker_id = draw(st.integers(0, 3))
    brokers[broker_id] = step
    record = mr.RegisterBrokerRecord(
        broker_id=broker_id, incarnation_id=draw(_ids), broker_epoch=step, rack=draw(st.sampled_from([None, "r"])),
        end_points=[mr.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[mr.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        fenced=draw(st.booleans()), in_controlled_shutdown=draw(st.booleans()),
    )  # fmt: skip
    if level >= 17:
        record.log_dirs = draw(st.lists(_ids, max_size=2))
    yield record


def _broker_change(
    draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int
) -> Any:
    if not brokers:
        return
    broker_id = draw(st.sampled_from(sorted(brokers)))
    epoch = brokers[broker_id]
    kind = draw(st.integers(0, 4))
    if kind == 0:
        yield mr.FenceBrokerRecord(id=broker_id, epoch=epoch)
    elif kind == 1:
        yield mr.UnfenceBrokerRecord(id=broker_id, epoch=epoch)
    elif kind == 2:
        del brokers[broker_id]
        yield mr.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)
    elif level >= 30 and kind == 3:
        yield mr.BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, cordoned_log_dirs=draw(st.lists(_ids, max_size=1))
        )
    else:
        yield mr.BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, fenced=draw(st.sampled_from([-1, 0, 1])),
            in_controlled_shutdown=draw(st.sampled_from([-1, 0, 1])),
        )  # fmt: skip


def _controller(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    if level >= 15:
        yield mr.RegisterControllerRecord(controller_id=draw(st.integers(0, 2)), incarnation_id=draw(_ids))
        if draw(st.booleans()):
            yield mr.UnregisterControllerRecord(controller_id=draw(st.integers(0, 2)))


def _kept(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    number = draw(st.integers(0, 9))
    entity = [mr.EntityData(entity_type="user", entity_name=draw(st.sampled_from([None, "", "u"])))]
    acl = draw(_ids)
    yield [
        mr.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=2.5),
        mr.ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
        mr.AccessControlEntryRecord(id=acl, resource_name="t", principal="User:x"),
        mr.RemoveAccessControlEntryRecord(id=acl),
        mr.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", iterations=4096),
        mr.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        mr.DelegationTokenRecord(owner="User:o", token_id="t"),
        mr.RemoveDelegationTokenRecord(token_id="t"),
        mr.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=step * 1000),
        RawRecord(99, b"\x01\x63\x00" + bytes([step])),
    ][number]


def _feature(draw: Any, step: int, alive: dict[bytes, tuple[str, int]], brokers: dict[int, int], level: int) -> Any:
    yield mr.FeatureLevelRecord(name="transaction.version", feature_level=draw(st.integers(0, 2)))
    yield mr.NoOpRecord()


_STEPS = (_topic, _topic, _change, _delete, _config, _broker, _broker_change, _controller, _kept, _feature)

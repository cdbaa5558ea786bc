"""meta.properties: which cluster, node and directory a log directory belongs to.

Java properties, version 1. Source: KIP-631, KIP-858.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.wire import uuids

FILE_NAME = "meta.properties"


class MetaPropertiesError(Exception):
    """A meta.properties file that cannot be read or is not of a format that this broker knows."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file; `directory_id` is zero where an older release wrote the file without one."""

    cluster_id: str
    node_id: int
    directory_id: bytes = bytes(16)


def encode_meta_properties(properties: MetaProperties, time_text: str) -> bytes:
    """The file's content; `time_text` goes to the comment that Java puts on top."""
    lines = [
        "#",
        f"#{time_text}",
        f"node.id={properties.node_id}",
        f"directory.id={uuids.to_text(properties.directory_id)}",
        "version=1",
        f"cluster.id={properties.cluster_id}",
    ]
    return ("\n".join(lines) + "\n").encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Reads the file's content. Raises MetaPropertiesError."""
    values: dict[str, str] = {}
    for line in data.decode("latin-1").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    version = values.get("version")
    if version != "1":
        known = "is missing" if version is None else f"is {version}"
        raise MetaPropertiesError(f"its version {known}; this broker reads version 1 (KRaft)")
    try:
        directory_id = values.get("directory.id")
        return MetaProperties(
            cluster_id=values["cluster.id"],
            node_id=int(values["node.id"]),
            directory_id=bytes(16) if directory_id is None else uuids.from_text(directory_id),
        )
    except (KeyError, ValueError) as error:
        raise MetaPropertiesError(f"it lacks a usable value: {error}") from error

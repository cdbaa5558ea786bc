"""How values are to be decoded: the options `valueFormat`, `valueSchema`, `valueDescriptor` and `valueHeader`.

Every error is a ValueError of one sentence. The options are self-contained: a file that an option names is read when
the query is planned, and its content is sent to the workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.values import Decoder

VALUE_FORMATS: Final = ("raw", "string", "json", "avro", "protobuf")
HEADERS: Final = ("none", "registry")
DESCRIBED: Final = ("json", "avro", "protobuf")
"""Formats that have a schema."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """A format, and the schema or options that decoding needs."""

    name: str = "raw"
    fields: pa.StructType | None = None
    """What a value holds, where it is a struct; None for JSON where a batch read is to infer it."""
    schema: str = ""
    """The JSON of an Avro schema, or the name of a Protobuf message."""
    descriptors: bytes = b""
    """The FileDescriptorSet with the message."""
    headed: bool = False
    """Whether every value begins with a schema registry's header."""

    @property
    def to_be_inferred(self) -> bool:
        """Whether the fields are still to be found out, from the first values of a batch read."""
        return self.name == "json" and self.fields is None

    def decoder(self, only: str | None = None) -> Decoder | None:
        """How values are decoded, the field `only` alone if it is given; None where they stay as they are."""
        if self.name == "raw":
            return None
        import pyarrow as pa

        from headrace.spark.values import HeadedDecoder, TextDecoder

        found: Decoder
        if self.name == "string":
            return TextDecoder()
        if self.name == "json":
            from headrace.spark.json_maps import json_decoder

            assert self.fields is not None
            found = json_decoder(pa.struct([field for field in self.fields if only in (None, field.name)]))
        elif self.name == "avro":
            from headrace.spark.avro_values import AvroDecoder

            found = AvroDecoder(self.schema, only)
        else:
            from headrace.spark.protobuf_values import ProtobufDecoder, indexes_bytes

            found = ProtobufDecoder(self.schema, self.descriptors, only)
            return HeadedDecoder(found, indexes_bytes) if self.headed else found
        return HeadedDecoder(found) if self.headed else found


RAW: Final = ValueFormat()


def value_format(options: Mapping[str, str]) -> ValueFormat:
    """What the options say, with defaults for what they leave out."""
    name = options.get("valueFormat", "raw").lower()
    if name not in VALUE_FORMATS:
        raise ValueError(f"The option 'valueFormat' must be one of {', '.join(VALUE_FORMATS)}, not {name!r}.")
    header = options.get("valueHeader", HEADERS[0]).lower()
    if header not in HEADERS:
        raise ValueError(f"The option 'valueHeader' must be {' or '.join(HEADERS)}, not {options['valueHeader']!r}.")
    headed = header == "registry"
    for option, given in (("valueSchema", "valueSchema" in options), ("valueHeader", headed)):
        if given and name not in DESCRIBED:
            raise ValueError(f"The option {option!r} is for the valueFormat json, avro or protobuf, not {name}.")
    if "valueDescriptor" in options and name != "protobuf":
        raise ValueError(f"The option 'valueDescriptor' is for the valueFormat protobuf, not {name}.")
    if name == "avro":
        return _avro(options, headed)
    if name == "protobuf":
        return _protobuf(options, headed)
    fields: pa.StructType | None = None
    if "valueSchema" in options:
        from headrace.spark.schemas import parse_schema

        try:
            fields = parse_schema(options["valueSchema"])
        except ValueError as error:
            raise ValueError(
                f"The option 'valueSchema' must look like 'id BIGINT, name STRING', but {error}."
            ) from None
    return ValueFormat(name, fields, headed=headed)


def _avro(options: Mapping[str, str], headed: bool) -> ValueFormat:
    schema = options.get("valueSchema")
    if schema is None:
        raise ValueError("Avro values need the option 'valueSchema', the JSON of their schema: they do not hold it.")
    try:
        from headrace.spark.avro_values import avro_type

        fields = avro_type(schema)
    except ImportError:
        raise ValueError("The valueFormat avro needs fastavro: pip install headrace[spark].") from None
    except ValueError as error:
        raise ValueError(f"The option 'valueSchema' must be the JSON of an Avro record, but {error}.") from None
    return ValueFormat("avro", fields, schema, headed=headed)


def _protobuf(options: Mapping[str, str], headed: bool) -> ValueFormat:
    message, path = options.get("valueSchema"), options.get("valueDescriptor")
    if message is None or path is None:
        raise ValueError(
            "Protobuf values need the options 'valueSchema', the name of a message, and 'valueDescriptor', a file "
            "that protoc --include_imports --descriptor_set_out wrote."
        )
    try:
        descriptors = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(
            f"The option 'valueDescriptor' names {path!r}, and headrace cannot read it: {error.strerror}."
        ) from None
    try:
        from headrace.spark.protobuf_values import protobuf_type

        fields = protobuf_type(message, descriptors)
    except ImportError:
        raise ValueError("The valueFormat protobuf needs protobuf: pip install headrace[spark].") from None
    except ValueError as error:
        raise ValueError(f"headrace cannot decode the message {message!r} of {path!r}: {error}.") from None
    return ValueFormat("protobuf", fields, message, descriptors, headed)

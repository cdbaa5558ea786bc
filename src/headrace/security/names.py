"""Who a certificate is for: its subject as Kafka writes it (`User:<DN>`), and what a change of it is compared by.

The text is that of Java's `X500Principal.getName()`: RFC 2253, the last part of the certificate first. Nine kinds of
attribute have a keyword; any other is written as its object identifier with the value in hexadecimal DER, as is a value
that is no text. Java reads text as UTF-8 whatever its tag says, and so does this.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

from . import der
from .der import DerError, Element

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has words for; Java uses no other word in `getName()`."""

_UTF8, _PRINTABLE = 0x0C, 0x13
_TEXTS: Final = frozenset({_UTF8, _PRINTABLE, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANK: Final = "".join(map(chr, range(0x21)))
"""What Java's `trim` cuts off."""
_EDGES: Final = " \r"
"""What Java escapes at either end of a value."""

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_SUBJECT_ALTERNATIVES: Final = bytes.fromhex("551d11")


class Attribute(NamedTuple):
    """One pair of a distinguished name: object identifier, and the value's tag, content and whole element."""

    kind: str
    tag: int
    value: bytes
    raw: bytes


Name = tuple[tuple[Attribute, ...], ...]
"""A distinguished name in the order of the certificate: parts, each of one attribute or more."""


CanonicalName = tuple[tuple[tuple[str, str], ...], ...]
"""What two names that Java takes for equal have in common."""


class Certificate(NamedTuple):
    """The names in a certificate; `alternatives` are the subject's general names, each as its element."""

    subject: Name
    issuer: Name
    alternatives: frozenset[bytes]


def read(certificate: bytes) -> Certificate:
    """The names in a certificate in DER (RFC 5280). Raises DerError; nothing else of it is checked."""
    outer = der.whole(certificate, der.SEQUENCE)
    parts = der.children(certificate, der.element(certificate, outer.body, outer.end))
    if parts and parts[0].tag == _VERSION:
        parts = parts[1:]
    if len(parts) < 6:
        raise DerError("a certificate ends early")
    issuer, subject = (_name(certificate, part) for part in (parts[2], parts[4]))
    extensions = [part for part in parts[6:] if part.tag == _EXTENSIONS]
    return Certificate(subject, issuer, _alternatives(certificate, extensions[0]) if extensions else frozenset())


def _name(data: bytes, at: Element) -> Name:
    if at.tag != der.SEQUENCE:
        raise DerError("a name is no sequence")
    return tuple(tuple(_attribute(data, pair) for pair in der.children(data, part)) for part in der.children(data, at))


def _attribute(data: bytes, at: Element) -> Attribute:
    pair = der.children(data, at)
    if len(pair) != 2:
        raise DerError("an attribute of a name is no pair")
    kind, value = pair
    return Attribute(der.object_identifier(data, kind), value.tag, der.content(data, value), der.raw(data, value))


def _alternatives(data: bytes, extensions: Element) -> frozenset[bytes]:
    for extension in der.children(data, der.element(data, extensions.body, extensions.end)):
        fields = der.children(data, extension)
        if len(fields) >= 2 and der.content(data, fields[0]) == _SUBJECT_ALTERNATIVES:
            held = der.content(data, fields[-1])
            return frozenset(der.raw(held, each) for each in der.children(held, der.whole(held, der.SEQUENCE)))
    return frozenset()


def text(name: Name) -> str:
    """A name as Java's `X500Principal.getName()` gives it; empty for one without parts."""
    return ",".join("+".join(_pair(attribute) for attribute in part) for part in reversed(name))


def subject(certificate: bytes) -> str:
    """The subject of a certificate in DER, as the name in Kafka's `User:<name>`.

    Raises DerError, also where nobody is named at all: Java takes an empty subject only beside alternative names.
    """
    names = read(certificate)
    if not names.subject and not names.alternatives:
        raise DerError("a certificate of nobody")
    return text(names.subject)


def _pair(attribute: Attribute) -> str:
    keyword = KEYWORDS.get(attribute.kind)
    if keyword is None or attribute.tag not in _TEXTS:
        return f"{keyword or attribute.kind}=#{attribute.raw.hex()}"
    escaped = []
    value = attribute.value.decode("utf-8", "replace")
    for character in value:
        if character in _ESCAPED:
            escaped.append("\\" + character)
        else:
            escaped.append("\\00" if character == "\0" else character)
    first = len(value) - len(value.lstrip(_EDGES))
    last = len(value.rstrip(_EDGES))
    for place in (*range(first), *range(max(first, last), len(value))):
        escaped[place] = "\\" + escaped[place]
    return f"{keyword}={''.join(escaped)}"


def canonical(name: Name) -> CanonicalName:
    """A name for comparison: neither case, nor runs of spaces, nor the form of Unicode matters in PrintableString and
    UTF8String; the order within a part matters in none."""
    return tuple(tuple(sorted(_canonical(attribute) for attribute in part)) for part in name)


def _canonical(attribute: Attribute) -> tuple[str, str]:
    if attribute.tag not in (_UTF8, _PRINTABLE):
        return attribute.kind, "#" + attribute.raw.hex()
    value = attribute.value.decode("utf-8", "replace").strip(_BLANK)
    words = unicodedata.normalize("NFKD", value).split(" ")
    return attribute.kind, " ".join(word for word in words if word).upper().lower()

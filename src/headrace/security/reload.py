"""Whether a store that changed may take the place of another while a listener runs, as Kafka's SslFactory decides it.

A listener's certificate may be renewed, not become somebody else's: clients that check names would be cut off by a
mistake in a file. Two settings lift that (KIP-978). Connections that are open stay as they are, whatever happens here.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import names
from .stores.entries import KeyEntry, TrustedCertificates


def keystore_refusal(
    old: KeyEntry | None, new: KeyEntry | None, *, allow_dn_changes: bool, allow_san_changes: bool
) -> str:
    """Why `new` may not replace `old`, in one line; empty where it may.

    The settings are `ssl.allow.dn.changes` and `ssl.allow.san.changes`. Without the first, subjects must stay the same;
    without the second, alternative names may be added and not taken away; without both of them, there must be as many
    entries as before. Both stores have been read, so their certificates can be.
    """
    if old is None or new is None:
        return _appears_or_vanishes("keystore", old is not None, new is not None)
    if allow_dn_changes and allow_san_changes:
        return ""
    before, after = _entries(old), _entries(new)
    if len(before) != len(after):
        return f"the new keystore has {len(after)} entries, and the one in use {len(before)}: keep their number"
    for was, is_now in zip(before, after):
        if not allow_dn_changes and not _is_same(was.subject, is_now.subject):
            return (
                f"the new certificate is for {names.text(is_now.subject)!r}, and the one in use for "
                f"{names.text(was.subject)!r}: set ssl.allow.dn.changes to let it change"
            )
        missing = len(was.alternatives - is_now.alternatives)
        if not allow_san_changes and missing:
            return (
                f"the new certificate for {names.text(is_now.subject)!r} lacks {missing} of the alternative names of "
                "the one in use: set ssl.allow.san.changes to let them go"
            )
    return ""


def truststore_refusal(old: TrustedCertificates | None, new: TrustedCertificates | None) -> str:
    """Why `new` may not replace `old`, in one line; empty where it may: who is trusted may change, but not whether
    anybody is."""
    return _appears_or_vanishes("truststore", old is not None, new is not None)


def _appears_or_vanishes(what: str, was: bool, is_now: bool) -> str:
    if was == is_now:
        return ""
    if is_now:
        return f"a listener that has no {what} cannot be given one while it runs: make a new listener"
    return f"the {what} of a listener cannot be taken away while it runs: remove the listener"


def _entries(store: KeyEntry) -> list[names.Certificate]:
    """The certificates of a store that are compared: its own first, the others in the order of their names."""
    others: Iterable[names.Certificate] = (names.read(each) for each in store.others)
    return [names.read(store.chain[0]), *sorted(others, key=lambda each: names.canonical(each.subject))]


def _is_same(one: names.Name, other: names.Name) -> bool:
    """Whether two subjects are equal to Java, or have the same text but for case: a renewed certificate may write its
    subject in another kind of string."""
    return names.canonical(one) == names.canonical(other) or names.text(one).lower() == names.text(other).lower()

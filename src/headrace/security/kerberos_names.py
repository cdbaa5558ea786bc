"""How a Kerberos principal becomes the name of a principal here: `sasl.kerberos.principal.to.local.rules` (KIP-190).

A principal is `primary@REALM` or `primary/instance@REALM`. The rules are tried in order, and the first that applies
decides. DEFAULT takes the primary of a principal of the own realm. The other form is

    RULE:[n:format](pattern)s/pattern/replacement/g/L

It applies to principals of `n` components. `format` puts them together (`$0` is the realm, `$1` and `$2` the
components); the first pattern, if there is one, must match that whole text; the second one is replaced in it, once or
(g) everywhere; L or U make the result lower or upper case. A result with `/` or `@` in it ends the login.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.config.java_regex import JavaPattern, JavaRegexError, compiled

from .principal_rules import (
    DEFAULT,
    RULES_MAX,
    PrincipalRulesError,
    Replacement,
    cased,
    filled,
    may_be_matched,
    replacement_of,
)

_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<components>[0-9]{1,4}):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<every>g)?)?"
    r"/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


@dataclass(frozen=True)
class KerberosRule:
    """One RULE. `form` is texts and components by number; `old` is replaced `every` time or once."""

    components: int
    form: Replacement
    match: JavaPattern | None
    old: JavaPattern | None
    new: Replacement
    every: bool
    case: str

    def apply(self, names: Sequence[str]) -> str | None:
        """What the rule makes of a principal, its realm first; None where it does not apply."""
        if len(names) - 1 != self.components:
            return None
        text = "".join(part if isinstance(part, str) else names[part] for part in self.form)
        if self.match is not None and not self.match.is_whole(text):
            return None
        if self.old is None:
            return text
        return self.old.replaced(text, lambda match: filled(self.new, match), once=not self.every)


@dataclass(frozen=True)
class KerberosRules:
    """Rules in their order; None among them is DEFAULT, for principals of `realm`."""

    realm: str
    rules: tuple[KerberosRule | None, ...]

    def principal_name(self, principal: str) -> str | None:
        """The name after `User:`, or None where the login fails: no rule applies, or one makes no simple name."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None or not may_be_matched(principal):
            return None
        primary, instance, realm = found.groups()
        names = [realm, primary] if instance is None else [realm, primary, instance]
        for rule in self.rules:
            if rule is None:
                if realm == self.realm:
                    return primary
                continue
            name = rule.apply(names)
            if name is not None:
                return None if _NOT_SIMPLE.search(name) else cased(name, rule.case)
        return None


def parsed(rules: Sequence[str], realm: str) -> KerberosRules:
    """The rules of a setting, which is a list, for a broker of `realm`. Raises PrincipalRulesError."""
    if len(rules) > RULES_MAX:
        raise PrincipalRulesError(f"more than {RULES_MAX} rules")
    return KerberosRules(realm, tuple(None if rule == DEFAULT else _rule(rule) for rule in rules))


def _rule(text: str) -> KerberosRule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise PrincipalRulesError(
            f"{text!r} is no rule: DEFAULT or RULE:[n:format](pattern)s/pattern/replacement/g/L is expected"
        )
    components = int(found["components"])
    try:
        match = compiled(found["match"]) if found["match"] is not None else None
        old = compiled(found["old"]) if found["old"] is not None else None
    except JavaRegexError as error:
        raise PrincipalRulesError(str(error)) from None
    new = replacement_of(found["new"], old.exact, literal_beyond=False) if old is not None else ()
    return KerberosRule(
        components, _form(found["format"], components), match, old, new, found["every"] is not None, found["case"] or ""
    )


def _form(text: str, components: int) -> Replacement:
    """The format of a rule in pieces. Raises PrincipalRulesError where it asks for what a principal has not."""
    parts: list[str | int] = []
    at = 0
    for parameter in _PARAMETER.finditer(text):
        parts.append(text[at : parameter.start()])
        digits = parameter[1]
        if not digits or len(digits) > 4 or int(digits) > components:
            raise PrincipalRulesError(
                f"the format {text!r} has a $ that is no component: $0 to ${components} are there"
            )
        parts.append(int(digits))
        at = parameter.end()
    parts.append(text[at:])
    return tuple(parts)

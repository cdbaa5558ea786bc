"""How a distinguished name becomes the name of a principal: `ssl.principal.mapping.rules`.

A comma-separated list of DEFAULT, which takes the name as it is, and `RULE:pattern/replacement/[LU]`, whose pattern
must match the whole name. The first rule that matches decides; where none does, the connection fails. A replacement
has `$1` or `${name}` for what a group matched, and L or U make the result lower or upper case. A slash in a rule is
`\\/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headrace.config.java_regex import JavaPattern, JavaRegexError, compiled, ends_a_line

DEFAULT: Final = "DEFAULT"
RULES_MAX: Final = 256
MATCHED_CHARACTERS_MAX: Final = 1_024
"""The longest name that a pattern is tried on: the holder of a certificate chooses its name."""

_SPACE: Final = " \t\n\r\x0b\f"
_RULE: Final = "RULE:"
_PART: Final = re.compile(r"((?:\\.|[^\\/])*)/")
_NAMED: Final = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


class PrincipalRulesError(ValueError):
    """The rules cannot be read. The text is one line that shows the rule."""


Replacement = tuple[str | int, ...]
"""The replacement of a match: texts, and groups by number."""


def filled(replacement: Replacement, match: re.Match[str]) -> str:
    """A replacement with what the groups of a match hold; a group that took no part is empty."""
    return "".join(part if isinstance(part, str) else match[part] or "" for part in replacement)


@dataclass(frozen=True)
class Rule:
    """One RULE. `case` is L, U or empty."""

    pattern: JavaPattern
    replacement: Replacement
    case: str

    def apply(self, name: str) -> str | None:
        """What the rule makes of a name; None where its pattern does not match the whole.

        Every match within the name is replaced then, as in Kafka: `.*` matches once more at the end.
        """
        if not self.pattern.is_whole(name):
            return None
        return cased(self.pattern.replaced(name, lambda match: filled(self.replacement, match)), self.case)


def may_be_matched(name: str) -> bool:
    """Whether patterns are tried on a name. A long one, or one that ends with a line, cannot be matched in linear time;
    it fails whatever the rules are, so that nobody gets past a rule to DEFAULT by it."""
    return len(name) <= MATCHED_CHARACTERS_MAX and not ends_a_line(name)


def cased(text: str, case: str) -> str:
    """A text in lower case (L), in upper case (U), or as it is."""
    return {"L": text.lower, "U": text.upper}[case]() if case else text


@dataclass(frozen=True)
class PrincipalRules:
    """Rules in their order; None among them is DEFAULT."""

    rules: tuple[Rule | None, ...]

    def principal_name(self, distinguished_name: str) -> str | None:
        """The name after `User:`, or None where no rule matches: that connection fails."""
        for rule in self.rules:
            if rule is None:
                return distinguished_name
            if not may_be_matched(distinguished_name):
                return None
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def parsed(text: str) -> PrincipalRules:
    """The rules in a value of `ssl.principal.mapping.rules`. Raises PrincipalRulesError."""
    rules: list[Rule | None] = []
    at = 0
    while at < len(text):
        if text[at] == "," or text[at] in _SPACE:
            at += 1
        elif text.startswith(_RULE, at):
            rule, at = _rule(text, at)
            rules.append(rule)
        else:
            end = text.find(",", at)
            word = text[at : end if end >= 0 else len(text)].rstrip(_SPACE)
            if word != DEFAULT:
                raise PrincipalRulesError(f"{word!r} is no rule: DEFAULT or RULE:pattern/replacement/[LU] is expected")
            rules.append(None)
            at += len(word)
        if len(rules) > RULES_MAX:
            raise PrincipalRulesError(f"more than {RULES_MAX} rules")
    return PrincipalRules(tuple(rules))


def _rule(text: str, at: int) -> tuple[Rule, int]:
    """The rule at a position, and the position of the comma behind it."""
    pattern = _PART.match(text, at + len(_RULE))
    replacement = _PART.match(text, pattern.end()) if pattern is not None else None
    if pattern is None or replacement is None:
        raise PrincipalRulesError(f"{text[at:]!r} does not end: RULE:pattern/replacement/[LU] is expected")
    end = text.find(",", replacement.end())
    end = end if end >= 0 else len(text)
    case = text[replacement.end() : end].rstrip(_SPACE)
    if case not in ("", "L", "U"):
        raise PrincipalRulesError(f"{text[at:end]!r} ends with {case!r}: nothing, L or U is expected")
    try:
        matching = compiled(pattern[1])
    except JavaRegexError as error:
        raise PrincipalRulesError(str(error)) from None
    return Rule(matching, replacement_of(replacement[1], matching.exact), case), end


def replacement_of(text: str, pattern: re.Pattern[str], *, literal_beyond: bool = True) -> Replacement:
    """A replacement in pieces, as Java reads it: a backslash before a literal character, `$` before a group.

    A number beyond the pattern's groups is literal in these rules, unless the pattern has no group at all; without
    `literal_beyond` it is an error, as it is to Java. Raises PrincipalRulesError.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if at + 1 == len(text):
                raise PrincipalRulesError(f"the replacement {text!r} ends with a backslash")
            parts.append(text[at + 1])
            at += 2
        elif character != "$":
            parts.append(character)
            at += 1
        else:
            part, at = _group(text, at + 1, pattern, literal_beyond and pattern.groups > 0)
            parts.append(part)
    return tuple(parts)


def _group(text: str, at: int, pattern: re.Pattern[str], literal_beyond: bool) -> tuple[str | int, int]:
    """Reads the reference after a `$`; returns its meaning and where it ends."""
    named = _NAMED.match(text, at)
    if named is not None and named[1] in pattern.groupindex:
        return pattern.groupindex[named[1]], named.end()
    if not (text[at : at + 1].isascii() and text[at : at + 1].isdecimal()):
        raise PrincipalRulesError(f"the replacement {text!r} has a $ that names no group: write \\$ for the sign")
    number = int(text[at])
    if number > pattern.groups:
        if not literal_beyond:
            raise PrincipalRulesError(f"the replacement {text!r} names a group that the pattern has not")
        return "$", at
    at += 1
    while text[at : at + 1].isascii() and text[at : at + 1].isdecimal():
        if number * 10 + int(text[at]) > pattern.groups:
            break
        number = number * 10 + int(text[at])
        at += 1
    return number, at

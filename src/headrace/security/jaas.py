"""One line of `sasl.jaas.config`: a login module, a control flag, and options, as Kafka reads it.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="s\\"cret" user_ann='x';

Kafka reads it with Java's StreamTokenizer, and so do we: words of letters, digits, `.`, `-`, `_` and `$`; quotes of
both kinds with Java's escapes, which end at the end of a line; `//`, `/* */` and `/` comments; a bare number is no
value. Source: KIP-85, java.io.StreamTokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE, KERBEROS_MODULE)
"""The login modules whose options mean something here."""
REFUSED_MODULES: Final = (
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
)
"""Modules that would fetch and run code from any address; Kafka refuses them too."""
FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")

_ESCAPES: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = "01234567"
_DIGITS: Final = "0123456789"


class JaasError(ValueError):
    """A line that cannot be taken: one sentence, which shows no value of it."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """What a line says. The options hold passwords, and are not shown."""

    name: str
    flag: str
    options: dict[str, str] = field(repr=False)


class _Token(NamedTuple):
    """A word, a quoted string, a number (whose text nobody may use), or one other character."""

    kind: str
    text: str | None


_END: Final = _Token("end", None)


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def next(self) -> _Token:
        """The next one; `_END` when nothing is left."""
        self._skip()
        text, at = self._text, self._at
        if at >= len(text):
            return _END
        char = text[at]
        if char in "\"'":
            return self._quoted(char)
        if char in _DIGITS or char in "-.":
            return self._number()
        if _is_letter(char):
            return self._word()
        self._at += 1
        return _Token(char, None)

    def _skip(self) -> None:
        """Goes past spaces and comments."""
        text = self._text
        while self._at < len(text):
            if text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                self._at = len(text) if end < 0 else end + 2
            elif text[self._at] == "/":
                while self._at < len(text) and text[self._at] not in "\r\n":
                    self._at += 1
            elif text[self._at] <= " ":
                self._at += 1
            else:
                return

    def _word(self) -> _Token:
        start = self._at
        while self._at < len(self._text) and (
            _is_letter(self._text[self._at]) or self._text[self._at] in "0123456789."
        ):
            self._at += 1
        return _Token("word", self._text[start : self._at])

    def _number(self) -> _Token:
        text, start = self._text, self._at
        if text[start] == "-":
            self._at += 1
            if text[self._at : self._at + 1] not in (*_DIGITS, "."):
                return _Token("-", None)
        has_point = False
        while self._at < len(text) and (text[self._at] in _DIGITS or (text[self._at] == "." and not has_point)):
            has_point |= text[self._at] == "."
            self._at += 1
        return _Token("number", None)

    def _quoted(self, quote: str) -> _Token:
        text = self._text
        self._at += 1
        chars: list[str] = []
        while self._at < len(text) and text[self._at] not in (quote, "\n", "\r"):
            char = text[self._at]
            self._at += 1
            chars.append(self._escaped() if char == "\\" and self._at < len(text) else char)
        if text[self._at : self._at + 1] == quote:
            self._at += 1
        return _Token("quoted", "".join(chars))

    def _escaped(self) -> str:
        """What a backslash and what follows it mean."""
        char = self._text[self._at]
        self._at += 1
        if char not in _OCTAL:
            return _ESCAPES.get(char, char)
        digits = char
        while len(digits) < (3 if char <= "3" else 2) and self._text[self._at : self._at + 1] in (*_OCTAL,):
            digits += self._text[self._at]
            self._at += 1
        return chr(int(digits, 8))


def _is_letter(char: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in "-_$" or char >= "\xa0"


def parse_jaas(line: str) -> LoginModule:
    """The one login module of a line. Raises JaasError, also for a module that is refused or unknown."""
    tokens = _Tokens(line)
    first = tokens.next()
    if first is _END:
        raise JaasError("it names no login module")
    module = _entry(first, tokens)
    if tokens.next() is not _END:
        raise JaasError("it holds more than one login module, or something behind the semicolon")
    if module.name in REFUSED_MODULES:
        raise JaasError(f"the login module {module.name} is refused")
    if module.name not in MODULES:
        raise JaasError(f"the login module {module.name} is not known; there are {', '.join(MODULES)}")
    return module


def _entry(first: _Token, tokens: _Tokens) -> LoginModule:
    if first.text is None or "." not in first.text:
        # Not shown: who forgets the rest of the line may have written the password alone.
        raise JaasError("it begins with no login module, whose name has dots")
    flag = tokens.next()
    if flag.text is None:
        raise JaasError(f"no control flag follows the login module; they are {', '.join(FLAGS)}")
    if flag.text.upper() not in FLAGS:
        raise JaasError(f"what follows the login module is none of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while (key := tokens.next()) is not _END and key.kind != ";":
        if key.text is None:
            raise JaasError("an option has no name, or a value holds a character that needs quotes around it")
        is_given = tokens.next().kind == "="
        value = tokens.next().text if is_given else None
        if value is None:
            # Not named: behind a password that needs quotes, what looks like an option is its other half.
            raise JaasError(f"option {len(options) + 1} has no value; numbers, and what holds blanks, need quotes")
        options[key.text] = value
    if key is _END:
        raise JaasError("a semicolon must end it")
    return LoginModule(first.text, flag.text.upper(), options)

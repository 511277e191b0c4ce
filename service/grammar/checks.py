"""Whether a text matches a content (tags.py): a schema, a regex or a grammar."""

from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from service.grammar.grammars import compiled_of
from service.grammar.recognizer import Recognizer
from service.steps import in_one_go

MAX_CHECKED_CHARS = 1 << 20
"""The longest text that is checked against a schema or a regex."""

CHECKS_CACHED = 32
"""A validator may have megabytes of patterns."""

_GRAMMAR = '{"type":"grammar"'


class Checker(Recognizer):
    """One text, as it is sampled, against a Lark grammar: some 5 µs a character, at most 150."""

    def mismatch(self) -> str | None:
        """Why the text doesn't match as it stands, None where it does. The words quote nothing of the text."""
        if self.exhausted:
            return "it is too long for its grammar to be checked"
        return None if self.matched else "it does not match the grammar"


def is_grammar(content: str) -> bool:
    """Whether it is a Lark grammar, which takes long to check."""
    return content.startswith(_GRAMMAR)


def checker(content: str) -> Generator[None, None, Checker]:
    """What checks a text piece by piece against a Lark grammar; made in steps."""
    return Checker((yield from compiled_of(msgspec.json.decode(content)["lark"])))


def mismatch(content: str, text: str) -> str | None:
    """Why a text as a whole doesn't match a content, None where it does. The words quote nothing of the text.

    A schema or a regex takes some 2 ms for 100,000 characters, and up to 20 ms more where large patterns are new.
    """
    if is_grammar(content):
        checking = in_one_go(checker(content))
        checking.feed(text)
        return checking.mismatch()
    if len(text) > MAX_CHECKED_CHARS:
        return f"it has {len(text)} characters, and at most {MAX_CHECKED_CHARS} can be checked"
    kind, check = _check(content)
    if kind == "regex":
        return None if check(text) else "it does not match the pattern"
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it is not valid JSON"
    try:
        return None if check(value) else "it does not match the schema"
    except ValueError:  # jsonschema-rs has limits of its own
        return "it has numbers or a depth that can't be checked"


@lru_cache(maxsize=CHECKS_CACHED)
def _check(content: str) -> tuple[str, Callable[[Any], bool]]:
    """The kind of a schema or a regex, and what checks it: with patterns that never backtrack, and without fetching.

    It says yes or no. To say why not, jsonschema-rs looks at each branch of each `anyOf` anew, in times that multiply.
    """
    form = msgspec.json.decode(content)
    schema = form["json_schema"] if form["type"] == "json_schema" else {"pattern": f"^(?:{form['pattern']})$"}
    validator = jsonschema_rs.Draft202012Validator(
        schema, offline=True, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions()
    )
    return form["type"], validator.is_valid

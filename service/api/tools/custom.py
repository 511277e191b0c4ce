"""Custom tools, whose input is a text: how one is declared to the model, and what its calls hold.

gpt-oss was trained on functions alone, so a custom tool is shown as one. Where any text will do it has one parameter,
`input`, and its calls are JSON objects that are unwrapped again: a form that the model knows well, and that shows
where a text ends. Where a grammar must hold, the content of a call is the bare text under that grammar, which JSON's
escapes would bend; its type is `string` then, and a comment tells the grammar.
"""

from collections.abc import Generator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.api.decoding import decode, decoder_of
from service.api.tools.callee import Callee
from service.errors import invalid_value
from service.grammar.grammars import check_regex, held_grammar
from service.grammar.tags import grammar_content, regex_content, schema_content
from service.harmony.typescript import Function

DESCRIPTION = Annotated[str, Meta(max_length=1_048_576)]

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The schema of a call's content where the input is any text."""

TEXT = schema_content(INPUT)
"""What such a call's content must match."""


class CustomTool(msgspec.Struct, forbid_unknown_fields=True):
    """A custom tool as sent."""

    type: str
    name: str
    description: DESCRIPTION | None = None
    format: msgspec.Raw = msgspec.Raw(b"null")
    defer_loading: bool | None = None
    async_: bool | None = msgspec.field(default=None, name="async")
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class _Text(msgspec.Struct, forbid_unknown_fields=True, tag="text", tag_field="type"):
    """Any text."""


class _Grammar(msgspec.Struct, forbid_unknown_fields=True, tag="grammar", tag_field="type"):
    """Texts that match a definition."""

    syntax: Literal["lark", "regex"]
    definition: str


_FORMAT = decoder_of(_Text | _Grammar | None)


def read_custom(
    tool: CustomTool, where: str, namespace: str | None
) -> Generator[None, None, tuple[Callee, Function, dict[str, Any]]]:
    """The tool as it is called, as the model sees it, and as it is echoed; in steps, for its grammar.

    Raises InvalidRequest, for a grammar that can't be held too. `where` is its place in the request.
    """
    form = decode(tool.format, _FORMAT, f"{where}.format") or _Text()
    echo: dict[str, Any] = {
        "type": "custom",
        "name": tool.name,
        "description": tool.description,
        "format": msgspec.to_builtins(form),
    }
    about = tool.description or ""
    if isinstance(form, _Text):
        callee = Callee(tool.name, "custom", namespace, content=TEXT, wrapped=True)
        return callee, Function(tool.name, about, INPUT), echo
    if not form.definition.strip():
        raise invalid_value(f"{where}.format.definition", repr(form.definition), "Give the grammar itself.")
    content = yield from _held(form, f"{where}.format.definition")
    callee = Callee(tool.name, "custom", namespace, content=content)
    return callee, Function(tool.name, f"{about}\n\n{_told(form)}".lstrip("\n"), {"type": "string"}), echo


def _told(grammar: _Grammar) -> str:
    """What the model is told of a grammar."""
    kind = "this Lark grammar" if grammar.syntax == "lark" else "this regular expression"
    return f"The input is plain text, not JSON. It must match {kind}:\n{grammar.definition.strip()}"


def _held(grammar: _Grammar, where: str) -> Generator[None, None, str]:
    """The content of the texts that match a grammar. Raises InvalidRequest for one that can't be held."""
    if grammar.syntax == "lark":
        ebnf = yield from held_grammar(grammar.definition, where)
        return grammar_content(grammar.definition, ebnf)
    return regex_content(check_regex(grammar.definition, where))

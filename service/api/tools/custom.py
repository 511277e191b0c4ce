"""Custom tools, whose input is a text: their declaration in the prompt, and the format of their calls.

gpt-oss was trained on functions alone, so a custom tool is shown as one. Where any text will do it has one parameter,
`input`, and its calls are JSON objects that are unwrapped again: the model knows this form well, and it shows where a
text ends. Under a grammar the content of a call is the bare text, as JSON's escapes would not match it; its
type is `string` then, and a comment shows the grammar.
"""

from collections.abc import Generator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from service.api.tools.callee import Callee
from service.decoding import ABSENT, decode
from service.errors import invalid_value
from service.grammar.grammars import enforced_grammar
from service.grammar.regex import enforced_regex
from service.grammar.schemas import enforced_schema
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
"""The format of such a call's content."""


class CustomTool(msgspec.Struct, forbid_unknown_fields=True):
    """A custom tool as sent."""

    type: str
    name: str
    description: DESCRIPTION | None = None
    format: msgspec.Raw = ABSENT
    defer_loading: bool | None = None
    async_: bool | None = msgspec.field(default=None, name="async")
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class _Text(msgspec.Struct, forbid_unknown_fields=True, tag="text", tag_field="type"):
    """Any text."""


class _Grammar(msgspec.Struct, forbid_unknown_fields=True, tag="grammar", tag_field="type"):
    """Texts that match a definition."""

    syntax: Literal["lark", "regex"]
    definition: str


class Declared(NamedTuple):
    """A tool that the caller runs: as it is called, as the model sees it, as it is echoed, and the work that makes the
    format of a call's content, None for any.
    """

    callee: Callee
    shown: Function
    echo: dict[str, Any]
    content: Generator[None, None, str | None]


def arguments(
    schema: dict[str, Any] | None, where: str, *, free: str | None, strict: bool = False
) -> Generator[None, None, str | None]:
    """The format of a call's arguments, by the schema at `where`: `free` without a schema, or for one that can't be
    enforced. If it is `strict`, such a schema raises InvalidRequest.
    """
    if schema is None:
        return free
    enforced = yield from enforced_schema(schema, where, strict=strict)
    return free if enforced is None else schema_content(enforced)


def read_custom(tool: CustomTool, where: str, namespace: str | None) -> Declared:
    """The custom tool at `where`. Raises InvalidRequest; so does its work, for its grammar."""
    form = decode(tool.format, _Text | _Grammar | None, f"{where}.format") or _Text()
    echo: dict[str, Any] = {
        "type": "custom",
        "name": tool.name,
        "description": tool.description,
        "format": msgspec.to_builtins(form),
    }
    shown = Function(tool.name, tool.description or "", INPUT)
    if isinstance(form, _Grammar):
        if not form.definition.strip():
            raise invalid_value(f"{where}.format.definition", repr(form.definition), "Give the grammar itself.")
        shown = Function(tool.name, f"{shown.description}\n\n{_shown(form)}".lstrip("\n"), {"type": "string"})
    callee = Callee(tool.name, "custom", namespace, wrapped=isinstance(form, _Text))
    return Declared(callee, shown, echo, _content(form, f"{where}.format.definition"))


def _shown(grammar: _Grammar) -> str:
    """The prompt's words on a grammar."""
    kind = "this Lark grammar" if grammar.syntax == "lark" else "this regular expression"
    return f"The input is plain text, not JSON. It must match {kind}:\n{grammar.definition.strip()}"


def _content(form: _Text | _Grammar, where: str) -> Generator[None, None, str]:
    if isinstance(form, _Text):
        return TEXT
    if form.syntax == "regex":
        return regex_content(enforced_regex(form.definition, where))
    ebnf = yield from enforced_grammar(form.definition, where)
    return grammar_content(form.definition, ebnf)

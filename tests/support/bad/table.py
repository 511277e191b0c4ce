"""How the tables of bad requests are written: a request, and what its refusal holds.

A body is JSON's value, or a function that makes its bytes where they are large or no JSON at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.process import Settings
from tests.support.service.process import MODEL

MIB = 1 << 20
LIMIT: int = Settings.model_fields["max_body_bytes"].default
UNKNOWN = "resp_" + "0" * 48
CREATE = "/v1/responses"
JSON = "application/json"

MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"
UNSUPPORTED, STRANGE = "unsupported_parameter", "unknown_parameter"
"""The codes of most refusals."""


@dataclass(frozen=True)
class Bad:
    """A request and what its refusal holds; `words` stand in the message."""

    body: dict[str, Any] | Callable[[], bytes] | None
    code: str | None
    param: str | None
    words: str
    status: int = 400
    method: str = "POST"
    path: str = CREATE
    kind: str = JSON


Table = dict[str, Bad]


def create(param: str, value: Any, code: str, words: str, *, named: str | None = None, **others: Any) -> Bad:
    """A create request that is right but for one parameter."""
    return Bad({"model": MODEL, "input": "hi", param: value, **others}, code, named or param, words)


def items(code: str | None, param: str, words: str, *values: Any, **others: Any) -> Bad:
    """A create request with these input items."""
    return Bad({"model": MODEL, "input": list(values), **others}, code, param, words)


def part(code: str, member: str, words: str, value: Any) -> Bad:
    """A create request whose message has this content part."""
    where = f"input[0].content[0].{member}" if member else "input[0].content[0]"
    return items(code, where, words, {"role": "user", "content": [value]})


def history(code: str | None, param: str, words: str, *messages: Any) -> Bad:
    """A create request with a client's own history."""
    return Bad({"model": MODEL, "input": "hi", "previous_input_messages": list(messages)}, code, param, words)


def tools(code: str, param: str, words: str, *values: Any) -> Bad:
    """A create request with these tools."""
    return Bad({"model": MODEL, "input": "hi", "tools": list(values)}, code, param, words)


def chosen(code: str, param: str, words: str, choice: Any, *values: Any) -> Bad:
    """A create request with a choice among these tools."""
    return create("tool_choice", choice, code, words, named=param, tools=list(values))


def form(code: str, member: str, words: str, value: Any) -> Bad:
    """A create request with a format of the answer."""
    where = f"text.format.{member}" if member else "text.format"
    return create("text", {"format": value}, code, words, named=where)


def schema(path: str, words: str, value: Any, code: str = "invalid_json_schema") -> Bad:
    """A create request with a strict schema that can't be enforced, for what stands at `path` in it."""
    where = f"schema.{path}" if path else "schema"
    return form(code, where, words, {"type": "json_schema", "name": "a", "strict": True, "schema": value})


def grammar(code: str, words: str, definition: Any, syntax: str = "lark") -> Bad:
    """A create request with a custom tool under a grammar that can't be enforced."""
    enforced = {"type": "grammar", "syntax": syntax, "definition": definition}
    return tools(code, "tools[0].format.definition", words, {"type": "custom", "name": "c", "format": enforced})


def body(prefix: bytes, repeated: bytes, suffix: bytes, count: int | None = None) -> Callable[[], bytes]:
    """The bytes of a create request with a long end; without a count as long as a body may be."""
    head = b'{"model":"%s",%s' % (MODEL.encode(), prefix)
    times = (LIMIT - len(head) - len(suffix)) // len(repeated) if count is None else count
    return lambda: b"".join((head, repeated * times, suffix))


def text(repeated: str, count: int | None = None) -> Callable[[], bytes]:
    """A create request whose input repeats a text."""
    return body(b'"input":"', repeated.encode(), b'"}', count)


def get(path: str, code: str | None, param: str | None, words: str, status: int = 400) -> Bad:
    return Bad(None, code, param, words, status, "GET", path)


def post(path: str, code: str | None, param: str | None, words: str, status: int = 400, **members: Any) -> Bad:
    """A request to another endpoint than that which creates."""
    return Bad(members or None, code, param, words, status, "POST", path)


FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}

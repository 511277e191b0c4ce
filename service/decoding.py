"""JSON of untrusted requests to typed values, level by level, with errors that name the parameter and its value.

Large members stay `msgspec.Raw` until they are needed, so that neither a huge list nor a deep one costs more than a
scan. Every fault of the sender's becomes an InvalidRequest here; nothing else may escape.

Of a member that nobody knows it is said where the Responses API has what it is for, or which name it resembles. Nothing
is ever taken under another name: a refusal that has the right one is mended once, a guess is never seen.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar, overload

import msgspec
from msgspec import inspect

from service.errors import InvalidRequest, brief

T = TypeVar("T")

Json = dict[str, Any]
SHOWN_BYTES = 400
SHORT_LIST_BYTES = 65_536
"""The largest list that is read whole before its elements are counted: at most some 2 ms."""

ABSENT = msgspec.Raw(b"null")
"""A member that is null, or not there."""

_AT_MOST = "of at most length"

_AT = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_BYTE = re.compile(r"\(byte (\d+)\)")
_ESCAPE_BYTES = 16
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"  # a high one alone, a low one alone
)
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}

_type_info = lru_cache(maxsize=128)(inspect.type_info)
"""Takes 0.7 ms for a create request; kept, as it would be asked for with each that is refused."""

MOVED = {
    "messages": "In the Responses API they are 'input'.",
    "max_tokens": "In the Responses API it is 'max_output_tokens'.",
    "max_completion_tokens": "In the Responses API it is 'max_output_tokens'.",
    "response_format": "In the Responses API it is 'text.format'.",
    "json_schema": "In the Responses API its members stand beside 'type'.",
    "reasoning_effort": "In the Responses API it is 'reasoning.effort'.",
    "verbosity": "In the Responses API it is 'text.verbosity'.",
    "function": "In the Responses API its members stand beside 'type'.",
    "functions": "In the Responses API they are 'tools'.",
    "function_call": "In the Responses API it is 'tool_choice', and what a model calls is an item of that type.",
    "tool_calls": "In the Responses API each is an item of type 'function_call'.",
    "tool_call_id": "In the Responses API it is the 'call_id' of an item of type 'function_call_output'.",
    "n": "The Responses API makes one answer a request.",
    "logprobs": 'In the Responses API they are "include": ["message.output_text.logprobs"], with \'top_logprobs\'.',
    "max_new_tokens": "In the Responses API it is 'max_output_tokens'.",
}
"""Names of Chat Completions, and what the Responses API has in their place."""

_ALIKE = 0.7
"""The least likeness from which a name is guessed: one letter of three may be wrong."""

_NAME_CHARS = 64


@overload
def decode(raw: bytes | msgspec.Raw, kind: type[T], where: str = "") -> T: ...


@overload
def decode(raw: bytes | msgspec.Raw, kind: Any, where: str = "") -> Any: ...


def decode(raw: bytes | msgspec.Raw, kind: Any, where: str = "") -> Any:
    """The value of a type in `raw`, which stands at the parameter `where` ("" for the body). Raises InvalidRequest."""
    try:
        return _decoder_of(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), raw, where, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed_body(error, bytes(raw), where) from None


def decode_list(raw: bytes | msgspec.Raw, limit: int, where: str) -> list[msgspec.Raw]:
    """The elements of a list, none for null. Raises InvalidRequest, for more than `limit` of them too.

    A long list is not read beyond its limit: 8 MB of `1,` would be four million objects and a fifth of a second.
    """
    if len(memoryview(raw)) <= SHORT_LIST_BYTES:
        elements: list[msgspec.Raw] = decode(raw, list[msgspec.Raw] | None, where) or []
        if len(elements) > limit:
            raise _too_many(where, str(len(elements)), limit)
        return elements
    try:
        found = bounded_list(limit).decode(raw)
    except msgspec.ValidationError as error:
        if _AT_MOST in str(error):
            raise _too_many(where, f"more than {limit}", limit) from None
        raise _refusal(str(error), raw, where, None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed_body(error, bytes(raw), where) from None
    return [element for element in msgspec.structs.astuple(found) if element is not None]


@lru_cache(maxsize=16)
def bounded_list(limit: int) -> "msgspec.json.Decoder[Any]":
    """A decoder of a list that gives up at the element after `limit`, which msgspec does for structs alone.

    Making one takes 2 ms for each thousand: make those with settings' limits at start.
    """
    fields = [(f"element_{place}", msgspec.Raw, None) for place in range(limit)]
    return msgspec.json.Decoder(msgspec.defstruct("Elements", fields, array_like=True, forbid_unknown_fields=True))


def _too_many(where: str, count: str, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"Too many elements in '{where}': {count}, at most {limit} are allowed.", code="invalid_value", param=where
    )


def _malformed_body(error: Exception, raw: bytes, where: str) -> InvalidRequest:
    """The bytes are no JSON, no UTF-8, or nested beyond reason."""
    # an escape cut short at the end looks truncated
    place = int(match[1]) if (match := _BYTE.search(str(error))) else len(raw)
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    elif isinstance(error, UnicodeDecodeError):
        reason = "it is not valid UTF-8"
    elif _LONE_SURROGATE.search(raw[max(0, place - _ESCAPE_BYTES) : place + _ESCAPE_BYTES]):
        reason = "a string has a lone surrogate escape (\\ud800 to \\udfff), which is no character"
    else:
        reason = str(error)
    subject = f"The value of '{where}'" if where else "The body of the request"
    return InvalidRequest(f"{subject} could not be parsed as JSON: {reason}.", code="invalid_json", param=where or None)


def _refusal(message: str, raw: bytes | msgspec.Raw, where: str, expected: Any) -> InvalidRequest:
    """msgspec's words for a value that doesn't fit, in ours."""
    path = ""
    if match := _AT.search(message):
        path, message = match[1], message[: match.start()]
    if match := _UNKNOWN.search(message):
        param = _join(where, f"{path}.{brief(match[1])}")
        structs = [kind for kind in _kinds_at(expected, path) if isinstance(kind, inspect.StructType)]
        members = [member.encode_name for kind in structs for member in kind.fields]
        return InvalidRequest(
            f"Unknown parameter: '{param}'. {advice(match[1], members)}", code="unknown_parameter", param=param
        )
    if match := _MISSING.search(message):
        param = _join(where, f"{path}.{match[1]}")
        return InvalidRequest(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)
    param = _join(where, path)
    kind = "invalid_type" if "got `" in message else "invalid_value"
    value = shown_raw(_value_at(raw, path))
    if message.startswith("Invalid enum value"):
        literals = [kind for kind in _kinds_at(expected, path) if isinstance(kind, inspect.LiteralType)]
        message = f"Expected one of {', '.join(str(value) for kind in literals for value in kind.values)}"
    return InvalidRequest(
        f"Invalid {'type' if kind == 'invalid_type' else 'value'} for '{param or 'body'}': {_words(message)}. "
        f"The value was {value}.",
        code=kind,
        param=param or None,
    )


def _kinds_at(expected: Any, path: str) -> list[inspect.Type]:
    kinds = _alternatives(_type_info(expected))
    for step in _STEP.finditer(path):
        kinds = [kind for outer in kinds for kind in _inside(outer, step[1])]
    return kinds


def _alternatives(expected: inspect.Type) -> list[inspect.Type]:
    return list(expected.types) if isinstance(expected, inspect.UnionType) else [expected]


def _inside(kind: inspect.Type, member: str | None) -> list[inspect.Type]:
    """The types that a member of a struct may have, or with None an element of a list or mapping."""
    match kind:
        case inspect.StructType():
            return [inner for f in kind.fields if f.encode_name == member for inner in _alternatives(f.type)]
        case inspect.ListType():
            return _alternatives(kind.item_type)
        case inspect.DictType():
            return _alternatives(kind.value_type)
        case _:
            return []


def _words(message: str) -> str:
    """`Expected `int | null`, got `str`` → expected an integer or null, but got a string."""
    message = re.sub(
        r"`([a-z |]+)`", lambda match: " or ".join(_TYPES.get(name, name) for name in match[1].split(" | ")), message
    )
    return (message[0].lower() + message[1:]).replace(", got ", ", but got ")


def _join(where: str, path: str) -> str:
    return f"{where}{path.replace('[...]', '')}".lstrip(".")


def shown_raw(raw: bytes | msgspec.Raw) -> str:
    return brief(bytes(memoryview(raw)[:SHOWN_BYTES]).decode("utf-8", "replace").strip())


def _value_at(raw: bytes | msgspec.Raw, path: str) -> bytes | msgspec.Raw:
    """The JSON text at a path that msgspec printed, found without decoding what lies beside it."""
    for match in _STEP.finditer(path):
        try:
            if match[1] is not None:
                raw = msgspec.json.decode(raw, type=_member(match[1])).value
            elif match[2] is not None and len(memoryview(raw)) <= SHORT_LIST_BYTES:
                raw = msgspec.json.decode(raw, type=list[msgspec.Raw])[int(match[2])]
        except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, RecursionError):
            break  # it is too deep, or inside a mapping and has no name in the path; what is around it must do
    return raw


@lru_cache(maxsize=128)
def _member(name: str) -> Any:
    return msgspec.defstruct("Member", [("value", msgspec.Raw, msgspec.field(name=name))])


_decoder_of = lru_cache(maxsize=None)(msgspec.json.Decoder)
"""The decoder of a type, made when it is first needed: the types are those of the code, and no request's."""


class ObjectKind(msgspec.Struct):
    """The kind of an object; the rest is read once that is known."""

    type: str | None = None


def advice(name: str, known: Iterable[str]) -> str:
    """Advice on an unexpected member called `name`, where those that are `known` were expected."""
    if name in MOVED:
        return MOVED[name]
    alike = get_close_matches(name, known, n=1, cutoff=_ALIKE) if len(name) <= _NAME_CHARS else []
    return f"Did you mean '{alike[0]}'?" if alike else "Check its spelling, or leave it out."

"""Structural tags as llama.cpp is constrained: GBNF, or a schema that its server turns into GBNF itself. Pure.

A special token matches in GBNF by its spelling, as any text: `[a-z<|>]*` lets `<|end|>` through as one id. So the bias
of its logit bans each mark that a tag doesn't name, and where marks are named no free text has `<|` in it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from service.errors import InvalidRequest
from service.grammar.regex import ebnf, unchecked_tree

FREE = 'free ::= ([^<] | "<"+ [^<|])* "<"*'
"""A text without the beginning of a mark's spelling."""


GUIDED = "%llguidance {}\n"
"""The first line of a grammar for llguidance, where a server has that."""

GUIDED_JSON = {"x-guidance": {"whitespace_flexible": False}}
"""JSON without white space: the only bound that llguidance has for it."""

SPACED_JSON = {"x-guidance": {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}}
"""JSON with the white space that templates write."""

_PIECES = re.compile(r'"[^"]*"|\[[^]]*\]|[A-Za-z_]\w*')
"""In EBNF of ours (regex.ebnf): texts and classes, which have no quotes and no brackets inside, and names."""


class Constraint(msgspec.Struct, frozen=True):
    """A request's constraint, and the ids of the marks that it lets through."""

    asked: Mapping[str, Any]
    marks: frozenset[int] = frozenset()


def constraint(tag: str, ends: Sequence[int], *, guided: bool) -> Constraint:
    """The constraint of a tag, behind which one of `ends` comes. `guided` is whether the server has llguidance.

    Raises ValueError for a tag that is malformed.
    """
    try:
        form = json.loads(tag)["format"]
        if form["type"] == "json_schema":
            return Constraint(_schema(form["json_schema"], ends, guided=guided))
        if form["type"] == "grammar":
            return Constraint({"grammar": _PIECES.sub(_rename, form["grammar"])})
        marks: set[int] = set()
        return Constraint({"grammar": f"root ::= {_write(form, marks)}\n{FREE}\n"}, frozenset(marks))
    except (LookupError, TypeError, RecursionError, re.error, InvalidRequest) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def guidance_of(tag: str, ends: Sequence[int]) -> Mapping[str, Any] | None:
    """The constraint of a tag as llguidance reads it, for any vocabulary, behind which one of `ends` comes. None where
    it can't be said: arguments that are no JSON. Free text may be anything but special tokens.
    """
    rules: list[str] = []
    try:
        written = _lark(json.loads(tag)["format"], rules)
    except (LookupError, TypeError, RecursionError, ValueError):
        return None
    ending = " | ".join(f"<[{id}]>" for id in ends)
    return {"grammar": "\n".join([f"{GUIDED}start: {written} ({ending})", *rules, ""])}


def _lark(form: Mapping[str, Any], rules: list[str]) -> str:
    """A format as an expression of llguidance's; its schemas become `rules`."""
    match form["type"]:
        case "token":
            return f"<[{int(form['token'])}]>"
        case "const_string":
            return json.dumps(form["value"], ensure_ascii=False) if form["value"] else '""'
        case "regex":
            return f"/{form['pattern'].replace('/', chr(92) + '/')}/"
        case "any_tokens" | "any_text":
            return "/(.|\\n)*/"
        case "json_schema" if form.get("style", "json") == "json":
            shown = json.dumps({**_close_objects(form["json_schema"]), **SPACED_JSON}, separators=(",", ":"))
            rules.append(f"json{len(rules)}: %json {shown}")
            return f"json{len(rules) - 1}"
        case "optional":
            return f"({_lark(form['content'], rules)})?"
        case "star":
            return f"({_lark(form['content'], rules)})*"
        case "sequence":
            return "(" + " ".join(_lark(each, rules) for each in form["elements"]) + ")"
        case "or":
            return "(" + " | ".join(_lark(each, rules) for each in form["elements"]) + ")"
        case other:
            raise ValueError(f"there is no format {other!r}")


def _schema(schema: object, ends: Sequence[int], *, guided: bool) -> dict[str, Any]:
    """A schema, from which a server makes GBNF. A server with llguidance lets a model go on behind it unless an end is
    named, and has its end at an id that is none of ours.
    """
    if not isinstance(schema, dict):
        raise TypeError("a schema is an object")
    closed = _close_objects(cast(dict[str, Any], schema))
    if not guided:
        return {"json_schema": closed}
    shown = json.dumps({**closed, **GUIDED_JSON}, separators=(",", ":"))
    return {"grammar": f"{GUIDED}start: json ({' | '.join(f'<[{id}]>' for id in ends)})\njson: %json {shown}\n"}


def _close_objects(schema: Any) -> Any:
    """A schema whose objects have no more properties than it names, unless it says so: xgrammar takes it so."""
    if not isinstance(schema, dict):
        return schema
    known = cast(dict[str, Any], schema)
    closed = {keyword: _closed_below(keyword, value) for keyword, value in known.items()}
    return closed if "properties" not in known else {"additionalProperties": False} | closed


def _closed_below(keyword: str, value: Any) -> Any:
    if keyword in ("properties", "patternProperties", "$defs"):
        return {name: _close_objects(each) for name, each in value.items()}
    if keyword in ("anyOf", "prefixItems"):
        return [_close_objects(each) for each in value]
    return _close_objects(value) if keyword in ("items", "additionalProperties") else value


def _rename(piece: re.Match[str]) -> str:
    """A name as GBNF may have it, which has no underscores; anything else as it is."""
    return piece[0] if piece[0][0] in '"[' else piece[0].replace("_", "-")


def _write(form: Mapping[str, Any], marks: set[int]) -> str:
    """A format as an expression, its marks noted."""
    match form["type"]:
        case "token":
            marks.add(int(form["token"]))
            return f"<[{int(form['token'])}]>"
        case "const_string":
            return _text(form["value"])
        case "regex":
            return ebnf(unchecked_tree(form["pattern"]))
        case "any_tokens":
            return "free"
        case "optional":
            return f"({_write(form['content'], marks)})?"
        case "sequence":
            return _join(" ", form["elements"], marks)
        case "or":
            return _join(" | ", form["elements"], marks)
        case other:
            raise ValueError(f"there is no format {other!r}")


def _join(by: str, elements: Sequence[Mapping[str, Any]], marks: set[int]) -> str:
    return f"({by.join(_write(each, marks) for each in elements)})"


def _text(value: str) -> str:
    """A text as GBNF quotes it."""
    return '"' + "".join(each if each.isalnum() or each in " ._-=/" else f"\\U{ord(each):08X}" for each in value) + '"'

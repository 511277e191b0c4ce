"""Function tools as the TypeScript that gpt-oss was trained to read: signatures with `//` comments.

The text equals openai-harmony's, quirks and all, because the model has seen nothing else. Never repair a
quirk here: a test against openai-harmony pins each seeming mistake.

Schemas come from clients and may be anything that JSON can hold. A schema that is too deep or too large is refused
before any recursion begins; a part that makes no sense as a schema is "any".
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TypeAlias, cast

import msgspec

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"

DEPTH_LIMIT = 64
"""The most lists and objects inside one another. A property costs two, so objects may nest 32 deep."""

VALUES_LIMIT = 8192
"""The most values in the schema of one tool, at worst 5 µs each: some 40 ms, and far beyond real ones."""

_INTEGERS = range(-(2**63), 2**64)
"""The integers that serde_json keeps; beyond, it prints a float."""


class SchemaTooLarge(ValueError):
    """A schema, or another declaration of a tool, holds more than VALUES_LIMIT values, or nests beyond DEPTH_LIMIT."""


class Function(msgspec.Struct, frozen=True):
    """A function tool as the model sees it: `parameters` is a JSON schema, or None where there are none."""

    name: str
    description: str
    parameters: Mapping[str, object] | None


def namespace(name: str, members: Sequence[str], description: str | None = None) -> str:
    """One section of `# Tools`: its heading, and a `declaration` for each function.

    A namespace without functions is its description alone, as for a tool that takes free text (python).
    """
    heading = f"## {name}\n"
    about = _lines(description or "")
    if not members:
        return "\n".join([heading, *about])
    return "\n".join([heading, *_comments(about), f"namespace {name} {{\n", *members, f"}} // namespace {name}"])


def declaration(function: Function) -> str:
    """A function as it stands in its namespace. Raises SchemaTooLarge."""
    check_size(function.parameters)
    arguments = "" if function.parameters is None else f"_: {_type(cast(Json, function.parameters), '')}"
    signature = f"type {function.name} = ({arguments}) => any;\n"
    return "\n".join([*_comments(_lines(function.description)), signature])


def check_size(schema: object) -> None:
    """Raise SchemaTooLarge past a limit. Goes level by level, as it protects the recursion elsewhere."""
    level, values = [schema], 0
    for _ in range(DEPTH_LIMIT + 1):
        values += len(level)
        if values > VALUES_LIMIT:
            raise SchemaTooLarge(f"it holds more than {VALUES_LIMIT} values; shorten it")
        level = list(islice(chain.from_iterable(map(_children, level)), VALUES_LIMIT))
        if not level:
            return
    raise SchemaTooLarge(f"it nests more than {DEPTH_LIMIT} lists and objects; flatten it")


def _children(value: object) -> Iterable[object]:
    match value:
        case list():
            return cast(list[object], value)
        case Mapping():
            return cast(Mapping[str, object], value).values()
        case _:
            return ()


# --- types --------------------------------------------------------------------------------------------------


def _type(schema: Json, indent: str) -> str:
    match schema:
        case {"oneOf": list(variants)}:
            return _union(variants, indent)
        case {"type": list(kinds)}:
            names = [_type_name(kind) for kind in kinds if isinstance(kind, str)]
            return " | ".join(names) if names else "any"
        case {"type": "object"}:
            return _object(schema, indent)
        case {"type": "array", "items": items}:
            return f"{_type(items, indent)}[]"
        case {"type": "array"}:
            return "Array<any>"
        case {"type": "string", "enum": list(values)}:
            return " | ".join(f'"{value}"' for value in values if isinstance(value, str)) or "string"
        case {"type": "string" | "number" | "integer" | "boolean" as kind}:
            return _type_name(kind)
        case _:
            return "any"


def _type_name(kind: str) -> str:
    return "number" if kind == "integer" else kind


def _nullable_type(schema: Json, indent: str) -> str:
    """The type of a property or variant. One that says null anywhere, be it in a comment, gets no second."""
    text = _type(schema, indent)
    match schema:
        case {"nullable": True} if "null" not in text:
            return f"{text} | null"
        case _:
            return text


def _union(variants: list[Json], indent: str) -> str:
    return "".join(
        f"\n{indent} | {_nullable_type(variant, indent + '   ')}"
        + _trailing(_description(variant) + _default(variant, bare_enum=False))
        for variant in variants
    )


def _object(schema: Mapping[str, Json], indent: str) -> str:
    lines = [*_comments(_description(schema), indent), "{"]
    properties, listed = schema.get("properties"), schema.get("required")
    required = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else ()
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        lines += _property(name if name in required else f"{name}?", value, indent)
    lines.append(f"{indent}}}")
    return "\n".join(lines)


# --- properties ---------------------------------------------------------------------------------------------


def _property(label: str, schema: Json, indent: str) -> list[str]:
    """The lines of one property. `label` is its name, with a question mark where it is optional."""
    above = _title(schema, indent) + _comments(_summary(schema) + _examples(schema), indent)
    match schema:
        case {"oneOf": list(variants)}:
            return above + _union_property(label, schema, variants, indent)
        case {"oneOf": _}:
            after = ""
        case _:
            after = _trailing(_default(schema))
    return [*above, f"{indent}{label}: {_nullable_type(schema, indent + '    ')},{after}"]


def _union_property(label: str, schema: Json, variants: list[Json], indent: str) -> list[str]:
    """The lines of a property with `oneOf`: a line for each variant.

    A description that the property shares with its first variant is shown by neither. One of its own stands
    above, and then silences that of the first variant.
    """
    own = _description(schema)
    above = [] if variants and own == _description(variants[0]) else own
    lines = [*_comments([*above, *_default(schema)], indent), f"{indent}{label}:"]
    for index, variant in enumerate(variants):
        about = _description(variant)
        shared = about == own or (index == 0 and above)
        comments = ([] if shared else about) + _default(variant)
        lines.append(f"{indent} | {_nullable_type(variant, indent + '   ')}{_trailing(comments)}")
    lines.append(f"{indent},")
    return lines


# --- comments: lists of lines, empty where a schema has none ------------------------------------------------


def _comments(lines: Iterable[str], indent: str = "") -> list[str]:
    return [f"{indent}// {line}" for line in lines]


def _trailing(comments: list[str]) -> str:
    return f" // {' '.join(comments)}" if comments else ""


def _lines(text: str) -> list[str]:
    """The lines of `text` as Rust has them: cut at LF and CRLF alone, where `splitlines` cuts at ten more."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _member(schema: Json, key: str) -> Json:
    """A member of a schema; None where it has none, or is none."""
    return schema.get(key) if isinstance(schema, Mapping) else None


def _description(schema: Json) -> list[str]:
    text = _member(schema, "description")
    return [text] if isinstance(text, str) else []


def _summary(schema: Json) -> list[str]:
    """The description above a property; that of a `oneOf` has its own rules, see `_union_property`."""
    return [] if isinstance(schema, Mapping) and "oneOf" in schema else _description(schema)


def _title(schema: Json, indent: str) -> list[str]:
    """The title and an empty comment, which alone of all comments has no space after its slashes."""
    text = _member(schema, "title")
    return [f"{indent}// {text}", f"{indent}//"] if isinstance(text, str) else []


def _examples(schema: Json) -> list[str]:
    examples = _member(schema, "examples")
    if not isinstance(examples, list) or not examples:
        return []
    return ["Examples:", *(f'- "{example}"' for example in examples if isinstance(example, str))]


def _default(schema: Json, *, bare_enum: bool = True) -> list[str]:
    """The default: a string in quotes and unescaped, but that of an enum bare, or JSON if not `bare_enum`."""
    match schema:
        case {"default": str(text), "enum": [_, *_]}:
            return [f"default: {text if bare_enum else _json(text)}"]
        case {"default": str(text)}:
            return [f'default: "{text}"']
        case {"default": value}:
            return [f"default: {_json(value)}"]
        case _:
            return []


# --- JSON as serde_json prints it ---------------------------------------------------------------------------


def _json(value: Json) -> str:
    """Compact JSON, keys in the order given."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bool() | None:
            return json.dumps(value)
        case int() | float():
            return _number(value)
        case list():
            return f"[{','.join(map(_json, value))}]"
        case _:
            return f"{{{','.join(f'{_json(key)}:{_json(member)}' for key, member in value.items())}}}"


def _number(value: int | float) -> str:
    """A number as serde_json has it: as Python's, but 0.00001 for 1e-05, 1e-6 for 1e-06, 1e16 for 1e+16."""
    if isinstance(value, int) and value in _INTEGERS:
        return str(value)
    try:
        digits, _, exponent = repr(float(value)).partition("e")
    except OverflowError:
        return "null"  # no JSON number for serde_json, like the infinities
    if not exponent:
        return digits if digits not in ("inf", "-inf", "nan") else "null"
    if int(exponent) == -5:
        sign, digits = digits[: digits.startswith("-")], digits.lstrip("-").replace(".", "")
        return f"{sign}0.0000{digits}"
    return f"{digits}e{int(exponent)}"

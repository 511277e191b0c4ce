"""The schemas of the document: those that msgspec makes of structs, under public names, as generators of clients take
them best: one union in one place, constants as constants, and no more of a docstring than its first sentence.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from service.api import events, items
from service.api.request import Include
from tests.support.openapi import answers, bodies
from tests.support.openapi.operations import OPERATIONS
from tests.support.openapi.words import CREATE, OBFUSCATION

Json = dict[str, Any]

REF = "#/components/schemas/"
NULL = {"type": "null"}

UNIONS: dict[str, Any] = {
    "ResponseFormat": bodies.Format,
    "Tool": bodies.Tool,
    "ToolChoice": bodies.Choice,
    "InputItem": bodies.Item,
    "OutputItem": answers.OutputItem,
    "ListedItem": answers.ListedItem,
    "ResponseStreamEvent": answers.StreamEvent,
    "Include": Include,
}
"""Unions that have a name of their own; one that others hold stands before them."""

NAMES = {
    "Response": "ResponseObject",  # generators have a Response of their own, that of HTTP
    "Managing": "ContextManagement",
    "CachingParam": "PromptCacheOptions",
    "Extensions": "ResponseExtensions",
    "Compacted": "CompactedConversation",
    "InputTokens": "InputTokenCount",
    "GivenBack": "FailedSteer",
    "SteerShown": "Steer",
    "Keepalive": "KeepaliveEvent",
    **{f"Foreign_{kind}": f"{bodies.camel(kind)}Item" for kind in items.FOREIGN},
}
"""Public names of structs that are called otherwise in the code."""

MERGED = ("HostedTool", "ToolChoiceHosted", "ToolChoiceClient", "Container")
"""Structs that differ in their type alone, and stand in the document as one."""

_SENTENCE = re.compile(r"(.*?\.)(?: |$)")


class Schemas(NamedTuple):
    """The components, and what gives the schema of a type that an operation takes or answers."""

    components: Json
    of: Callable[[Any], Json]


def schemas() -> Schemas:
    """All that operations take and answer."""
    taken = [each.takes for each in OPERATIONS.values() if each.takes is not None] + [
        bodies.Metadata,
        bodies.InputAnswer,
    ]
    answered = [*answers.ALL, *answers.READ.values()]
    types = {repr(kind): kind for kind in [*UNIONS.values(), *taken, *answered]}
    made, components = msgspec.json.schema_components(types.values(), ref_template=REF + "{name}")
    described: Json = dict(zip(types, made, strict=True))
    for (struct, member), kind in answers.READ.items():
        components[_name(struct, components)]["properties"][member] = described[repr(kind)]
    for kind in events.Delta.__args__:
        components[_name(kind, components)]["properties"]["obfuscation"] = {
            "type": "string",
            "description": OBFUSCATION,
        }
    sent = _reached([described[repr(kind)] for kind in taken], components)
    for name in components.keys() - sent:
        _complete(components[name])
    names = {name: _public(name) for name in components}
    everything = {"described": described, "components": components}
    everything = _tidied(everything, names)
    everything["components"] = _merged(components, everything["components"], names)
    for name, union in UNIONS.items():
        known = everything["described"][repr(union)]
        everything = _hoisted(everything, name, known)
        everything["components"][name] = known
    components = everything["components"]
    several: list[Json] = components["InputItem"]["oneOf"]
    components["InputItem"] = {"anyOf": [{"$ref": f"{REF}InputAnswer"}, *several]}
    for untyped in ("InputMessage", "InputAnswer", "InputItemReference"):
        components[untyped]["required"].remove("type")
        members: Json = components[untyped]["properties"]
        members["type"] = {"anyOf": [members["type"], NULL]}
    for left_out in ("HostedTool", "Container"):
        components[left_out]["additionalProperties"] = True
    for member, words in CREATE.items():
        for body in ("CreateResponse", "CompactConversation", "BackgroundParam"):
            if member in components[body]["properties"]:
                components[body]["properties"][member]["description"] = words
    return Schemas(components, lambda kind: everything["described"][repr(kind)])


def _name(struct: type, components: Iterable[str]) -> str:
    """What msgspec calls a struct: its name, or with its module where another one has the same."""
    full = f"{struct.__module__}.{struct.__qualname__}"
    return full if full in components else struct.__name__


def _public(name: str) -> str:
    last = name.rpartition(".")[2]
    if name in (_name(kind, [name]) for kind in events.KINDS):
        return f"{last}Event"
    merged = next((group for group in MERGED if name.startswith(f"{group}_")), None)
    return merged or NAMES.get(name, last)


def _reached(roots: Any, components: Json) -> set[str]:
    """The names of all components that something refers to."""
    found: set[str] = set()
    waiting = [roots]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = value.get("$ref", "").removeprefix(REF)
            if name and name not in found:
                found.add(name)
                waiting.append(components[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _complete(schema: Json) -> None:
    """An answer: what has a default is there all the same."""
    members: Json = schema.get("properties", {})
    filled = [member for member, kind in members.items() if "default" in kind]
    for member in filled:
        members[member] = {key: value for key, value in members[member].items() if key != "default"}
    if "properties" in schema:
        required = {*schema.get("required", ()), *filled}
        schema["required"] = [member for member in members if member in required]


def _tidied(value: Any, names: dict[str, str]) -> Any:
    """A schema, or anything with schemas in it, as the document has it."""
    if isinstance(value, list):
        told = [_tidied(each, names) for each in value]
        return [each for place, each in enumerate(told) if each not in told[:place]]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return {**value, "$ref": REF + names[value["$ref"].removeprefix(REF)]}
    told = {key: _tidied(each, names) for key, each in value.items() if key != "title" or not isinstance(each, str)}
    if "pattern" in told:
        told["pattern"] = told["pattern"].replace(r"\Z", "$")  # Python's word for the end
    if told.get("type") == "array":
        told.setdefault("items", {})
    if told.get("type") == "object" and "properties" not in told:
        told.setdefault("additionalProperties", True)
    if not isinstance(told.get("default"), dict):  # it isn't a member of that name
        told.pop("default", None)  # generators take a member with a default for one that is always there
    if isinstance(words := told.get("description"), str):
        told["description"] = _first_sentence(words)
    if isinstance(told.get("enum"), list):
        told = {"type": "string", **told} if isinstance(told["enum"][0], str) else told
        if len(told["enum"]) == 1:
            told["const"] = told.pop("enum")[0]
    if "discriminator" in told:
        told["oneOf"] = told.pop("anyOf")
        mapping = told["discriminator"]["mapping"]
        told["discriminator"]["mapping"] = {key: REF + names[ref.removeprefix(REF)] for key, ref in mapping.items()}
    return told


def _first_sentence(words: str) -> str:
    words = " ".join(words.split())
    found = _SENTENCE.match(words)
    return found[1] if found else words


def _merged(before: Json, tidied: Json, names: dict[str, str]) -> Json:
    """The components under their public names; of those that are one the types together."""
    found: Json = {}
    for name in before:
        public, schema = names[name], tidied[name]
        if public in found and public in MERGED:
            known = found[public]["properties"]["type"]
            known["enum"] = [*known.pop("enum", [known.pop("const", None)]), schema["properties"]["type"]["const"]]
        elif public in found:
            raise ValueError(f"two schemas are called {public}")
        else:
            found[public] = schema
    return found


def _hoisted(value: Any, name: str, union: Json) -> Any:
    """The same with each copy of a union replaced by its name."""
    if isinstance(value, list):
        return [_hoisted(each, name, union) for each in value]
    if not isinstance(value, dict):
        return value
    if value == union:
        return {"$ref": REF + name}
    if "anyOf" in union and value.get("anyOf") == [*union["anyOf"], NULL]:
        return {**value, "anyOf": [{"$ref": REF + name}, NULL]}
    return {key: _hoisted(each, name, union) for key, each in value.items()}

"""Bodies with as much as may be of what is dear to read: schemas, grammars, tools, seals and histories.

What was read of a schema, a grammar or a tool is kept, so each of these is made anew each time, with texts that no
body before had.
"""

import json
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from service.api.request import MAX_STOP_CHARS, MAX_STOPS
from service.api.tools.read import MAX_GRAMMARS
from service.grammar.grammars import MAX_GRAMMAR_CHARS
from service.grammar.schema_values import MAX_ENUM
from service.grammar.schemas import MAX_PATTERNS_CHARS
from service.responses.seal import TAG
from tests.support.service.process import MODEL

Builder = Callable[[str], dict[str, Any]]
"""Makes the members of a request from a word that no other request has."""

_words = (f"w{number}" for number in count())


def fresh(build: Builder) -> Callable[[], bytes]:
    """The bodies of requests with these members."""
    return lambda: json.dumps({"model": MODEL, "input": "hi"} | build(next(_words))).encode()


def strict(schema: Any) -> dict[str, Any]:
    """A request for an answer that matches a schema."""
    enforced = {"type": "json_schema", "name": "a", "strict": True, "schema": schema}
    return {"text": {"format": enforced}}


def shape(properties: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **others}


def function(name: str, schema: Any) -> dict[str, Any]:
    """A function whose arguments match a schema."""
    return {"type": "function", "name": name, "strict": True, "parameters": schema}


def custom(name: str, syntax: str, definition: str) -> dict[str, Any]:
    """A custom tool under a grammar."""
    enforced = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": name, "format": enforced}


def chained(word: str, links: int) -> dict[str, Any]:
    """A schema whose definitions each refer to the next, all of which it refers to itself."""
    defs: dict[str, Any] = {f"{word}_{n}": {"$ref": f"#/$defs/{word}_{n + 1}"} for n in range(links)}
    defs[f"{word}_{links}"] = {"type": "string"}
    return shape({f"p{n}": {"$ref": f"#/$defs/{word}_{n}"} for n in range(links)}, **{"$defs": defs})


def patterns(word: str, pattern: str) -> dict[str, Any]:
    """A schema with as many characters of patterns as it may have."""
    each = MAX_PATTERNS_CHARS // (len(pattern) + len(word) + 2)
    return shape({f"p{n}": {"type": "string", "pattern": f"{pattern}{word}{n % 90 + 10}"} for n in range(each)})


def rules(word: str, line: str, first: str) -> str:
    """A Lark grammar of lines with a number in each, as long as it may be."""
    lines = [f"start: {first}"]
    length = len(lines[0])
    for number in count():
        lines.append(line.format(word=word, n=number, m=number + 1))
        length += len(lines[-1]) + 1
        if length > MAX_GRAMMAR_CHARS - 80:
            return "\n".join([*lines[:-1], f'r{number}: "{word}"'])
    raise AssertionError


def alternatives(word: str) -> str:
    """A Lark grammar of one rule, as long as it may be."""
    return "start: " + _joined((f'"{word}{n}"' for n in count()), " | ", MAX_GRAMMAR_CHARS - 10)


def _joined(pieces: Iterable[str], between: str, limit: int) -> str:
    taken: list[str] = []
    for piece in pieces:
        limit -= len(piece) + len(between)
        if limit < 0:
            break
        taken.append(piece)
    return between.join(taken)


def chat(calls: int, word: str) -> list[dict[str, Any]]:
    """A history in chat's form: so many calls, and what each gave."""
    history: list[dict[str, Any]] = []
    for number in range(calls):
        called = {"id": f"{word}{number}", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        history.append({"role": "assistant", "content": None, "tool_calls": [called]})
        history.append({"role": "tool", "tool_call_id": f"{word}{number}", "content": "done"})
    return history


def harmony(pairs: int, word: str) -> list[dict[str, Any]]:
    """A history of Harmony messages: so many questions, and an answer to each."""
    history: list[dict[str, Any]] = []
    for number in range(pairs):
        history.append({"role": "user", "content": f"{word} {number}"})
        said = [{"type": "text", "text": "Yes."}]
        history.append({"role": "assistant", "name": None, "content": said, "channel": "final"})
    return history


KINDS: dict[str, Builder] = {
    "an enum at its limit": lambda word: strict(shape({"a": {"enum": [f"{word}{n}" for n in range(MAX_ENUM)]}})),
    "oneOf of 3,000": lambda word: strict(shape({"a": {"oneOf": [{"const": f"{word}{n}"} for n in range(3_000)]}})),
    "oneOf of as many objects as a format has room for": lambda word: strict(
        shape({"a": {"oneOf": [shape({"k": {"const": f"{word}{n}"}}, required=["k"]) for n in range(1_900)]}})
    ),
    "oneOf that can't be told apart": lambda word: strict(
        shape({"a": {"oneOf": [{"type": "string", "minLength": n, "description": word} for n in range(1_000)]}})
    ),
    "4,000 properties": lambda word: strict(shape({f"{word}_{n}": {"type": "string"} for n in range(4_000)})),
    "a chain of 1,900 references": lambda word: strict(chained(word, 1_900)),
    "patterns at their limit": lambda word: strict(patterns(word, r"^[a-z]{2,9}(\d+|[^x-z]*)\.")),
    "patterns of many groups": lambda word: strict(patterns(word, r"(a|b(c|d(e|f)?)*)+" * 4)),
    "one pattern at its limit": lambda word: strict(
        shape({"a": {"type": "string", "pattern": f"{word}[a-f]*" + "(a|[b-c]?)" * 200}})
    ),
    "128 functions of as many bytes as fit": lambda word: {
        "tools": [
            function(f"f{n}", shape({f"{word}_{n}_{m}": {"type": "string"} for m in range(190)})) for n in range(128)
        ]
    },
    "100 functions with patterns at their limit": lambda word: {
        "tools": [function(f"f{n}", patterns(f"{word}{n}", r"^[a-z]{2,9}(\d+|[^x-z]*)\.")) for n in range(100)]
    },
    "a function of 2,600 schemas": lambda word: {
        "tools": [function("f", shape({f"{word}_{n}": {"type": "integer", "minimum": n} for n in range(2_600)}))]
    },
    "a function of 7,000 constants": lambda word: {
        "tools": [function("f", shape({f"{word}_{n}": {"enum": [word] * 5} for n in range(1_000)}))]
    },
    "128 tools in namespaces": lambda word: {
        "tools": [
            {
                "type": "namespace",
                "name": f"n{n}",
                "tools": [function(f"f{m}", shape({f"{word}{m}": {"type": "string"}})) for m in range(16)],
            }
            for n in range(8)
        ]
    },
    "16 grammars of rules": lambda word: {
        "tools": [
            custom(f"c{n}", "lark", rules(f"{word}{n}", 'r{n}: "{word}" r{m}? | (r{m} "x")*', "r0"))
            for n in range(MAX_GRAMMARS)
        ]
    },
    "16 grammars of one rule": lambda word: {
        "tools": [custom(f"c{n}", "lark", alternatives(f"{word}{n}x")) for n in range(MAX_GRAMMARS)]
    },
    "16 grammars of one string": lambda word: {
        "tools": [
            custom(f"c{n}", "lark", f'start: "{word}{n}{"x" * (MAX_GRAMMAR_CHARS - 40)}"') for n in range(MAX_GRAMMARS)
        ]
    },
    "16 regexes at their limit": lambda word: {
        "tools": [custom(f"c{n}", "regex", f"{word}{n}[a-f]*" + "(a|[b-c]?)" * 200) for n in range(MAX_GRAMMARS)]
    },
    "a grammar that counts": lambda word: {
        "tools": [custom("c", "lark", f'start: a\na: (("{word}" "b"?)~1..15 "c")~1..15 \n')]
    },
    "a choice among 128 tools": lambda word: {
        "tools": [function(f"{word}_{n}", shape({})) for n in range(128)],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": f"{word}_{n}"} for n in range(128)],
        },
    },
    "a seal of a megabyte that is none": lambda word: {
        "input": [{"type": "reasoning", "summary": [], "encrypted_content": f"{TAG}{word}{'A' * 1_048_000}"}]
    },
    "4,000 seals that are none": lambda word: {
        "input": [{"type": "reasoning", "summary": [], "encrypted_content": f"{TAG}{word}{'A' * 400}"}] * 4_000
    },
    "4,096 references to nothing": lambda word: {
        "input": [{"type": "item_reference", "id": f"msg_{word}{n:040}"} for n in range(4_096)]
    },
    "4,096 messages of chat's": lambda word: {"previous_input_messages": chat(2_048, word)},
    "4,096 messages of Harmony's": lambda word: {"previous_input_messages": harmony(2_048, word)},
    "a history as long as a context": lambda word: {
        "previous_input_messages": [{"role": "user", "content": f"{word} " * 30_000}]
    },
    "the whole prompt shown": lambda word: {"input": f"{word} " * 30_000, "enable_response_messages": True},
    "a history to shorten": lambda word: {
        "truncation": "auto",
        "input": [{"role": "user", "content": f"{word} {n} " * 100} for n in range(4_000)],
    },
    "a history to compact": lambda word: {
        "context_management": [{"type": "compaction", "compact_threshold": 1_000}],
        "input": [{"role": "user", "content": f"{word} {n} " * 9} for n in range(4_000)],
    },
    "a wish for a compaction of 100,000 tokens": lambda word: {
        "input": [{"role": "user", "content": f"{word} {n} " * 5} for n in range(3_000)]
        + [{"type": "compaction_trigger"}]
    },
    "stops at limits": lambda word: {"stop": [f"{'e' * (MAX_STOP_CHARS - 9)}{word}{n}" for n in range(MAX_STOPS)]},
}
"""Members of requests that are large, most of them right."""

BODIES: dict[str, Callable[[], bytes]] = {name: fresh(build) for name, build in KINDS.items()}

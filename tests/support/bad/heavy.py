"""Bodies as large as they may be: those that are refused, those that are right, and those of what is dear to read.

What was read of a schema, a grammar or a tool is kept, so each of the last is made anew each time, with texts that no
body before had.
"""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

from service.api.request import MAX_STOP_CHARS, MAX_STOPS
from service.api.tools.read import MAX_GRAMMARS
from service.grammar.grammars import MAX_GRAMMAR_CHARS
from service.grammar.schema_values import MAX_ENUM
from service.responses.seal import TAG
from tests.support.bad.table import LIMIT, MIB, Bad, body, text
from tests.support.service.process import MODEL

FULL = b'"input":"hi",'

HEAVY: dict[str, Bad] = {
    "ten MB of letters": Bad(text("x", 10 * MIB), "request_too_large", None, str(LIMIT), 413),
    "one endless word": Bad(text("x"), "invalid_value", "input", "in a row"),
    "300,000 Chinese characters": Bad(
        text("春眠不覺曉,處處聞啼鳥.", 25_000), "context_length_exceeded", "input", "131072"
    ),
    "as many words as fit": Bad(text("word "), "context_length_exceeded", "input", "131072"),
    "a deep input": Bad(body(b'"input":' + b"[" * 100_000, b"]", b"}", 100_000), "invalid_json", None, "nested"),
    "as many numbers as fit": Bad(body(b'"input":[', b"1,", b"1]}"), "invalid_value", "input", "more than 4096"),
    "as many objects as fit": Bad(body(b'"input":[', b"{},", b"{}]}"), "invalid_value", "input", "more than 4096"),
    "a wrong value before as many names as fit": Bad(
        body(b'"input":"hi","reasoning":{"effort":5},', b'"image":1,', b'"image":1}'),
        "invalid_type",
        "reasoning.effort",
        "5",
    ),
    "as many parts as fit": Bad(
        body(b'"input":[{"role":"user","content":[', b'{"type":"x"},', b"1]}]}"),
        "invalid_value",
        "input[0].content",
        "1024",
    ),
    "as many different pairs as fit": Bad(
        lambda: body(FULL + b'"metadata":{', b",".join(b'"%d":""' % n for n in range(LIMIT // 12)), b"}}", 1)(),
        "invalid_value",
        "metadata",
        "16",
    ),
    "as many escapes as fit": Bad(text(r"\u0041 "), "context_length_exceeded", "input", "131072"),
    "as many tools as fit": Bad(
        body(FULL + b'"tools":[', b'{"type":"function"},', b"1]}"), "invalid_value", "tools", "1048576"
    ),
}
"""Bodies as large as they may be, of what might be dear to read."""

LEGAL: dict[str, Callable[[], bytes]] = {
    "words of a whole context": text("word ", 100_000),
    "64,000 emoji": text("😀", 64_000),
    "4,000 items": body(b'"input":[', b'{"role":"user","content":"hi"},', b'{"role":"user","content":"hi"}]}', 3_999),
    "an id that is all the body": body(b'"input":[{"role":"user","content":"hi","id":[', b"[],", b"[]]}]}"),
    "100 tools": body(
        FULL + b'"tools":[', b"", b",".join(b'{"type":"function","name":"f%d"}' % n for n in range(100)) + b"]}", 0
    ),
}
"""Bodies that are large and right."""


# --- schemas, grammars, tools, seals and histories ---

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


def chat(calls: int, word: str) -> list[dict[str, Any]]:
    """A history in chat's form: so many calls, and what each gave."""
    history: list[dict[str, Any]] = []
    for number in range(calls):
        called = {"id": f"{word}{number}", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        history.append({"role": "assistant", "content": None, "tool_calls": [called]})
        history.append({"role": "tool", "tool_call_id": f"{word}{number}", "content": "done"})
    return history


KINDS: dict[str, Builder] = {
    "an enum at its limit": lambda word: strict(shape({"a": {"enum": [f"{word}{n}" for n in range(MAX_ENUM)]}})),
    "a chain of 1,900 references": lambda word: strict(chained(word, 1_900)),
    "512 functions of as many bytes as fit": lambda word: {
        "tools": [
            function(f"f{n}", shape({f"{word}_{n}_{m}": {"type": "string"} for m in range(47)})) for n in range(512)
        ]
    },
    "a function of 2,600 schemas": lambda word: {
        "tools": [function("f", shape({f"{word}_{n}": {"type": "integer", "minimum": n} for n in range(2_600)}))]
    },
    "16 grammars of rules": lambda word: {
        "tools": [
            custom(f"c{n}", "lark", rules(f"{word}{n}", 'r{n}: "{word}" r{m}? | (r{m} "x")*', "r0"))
            for n in range(MAX_GRAMMARS)
        ]
    },
    "a grammar that counts": lambda word: {
        "tools": [custom("c", "lark", f'start: a\na: (("{word}" "b"?)~1..15 "c")~1..15 \n')]
    },
    "a choice among 128 of 512 tools": lambda word: {
        "tools": [function(f"{word}_{n}", shape({})) for n in range(512)],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": f"{word}_{n}"} for n in range(128)],
        },
    },
    "a seal of a megabyte that is none": lambda word: {
        "input": [{"type": "reasoning", "summary": [], "encrypted_content": f"{TAG}{word}{'A' * 1_048_000}"}]
    },
    "4,096 messages of chat's": lambda word: {"previous_input_messages": chat(2_048, word)},
    "a history to shorten": lambda word: {
        "truncation": "auto",
        "input": [{"role": "user", "content": f"{word} {n} " * 100} for n in range(4_000)],
    },
    "stops at limits": lambda word: {"stop": [f"{'e' * (MAX_STOP_CHARS - 9)}{word}{n}" for n in range(MAX_STOPS)]},
}
"""Members of requests that are large, most of them right."""

BODIES: dict[str, Callable[[], bytes]] = {name: fresh(build) for name, build in KINDS.items()}

"""Bodies as large as they may be: those that are refused, and those that are right."""

from collections.abc import Callable

from tests.support.bad.table import LIMIT, MIB, Bad, body, text

FULL = b'"input":"hi",'

HEAVY: dict[str, Bad] = {
    "ten MB of letters": Bad(text("x", 10 * MIB), "request_too_large", None, str(LIMIT), 413),
    "one endless word": Bad(text("x"), "invalid_value", "input", "in a row"),
    "a million spaces": Bad(text(" ", 1_000_000), "invalid_value", "input", "in a row"),
    "300,000 Chinese characters in a row": Bad(text("龘", 300_000), "invalid_value", "input", "in a row"),
    "300,000 Chinese characters": Bad(
        text("春眠不覺曉,處處聞啼鳥.", 25_000), "context_length_exceeded", "input", "131072"
    ),
    "as many words as fit": Bad(text("word "), "context_length_exceeded", "input", "131072"),
    "as many emoji as fit": Bad(text("😀"), "invalid_value", "input", "in a row"),
    "as many instructions as fit": Bad(
        body(b'"input":"hi","instructions":"', b"word ", b'"}'), "context_length_exceeded", "input", "131072"
    ),
    "a deep input": Bad(body(b'"input":' + b"[" * 100_000, b"]", b"}", 100_000), "invalid_json", None, "nested"),
    "100,000 objects": Bad(body(b'"client_metadata":{"a":', b'{"a":', b"", 100_000), "invalid_json", None, "nested"),
    "levels without end": Bad(body(b'"moderation":', b"[", b""), "invalid_json", None, "nested"),
    "200,000 items": Bad(
        body(b'"input":[', b'{"role":"user","content":"hi"},', b"1]}", 200_000),
        "invalid_value",
        "input",
        "more than 4096",
    ),
    "as many numbers as fit": Bad(body(b'"input":[', b"1,", b"1]}"), "invalid_value", "input", "more than 4096"),
    "as many objects as fit": Bad(body(b'"input":[', b"{},", b"{}]}"), "invalid_value", "input", "more than 4096"),
    "a wrong value before as many names as fit": Bad(
        body(b'"input":"hi","reasoning":{"effort":5},', b'"image":1,', b'"image":1}'),
        "invalid_type",
        "reasoning.effort",
        "5",
    ),
    "as many tools as a megabyte has": Bad(
        body(FULL + b'"tools":[', b"1,", b"1]}", 500_000), "invalid_value", "tools", "more than 128"
    ),
    "an unterminated string": Bad(body(b'"input":"', b"a", b""), "invalid_json", None, "truncated"),
    "an unknown name as long as fits": Bad(
        body(b'"', b"a", b'":1}'), "unknown_parameter", "a" * 60 + "…", "Check its spelling"
    ),
    "as many parts as fit": Bad(
        body(b'"input":[{"role":"user","content":[', b'{"type":"x"},', b"1]}]}"),
        "invalid_value",
        "input[0].content",
        "1024",
    ),
    "the most metadata": Bad(body(FULL + b'"metadata":{', b'"k":"",', b'"k":""}}'), "invalid_value", "metadata", "16"),
    "as many different pairs as fit": Bad(
        lambda: body(FULL + b'"metadata":{', b",".join(b'"%d":""' % n for n in range(LIMIT // 12)), b"}}", 1)(),
        "invalid_value",
        "metadata",
        "16",
    ),
    "as many lists as fit": Bad(
        body(b'"client_metadata":{"a":[', b"[],", b"1]}}"), "missing_required_parameter", "input", "input"
    ),
    "as many unknown parameters as fit": Bad(body(FULL, b'"a":1,', b'"a":1}'), "unknown_parameter", "a", "'a'"),
    "as many lone surrogates as fit": Bad(text(r"\ud83d"), "invalid_json", None, "surrogate"),
    "as many escapes as fit": Bad(text(r"\u0041 "), "context_length_exceeded", "input", "131072"),
    "as many tools as fit": Bad(
        body(FULL + b'"tools":[', b'{"type":"function"},', b"1]}"), "invalid_value", "tools", "1048576"
    ),
    "the largest tool that fits": Bad(
        body(FULL + b'"tools":[{"type":"function","name":"f","parameters":{"enum":[', b"[],", b"1]}}]}"),
        "invalid_value",
        "tools",
        "1048576",
    ),
    "as many includes as fit": Bad(body(FULL + b'"include":[', b'"x",', b'"x"]}'), "invalid_value", "include[0]", "x"),
    "an item with all that fits": Bad(
        body(b'"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}","x":[', b"[],", b"1]}]}"),
        None,
        "input",
        "function call c",
    ),
    "an id with all that fits": Bad(
        body(FULL + b'"previous_response_id":"', b"x", b'"}'),
        "previous_response_not_found",
        "previous_response_id",
        "x",
    ),
}
"""Bodies as large as they may be, of what might be dear to read."""

LEGAL: dict[str, Callable[[], bytes]] = {
    "words of a whole context": text("word ", 100_000),
    "64,000 emoji": text("😀", 64_000),
    "a hundred thousand spaces": text(" ", 100_000),
    "4,000 items": body(b'"input":[', b'{"role":"user","content":"hi"},', b'{"role":"user","content":"hi"}]}', 3_999),
    "an id that is all the body": body(b'"input":[{"role":"user","content":"hi","id":[', b"[],", b"[]]}]}"),
    "100 tools": body(
        FULL + b'"tools":[', b"", b",".join(b'{"type":"function","name":"f%d"}' % n for n in range(100)) + b"]}", 0
    ),
}
"""Bodies that are large and right."""

"""What no client should send, and what it is told: a table of requests and refusals.

A body is JSON's value, or a function that makes its bytes where they are large or no JSON at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.settings import Settings
from tests.http.process import MODEL

MIB = 1 << 20
LIMIT: int = Settings.model_fields["max_body_bytes"].default
UNKNOWN = "resp_" + "0" * 48


@dataclass(frozen=True)
class Bad:
    """A request and what its refusal holds; `words` stand in the message."""

    body: dict[str, Any] | Callable[[], bytes] | None
    code: str | None
    param: str | None
    words: str
    status: int = 400
    method: str = "POST"
    path: str = "/v1/responses"
    kind: str = "application/json"


def create(param: str, value: Any, code: str, words: str, *, named: str | None = None) -> Bad:
    """A create request that is right but for one parameter."""
    return Bad({"model": MODEL, "input": "hi", param: value}, code, named or param, words)


def body(prefix: bytes, repeated: bytes, suffix: bytes, count: int | None = None) -> Callable[[], bytes]:
    """The bytes of a create request with a long end; without a count as long as a body may be."""
    head = b'{"model":"%s",%s' % (MODEL.encode(), prefix)
    times = (LIMIT - len(head) - len(suffix)) // len(repeated) if count is None else count
    return lambda: b"".join((head, repeated * times, suffix))


def text(repeated: str, count: int | None = None) -> Callable[[], bytes]:
    """A create request whose input repeats a text."""
    return body(b'"input":"', repeated.encode(), b'"}', count)


def get(path: str, code: str | None, param: str | None, words: str, status: int = 400) -> Bad:
    """A GET request."""
    return Bad(None, code, param, words, status, "GET", path)


BODIES: dict[str, Bad] = {
    "an empty body": Bad(lambda: b"", "invalid_json", None, "no body"),
    "no JSON": Bad(lambda: b"hello", "invalid_json", None, "could not be parsed"),
    "half of a JSON": Bad(lambda: b'{"model": "gp', "invalid_json", None, "could not be parsed"),
    "two JSONs": Bad(lambda: b'{"input": "hi"} {}', "invalid_json", None, "could not be parsed"),
    "an array": Bad(lambda: b"[]", "invalid_type", None, "expected an object"),
    "a string": Bad(lambda: b'"hi"', "invalid_type", None, "expected an object"),
    "null": Bad(lambda: b"null", "invalid_type", None, "expected an object"),
    "invalid UTF-8": Bad(lambda: b'{"model": "\xff\xfe"}', "invalid_json", None, "UTF-8"),
    "NaN": Bad(lambda: b'{"model": "m", "temperature": NaN}', "invalid_json", None, "could not be parsed"),
    "a lone surrogate": Bad(text(r"\ud800", 1), "invalid_json", None, "surrogate"),
    "a reversed pair": Bad(text(r"\udc00\ud800", 1), "invalid_json", None, "surrogate"),
    "a form": Bad(lambda: b"model=m", "unsupported_media_type", None, "application/json", 415, kind="text/plain"),
    "no content type": Bad(lambda: b"{}", "unsupported_media_type", None, "application/json", 415, kind=""),
    "an empty object": Bad({}, "missing_required_parameter", "model", "'model'"),
    "no input": Bad({"model": MODEL}, "missing_required_parameter", "input", "'input'"),
    "null for an input": Bad({"model": MODEL, "input": None}, "missing_required_parameter", "input", "'input'"),
    "an unknown model": Bad({"model": "m", "input": "hi"}, "model_not_found", "model", MODEL, 404),
}

PARAMETERS: dict[str, Bad] = {
    "a number for a model": create("model", 5, "invalid_type", "a string"),
    "an empty model": create("model", "", "missing_required_parameter", "'model'"),
    "a number for an input": create("input", 5, "invalid_type", "a string or a list"),
    "an object for an input": create("input", {}, "invalid_type", "a string or a list"),
    "an empty list for an input": create("input", [], "invalid_value", "at least one item"),
    "a list for instructions": create("instructions", ["hi"], "invalid_type", "a string"),
    "a number for a previous response": create("previous_response_id", 5, "invalid_type", "a string"),
    "a text for store": create("store", "yes", "invalid_type", "a boolean"),
    "a number for stream": create("stream", 1, "invalid_type", "a boolean"),
    "stream options without a stream": create("stream_options", {}, "invalid_value", "'stream': true"),
    "a list for stream options": create("stream_options", [], "invalid_type", "an object"),
    "a text for a temperature": create("temperature", "hot", "invalid_type", "a number"),
    "too hot": create("temperature", 2.01, "invalid_value", "2.01"),
    "too cold": create("temperature", -1, "invalid_value", "-1"),
    "top_p above one": create("top_p", 1.5, "invalid_value", "1.5"),
    "a list for top_p": create("top_p", [], "invalid_type", "a number"),
    "too few output tokens": create("max_output_tokens", 15, "invalid_value", "15"),
    "more output tokens than a program can count": create("max_output_tokens", 10**40, "invalid_value", "2147483647"),
    "half an output token": create("max_output_tokens", 20.5, "invalid_type", "an integer"),
    "no tool calls": create("max_tool_calls", 0, "invalid_value", "0"),
    "a text for parallel calls": create("parallel_tool_calls", "no", "invalid_type", "a boolean"),
    "a text for reasoning": create("reasoning", "high", "invalid_type", "an object"),
    "an unknown effort": create("reasoning", {"effort": "huge"}, "invalid_value", "huge", named="reasoning.effort"),
    "an unknown key of reasoning": create(
        "reasoning", {"zeal": 1}, "unknown_parameter", "reasoning.zeal", named="reasoning.zeal"
    ),
    "an unknown summary": create("reasoning", {"summary": "long"}, "invalid_value", "long", named="reasoning.summary"),
    "a list for metadata": create("metadata", [], "invalid_type", "an object"),
    "a number in metadata": create("metadata", {"a": 1}, "invalid_type", "a string"),
    "too much metadata": create("metadata", {str(n): "" for n in range(17)}, "invalid_value", "17"),
    "a long key of metadata": create("metadata", {"k" * 65: ""}, "invalid_value", "64"),
    "a long value of metadata": create("metadata", {"k": "v" * 513}, "invalid_value", "512", named="metadata.k"),
    "a long safety identifier": create("safety_identifier", "x" * 129, "invalid_value", "128"),
    "a list for text": create("text", [], "invalid_type", "an object"),
    "a JSON schema without a name": create(
        "text", {"format": {"type": "json_schema"}}, "missing_required_parameter", "name", named="text.format.name"
    ),
    "a text for background": create("background", "yes", "invalid_type", "a boolean"),
    "a background that is not stored": Bad(
        {"model": MODEL, "input": "hi", "background": True, "store": False},
        "unsupported_parameter",
        "background",
        "has to be stored",
    ),
    "a conversation": create("conversation", "conv_1", "unsupported_parameter", "conv_1"),
    "a call without tools": create("tool_choice", "required", "invalid_value", "no tool to call"),
    "an unknown truncation": create("truncation", "some", "invalid_value", "some"),
    "an unknown include": create("include", ["thoughts"], "invalid_value", "thoughts", named="include[0]"),
    "a prompt": create("prompt", {"id": "p"}, "unsupported_parameter", "'prompt'"),
    "too many logprobs": create("top_logprobs", 21, "invalid_value", "21"),
    "a tier of somebody else": create("service_tier", "ultrafast", "invalid_value", "priority"),
    "a number for a tier": create("service_tier", 1, "invalid_type", "a string"),
    "a misspelt parameter": create("temprature", 1, "unknown_parameter", "temprature"),
    "chat's messages": create("messages", [], "unknown_parameter", "messages"),
    "an unknown previous response": create("previous_response_id", UNKNOWN, "previous_response_not_found", UNKNOWN),
    "a malformed previous response": create("previous_response_id", "../x", "previous_response_not_found", "../x"),
    "a previous response of another shard": create(
        "previous_response_id", "resp_" + "f" * 48, "previous_response_not_found", "ffff"
    ),
}

ROUTES: dict[str, Bad] = {
    "an unknown response": get(f"/v1/responses/{UNKNOWN}", None, "response_id", UNKNOWN, 404),
    "a malformed id": get("/v1/responses/resp_%00%ff", None, "response_id", "not found", 404),
    "an id of a different kind": get("/v1/responses/conv_" + "0" * 48, None, "response_id", "conv_", 404),
    "a very long id": get("/v1/responses/" + "x" * 5000, None, "response_id", "xxx", 404),
    "items of an unknown response": get(f"/v1/responses/{UNKNOWN}/input_items", None, "response_id", UNKNOWN, 404),
    "a page of none": get(f"/v1/responses/{UNKNOWN}/input_items?limit=0", "invalid_value", "limit", "'0'"),
    "a page of too many": get(f"/v1/responses/{UNKNOWN}/input_items?limit=101", "invalid_value", "limit", "101"),
    "a page of some": get(f"/v1/responses/{UNKNOWN}/input_items?limit=some", "invalid_value", "limit", "some"),
    "an unknown order": get(f"/v1/responses/{UNKNOWN}/input_items?order=up", "invalid_value", "order", "up"),
    "a stream of an unknown response": get(f"/v1/responses/{UNKNOWN}?stream=true", None, "response_id", UNKNOWN, 404),
    "a stream that is no truth": get(f"/v1/responses/{UNKNOWN}?stream=5", "invalid_value", "stream", "'5'"),
    "a place of no stream": get(
        f"/v1/responses/{UNKNOWN}?starting_after=3", "invalid_value", "starting_after", "stream=true"
    ),
    "a stream from nowhere": get(f"/v1/responses/{UNKNOWN}?starting_after=x", "invalid_value", "starting_after", "x"),
    "a stream from before": get(
        f"/v1/responses/{UNKNOWN}?stream=true&starting_after=-1", "invalid_value", "starting_after", "'-1'"
    ),
    "cancelling what isn't there": Bad(
        None, None, "response_id", UNKNOWN, 404, "POST", f"/v1/responses/{UNKNOWN}/cancel"
    ),
    "an include of what was": get(f"/v1/responses/{UNKNOWN}?include[]=x", "unsupported_parameter", "include", "x"),
    "a model of nobody": get("/v1/models/gpt-9", "model_not_found", "model", "gpt-9", 404),
    "an unknown route": get("/v1/completions", None, None, "/v1/completions", 404),
    "no route": get("/", None, None, "Invalid URL", 404),
    "an unknown method": Bad(None, None, None, "PATCH", 405, "PATCH"),
    "a list of responses": Bad(None, None, None, "GET /v1/responses", 405, "GET"),
    "deleting what isn't there": Bad(None, None, "response_id", UNKNOWN, 404, "DELETE", f"/v1/responses/{UNKNOWN}"),
}

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
    "100,000 levels of input": Bad(
        body(b'"input":' + b"[" * 100_000, b"]", b"}", 100_000), "invalid_json", None, "nested"
    ),
    "100,000 levels of objects": Bad(body(b'"user":{"a":', b'{"a":', b"", 100_000), "invalid_json", None, "nested"),
    "levels without end": Bad(body(b'"user":', b"[", b""), "invalid_json", None, "nested"),
    "200,000 items": Bad(
        body(b'"input":[', b'{"role":"user","content":"hi"},', b"1]}", 200_000),
        "invalid_value",
        "input",
        "more than 4096",
    ),
    "as many numbers as fit": Bad(body(b'"input":[', b"1,", b"1]}"), "invalid_value", "input", "more than 4096"),
    "as many objects as fit": Bad(body(b'"input":[', b"{},", b"{}]}"), "invalid_value", "input", "more than 4096"),
    "a wrong value before as many names as fit": Bad(
        body(b'"input":"hi","reasoning":{"effort":5},', b'"user":1,', b'"user":1}'),
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
    "as many pairs of metadata as fit": Bad(
        body(FULL + b'"metadata":{', b'"k":"",', b'"k":""}}'), "invalid_value", "metadata", "16"
    ),
    "as many different pairs as fit": Bad(
        lambda: body(FULL + b'"metadata":{', b",".join(b'"%d":""' % n for n in range(LIMIT // 12)), b"}}", 1)(),
        "invalid_value",
        "metadata",
        "16",
    ),
    "as many lists as fit": Bad(
        body(b'"client_metadata":[', b"[],", b"1]}"), "missing_required_parameter", "input", "input"
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

"""Bad requests and what each is told, in tables by what is wrong; and how the service's readers meet them without HTTP.

What stands in a route is in `refusal` in a few lines, so keep to its order. Never refuse anything there.
"""

import json
from contextlib import AsyncExitStack

from starlette.types import Message

from service.api.request import CreateRequest, read_count, read_create
from service.errors import ApiError
from service.responses.prepare import prepare
from service.responses.prompt.compaction import read_compact
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.web.body import read_body
from store.errors import StoreError
from tests.support.bad.items import HISTORIES, ITEMS, PARTS
from tests.support.bad.table import (
    CREATE,
    JSON,
    MISSING,
    MODEL,
    STRANGE,
    TYPE,
    UNKNOWN,
    UNSUPPORTED,
    VALUE,
    Bad,
    Table,
    create,
    get,
    post,
    text,
)
from tests.support.bad.tools import CHOICES, DECLARED, FORMATS, GRAMMARS, SCHEMAS, SENT, TOOLS

HERE = f"/v1/responses/{UNKNOWN}"
TREES = "/console/api/trees"
COUNT, COMPACT = "/v1/responses/input_tokens", "/v1/responses/compact"

ROUTES: Table = {
    "an unknown response": get(HERE, None, "response_id", UNKNOWN, 404),
    "an unknown response of the other dialect": get(f"/open-responses{HERE}", None, "response_id", UNKNOWN, 404),
    "a malformed id": get("/v1/responses/resp_%00%ff", None, "response_id", "not found", 404),
    "a very long id": get("/v1/responses/" + "x" * 5000, None, "response_id", "xxx", 404),
    "the tree of an unknown response": get(f"{TREES}/{UNKNOWN}", None, "response_id", UNKNOWN, 404),
    "a post of trees": post(TREES, None, None, "GET", 405),
    "items of an unknown response": get(f"{HERE}/input_items", None, "response_id", UNKNOWN, 404),
    "a page of none": get(f"{HERE}/input_items?limit=0", VALUE, "limit", "'0'"),
    "a page of too many": get(f"{HERE}/input_items?limit=101", VALUE, "limit", "101"),
    "an unknown order": get(f"{HERE}/input_items?order=up", VALUE, "order", "up"),
    "an unknown include of items": get(f"{HERE}/input_items?include[]=x", VALUE, "include", "x"),
    "a stream of an unknown response": get(f"{HERE}?stream=true", None, "response_id", UNKNOWN, 404),
    "a stream that is no truth": get(f"{HERE}?stream=5", VALUE, "stream", "'5'"),
    "an obfuscation by a word": get(f"{HERE}?include_obfuscation=perhaps", VALUE, "include_obfuscation", "perhaps"),
    "a place of no stream": get(f"{HERE}?starting_after=3", VALUE, "starting_after", "stream=true"),
    "a stream from nowhere": get(f"{HERE}?starting_after=x", VALUE, "starting_after", "x"),
    "a stream from before": get(f"{HERE}?stream=true&starting_after=-1", VALUE, "starting_after", "'-1'"),
    "an include of what was": get(f"{HERE}?include[]=x", VALUE, "include", "x"),
    "cancelling what isn't there": post(f"{HERE}/cancel", None, "response_id", UNKNOWN, 404),
    "deleting what isn't there": Bad(None, None, "response_id", UNKNOWN, 404, "DELETE", HERE),
    "deleting half of it": Bad(None, VALUE, "tree", "half", 400, "DELETE", f"{HERE}?tree=half"),
    "erasing perhaps": Bad(None, VALUE, "erase", "perhaps", 400, "DELETE", f"{HERE}?erase=perhaps"),
    "a model of nobody": get("/v1/models/gpt-9", "model_not_found", "model", "gpt-9", 404),
    "an unknown route": get("/v1/rhubarb", None, None, "/openapi.json lists each path", 404),
    "completions": get("/v1/completions", None, None, "Responses API", 404),
    "a version too many": post("/v1/v1/responses", None, None, "Did you mean /v1/responses?", 404, model=MODEL),
    "a page before an item": get(f"{HERE}/input_items?before=msg_1", STRANGE, "before", "Unknown query"),
    "a query that nobody knows": get(f"{HERE}?wibble=1", STRANGE, "wibble", "wibble"),
    "a query with a letter too few": get(f"{HERE}?strem=true", STRANGE, "strem", "Did you mean 'stream'?"),
    "a query of a create": post("/v1/responses?stream=true", STRANGE, "stream", "Unknown query", model=MODEL),
    "a query of models": get("/v1/models?limit=1", STRANGE, "limit", "Unknown query"),
    "a filter of items": get(f"{HERE}/input_items?metadata[a]=1", STRANGE, "metadata[a]", "Unknown query"),
    "chat's way out": post("/v1/chat/completions", None, None, "POST /v1/responses", 404, model=MODEL, messages=[]),
    "a list behind what is not there": get("/v1/conversations?after=conv_1", VALUE, "after", "conv_1"),
    "a filter without a key": get("/v1/conversations?metadata=a", VALUE, "metadata", "metadata=a."),
    "a filter that is not closed": get("/v1/conversations?metadata[a=1", VALUE, "metadata", "metadata[key]=value"),
    "a filter given twice": get("/v1/conversations?metadata[a]=1&metadata[a]=2", VALUE, "metadata", "once"),
    "a filter with a long key": get(f"/v1/conversations?metadata[{'k' * 65}]=1", VALUE, "metadata", "64"),
    "a filter with a long value": get(f"/v1/conversations?metadata[k]={'v' * 513}", VALUE, "metadata.k", "512"),
    "a filter with many keys": get(
        "/v1/conversations?" + "&".join(f"metadata[{n}]=1" for n in range(17)), VALUE, "metadata", "16"
    ),
    "no route": get("/nothing", None, None, "Invalid URL", 404),
    "an unknown method": Bad(None, None, None, "PATCH", 405, "PATCH"),
    "a list of responses": Bad(None, "upgrade_required", None, "WebSocket", 426, "GET"),
}

OTHERS: Table = {
    "counting nothing": Bad(lambda: b"", "invalid_json", None, "no body", path=COUNT),
    "counting without input": post(COUNT, MISSING, "input", "'input'", model=MODEL),
    "counting a number": post(COUNT, TYPE, "input", "a string or a list", model=MODEL, input=5),
    "counting what doesn't exist": post(COUNT, STRANGE, "messages", "messages", model=MODEL, input="hi", messages=[]),
    "counting a bad choice": post(COUNT, VALUE, "tool_choice", "maybe", input="hi", tool_choice="maybe"),
    "counting behind an unknown response": post(
        COUNT, "previous_response_not_found", "previous_response_id", UNKNOWN, input="hi", previous_response_id=UNKNOWN
    ),
    "compacting nothing": Bad(lambda: b"", "invalid_json", None, "no body", path=COMPACT),
    "compacting without a model": post(COMPACT, MISSING, "model", "'model'", input="hi"),
    "compacting without input": post(COMPACT, MISSING, "input", "'input'", model=MODEL),
    "compacting an empty input": post(COMPACT, VALUE, "input", "at least one item", model=MODEL, input=[]),
    "compacting for an unknown model": post(COMPACT, "model_not_found", "model", "'demo'", 404, model="m", input="hi"),
    "compacting as a stream": post(COMPACT, STRANGE, "stream", "stream", model=MODEL, input="hi", stream=True),
    "creating in the other dialect": post("/open-responses/v1/responses", MISSING, "input", "'input'", model=MODEL),
}
"""Endpoints that read a body as creating does."""


# --- bodies ---

BODIES: Table = {
    "an empty body": Bad(lambda: b"", "invalid_json", None, "no body"),
    "no JSON": Bad(lambda: b"hello", "invalid_json", None, "could not be parsed"),
    "an array": Bad(lambda: b"[]", TYPE, None, "expected an object"),
    "null": Bad(lambda: b"null", TYPE, None, "expected an object"),
    "invalid UTF-8": Bad(lambda: b'{"model": "\xff\xfe"}', "invalid_json", None, "UTF-8"),
    "invalid UTF-8 where nobody looks": Bad(
        lambda: b'{"model":"%s","input":"hi","user":"\xff"}' % MODEL.encode(), "invalid_json", None, "UTF-8"
    ),
    "a mark of byte order": Bad(lambda: b'\xef\xbb\xbf{"input":"hi"}', "invalid_json", None, "could not be parsed"),
    "UTF-16": Bad(lambda: '{"input":"hi"}'.encode("utf-16"), "invalid_json", None, "UTF-8"),
    "NaN": Bad(lambda: b'{"model": "m", "temperature": NaN}', "invalid_json", None, "could not be parsed"),
    "a lone surrogate": Bad(text(r"\ud800", 1), "invalid_json", None, "surrogate"),
    "a form": Bad(lambda: b"model=m", "unsupported_media_type", None, "application/json", 415, kind="text/plain"),
    "no content type": Bad(lambda: b"{}", "unsupported_media_type", None, "application/json", 415, kind=""),
    "an empty object": Bad({}, MISSING, "model", "'model'"),
    "no input": Bad({"model": MODEL}, MISSING, "input", "'input'"),
    "an unknown model": Bad({"model": "m", "input": "hi"}, "model_not_found", "model", "'demo'", 404),
}

PARAMETERS: Table = {
    "a number for a model": create("model", 5, TYPE, "a string"),
    "an empty model": create("model", "", MISSING, "'model'"),
    "an empty list for an input": create("input", [], VALUE, "at least one item"),
    "a list for instructions": create("instructions", ["hi"], TYPE, "a string"),
    "a text for store": create("store", "yes", TYPE, "a boolean"),
    "a number for stream": create("stream", 1, TYPE, "a boolean"),
    "stream options without a stream": create("stream_options", {}, VALUE, "'stream': true"),
    "a stream option": create("stream_options", {"fast": 1}, STRANGE, "fast", named="stream_options.fast", stream=True),
    "a background that is not stored": create(
        "background", True, UNSUPPORTED, "can only be used when `store` is true", store=False
    ),
    "messages of Chat Completions": create("messages", [], STRANGE, "'input'"),
    "an effort of Chat Completions": create("reasoning_effort", "low", STRANGE, "'reasoning.effort'"),
    "a lost letter": create("reasoning", {"efort": "low"}, STRANGE, "Did you mean 'effort'?", named="reasoning.efort"),
    "a long user": create("user", "u" * 1025, VALUE, "1024"),
    "a time of the cache that nobody knows": create("prompt_cache_retention", "bogus", VALUE, "24h"),
    "a time to live that no cache has": create(
        "prompt_cache_options", {"ttl": "1h"}, VALUE, "12h", named="prompt_cache_options.ttl"
    ),
    "a list for what a client knows": create("client_metadata", [], VALUE, "an object"),
    "a wish for moderation": create("moderation", {"model": "x"}, UNSUPPORTED, "Nothing is moderated"),
    "a variable of a template that is a tree": create("chat_template_kwargs", {"a": [[]]}, TYPE, "array"),
    "an argument that no template has": create("chat_template_kwargs", {"tools": "x"}, VALUE, "no variable"),
    "too long a variable of a template": create("chat_template_kwargs", {"a": "x" * 20_000}, VALUE, "16384 bytes"),
    "too many variables of a template": create("chat_template_kwargs", {str(n): n for n in range(65)}, VALUE, "64"),
    "vLLM's structured outputs": create("structured_outputs", {"choice": ["a"]}, UNSUPPORTED, "text.format"),
    "a bias of tokens": create("logit_bias", {"1": 1}, UNSUPPORTED, "Leave it out"),
    "an answer without end": create("ignore_eos", True, UNSUPPORTED, "Leave it out"),
    "a number for a session": create("session_id", 5, TYPE, "a string"),
    "a long key of metadata": create("metadata", {"k" * 65: ""}, VALUE, "64"),
    "a long safety identifier": create("safety_identifier", "x" * 129, VALUE, "128"),
    "a long cache key": create("prompt_cache_key", "x" * 1025, VALUE, "1024"),
    "a tier of somebody else": create("service_tier", "gold", VALUE, "priority"),
    "a priority beyond numbers": create("priority", 2**31, VALUE, "2147483647"),
    "a request id with spaces": create("request_id", "a b", VALUE, "a b"),
    "a text for Harmony's messages": create("enable_response_messages", "yes", TYPE, "a boolean"),
    "an unknown truncation": create("truncation", "middle", VALUE, "auto, disabled"),
    "a number for a conversation": create("conversation", 1, TYPE, "a string"),
    "a conversation without an id": create("conversation", {}, MISSING, "id", named="conversation.id"),
    "magic": create("context_management", [{"type": "magic"}], VALUE, "magic", named="context_management[0].type"),
    "a context managed twice": create("context_management", [{"type": "compaction"}] * 2, VALUE, "length <= 1"),
    "a threshold of nothing": create(
        "context_management",
        [{"type": "compaction", "compact_threshold": 0}],
        VALUE,
        ">= 1",
        named="context_management[0].compact_threshold",
    ),
    "an image to make": create("image", {"size": "1024x1024"}, UNSUPPORTED, "1024"),
    "an unknown previous response": create("previous_response_id", UNKNOWN, "previous_response_not_found", UNKNOWN),
    "a malformed previous response": create("previous_response_id", "../x", "previous_response_not_found", "../x"),
}

SAMPLING: Table = {
    "a text for a temperature": create("temperature", "hot", TYPE, "a number"),
    "too hot": create("temperature", 2.01, VALUE, "2.01"),
    "top_p above one": create("top_p", 1.5, VALUE, "1.5"),
    "top_k below all": create("top_k", -2, VALUE, "-1"),
    "min_p above one": create("min_p", 1.1, VALUE, "1.1"),
    "a presence beyond penalty": create("presence_penalty", 2.5, VALUE, "2.5"),
    "a frequency beyond penalty": create("frequency_penalty", -2.5, VALUE, "-2.5"),
    "no repetition at all": create("repetition_penalty", 0, VALUE, "0"),
    "too much repetition": create("repetition_penalty", 3, VALUE, "3"),
    "a seed beyond numbers": create("seed", 2**63, VALUE, "9223372036854775807"),
    "a stop that is a number": create("stop", 7, TYPE, "7"),
    "an empty stop": create("stop", "", VALUE, "256"),
    "too many stops": create("stop", ["END"] * 17, VALUE, "16"),
    "too few output tokens": create("max_output_tokens", 15, VALUE, "15"),
    "more output tokens than a program can count": create("max_output_tokens", 10**40, VALUE, "2147483647"),
    "no tool calls": create("max_tool_calls", 0, VALUE, "0"),
    "a text for parallel calls": create("parallel_tool_calls", "no", TYPE, "a boolean"),
    "too many alternatives": create("top_logprobs", 21, VALUE, "20"),
    "an include of nobody": create("include", ["usage"], VALUE, "usage", named="include[0]"),
    "too many includes": create("include", ["reasoning.encrypted_content"] * 65, VALUE, "64"),
    "an unknown effort": create("reasoning", {"effort": "huge"}, VALUE, "huge", named="reasoning.effort"),
    "an unknown key of reasoning": create("reasoning", {"zeal": 1}, STRANGE, "reasoning.zeal", named="reasoning.zeal"),
    "an unknown summary": create("reasoning", {"summary": "epic"}, VALUE, "detailed", named="reasoning.summary"),
    "an unknown context here": create("reasoning", {"context": "none"}, VALUE, "all_turns", named="reasoning.context"),
    "a mode of a later release": create("reasoning", {"mode": "pro"}, UNSUPPORTED, "pro", named="reasoning.mode"),
}

PROMPTS: Table = {
    "a prompt where there are none": create("prompt", {"id": "p"}, UNSUPPORTED, "no stored prompts"),
    "a prompt that is a text": create("prompt", "p", TYPE, "an object"),
    "a prompt of no id": create("prompt", {}, MISSING, "id", named="prompt.id"),
    "a prompt of an empty id": create("prompt", {"id": ""}, VALUE, "1", named="prompt.id"),
}

TABLES = (
    *(BODIES, PARAMETERS, SAMPLING, PROMPTS, ITEMS, PARTS, HISTORIES, TOOLS, CHOICES, GRAMMARS, FORMATS, SCHEMAS),
    *(DECLARED, SENT, ROUTES, OTHERS),
)
SMALL: Table = {name: bad for table in TABLES for name, bad in table.items()}
"""All those whose bodies are small."""


# --- as readers meet them ---

READ: Table = {
    name: bad
    for name, bad in SMALL.items()
    if (bad.method, bad.kind) == ("POST", JSON) and bad.path in (CREATE, COUNT, COMPACT)
}
"""Those that a reader refuses. The others are refused for their path, their method, their query or their type."""

FEW = 3


def over_http() -> Table:
    """Those that are sent to a service: a few of each kind that a reader refuses, and all others."""
    kinds: dict[object, int] = {}
    sent: Table = {}
    for name, bad in SMALL.items():
        kind = (bad.path, bad.status, bad.code)
        kinds[kind] = kinds.get(kind, 0) + 1
        if name not in READ or kinds[kind] <= FEW:
            sent[name] = bad
    return sent


def content(bad: Bad) -> bytes | None:
    if callable(bad.body):
        return bad.body()
    return None if bad.body is None else json.dumps(bad.body).encode()


async def refusal(service: Service, bad: Bad) -> ApiError:
    """How a request is refused. Raises AssertionError where it isn't."""

    async def receive() -> Message:
        return {"type": "http.request", "body": content(bad) or b""}

    settings = service.settings
    try:
        body = await read_body(
            receive, None, limit=settings.max_body_bytes, seconds=settings.send_seconds, take=lambda size: None
        )
        async with AsyncExitStack() as resources:
            await prepare(service, Caller("default"), await _read(service, bad.path, body), resources)
            raise AssertionError("nothing refused it")
    except ApiError as error:
        return error
    except StoreError as error:
        return refusal_of(error)


async def _read(service: Service, path: str, body: bytes) -> CreateRequest:
    """A body as the route of a path reads it."""
    if path == COUNT:
        return read_count(body, store=True)
    return (read_compact if path == COMPACT else read_create)(body, store=True)

"""Bad requests and what each is told, in tables by what is wrong; and how the service's readers meet them without HTTP.

What stands in a route is in `refusal` in a few lines, so keep to its order. Never refuse anything there.
"""

import json
from contextlib import AsyncExitStack

from starlette.types import Message

from service.api.request import CreateRequest, read_count, read_create
from service.entrance import Entry
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
from tests.support.bad.tools import CHOICES, DECLARED, FORMATS, FOUND, GRAMMARS, SCHEMAS, SEARCHED, SENT, TOOLS

HERE = f"/v1/responses/{UNKNOWN}"
COUNT, COMPACT, NEW = "/v1/responses/input_tokens", "/v1/responses/compact", "/v1/conversations"

ROUTES: Table = {
    "an unknown response": get(HERE, None, "response_id", UNKNOWN, 404),
    "a malformed id": get("/v1/responses/resp_%00%ff", None, "response_id", "not found", 404),
    "a very long id": get("/v1/responses/" + "x" * 5000, None, "response_id", "xxx", 404),
    "items of an unknown response": get(f"{HERE}/input_items", None, "response_id", UNKNOWN, 404),
    "a page of none": get(f"{HERE}/input_items?limit=0", VALUE, "limit", "'0'"),
    "a place of no stream": get(f"{HERE}?starting_after=3", VALUE, "starting_after", "stream=true"),
    "a stream from before": get(f"{HERE}?stream=true&starting_after=-1", VALUE, "starting_after", "'-1'"),
    "an include of what was": get(f"{HERE}?include[]=x", VALUE, "include", "x"),
    "cancelling what isn't there": post(f"{HERE}/cancel", None, "response_id", UNKNOWN, 404),
    "deleting what isn't there": Bad(None, None, "response_id", UNKNOWN, 404, "DELETE", HERE),
    "deleting half of it": Bad(None, VALUE, "tree", "half", 400, "DELETE", f"{HERE}?tree=half"),
    "a model of nobody": get("/v1/models/gpt-9", "model_not_found", "model", "gpt-9", 404),
    "an unknown route": get("/v1/rhubarb", None, None, "/openapi.json lists all", 404),
    "a query with a letter too few": get(f"{HERE}?strem=true", STRANGE, "strem", "Did you mean 'stream'?"),
    "chat's way out": post("/v1/chat/completions", None, None, "POST /v1/responses", 404, model=MODEL, messages=[]),
    "a list behind what is not there": get("/v1/conversations?after=conv_1", VALUE, "after", "conv_1"),
    "a conversation that begins with a wish to compact": post(
        NEW, VALUE, "items[0].type", "response", items=[{"type": "compaction_trigger"}]
    ),
    "a conversation that found a tool without a name": post(
        NEW, MISSING, "items[1].tools[0].name", "name", items=[SEARCHED, {**FOUND, "tools": [{"type": "function"}]}]
    ),
    "a filter that is not closed": get("/v1/conversations?metadata[a=1", VALUE, "metadata", "metadata[key]=value"),
    "a filter given twice": get("/v1/conversations?metadata[a]=1&metadata[a]=2", VALUE, "metadata", "once"),
    "a filter with many keys": get(
        "/v1/conversations?" + "&".join(f"metadata[{n}]=1" for n in range(17)), VALUE, "metadata", "16"
    ),
    "an unknown method": Bad(None, None, None, "PATCH", 405, "PATCH"),
}

OTHERS: Table = {
    "counting nothing": Bad(lambda: b"", "invalid_json", None, "no body", path=COUNT),
    "counting a number": post(COUNT, TYPE, "input", "a string or a list", model=MODEL, input=5),
    "counting a bad choice": post(COUNT, VALUE, "tool_choice", "maybe", input="hi", tool_choice="maybe"),
    "counting behind an unknown response": post(
        COUNT, "previous_response_not_found", "previous_response_id", UNKNOWN, input="hi", previous_response_id=UNKNOWN
    ),
    "compacting without a model": post(COMPACT, MISSING, "model", "'model'", input="hi"),
    "compacting for an unknown model": post(
        COMPACT, "model_not_found", "model", "not exist", 404, model="m", input="hi"
    ),
}
"""Endpoints that read a body as creating does."""


# --- bodies ---

BODIES: Table = {
    "an empty body": Bad(lambda: b"", "invalid_json", None, "no body"),
    "no JSON": Bad(lambda: b"hello", "invalid_json", None, "could not be parsed"),
    "an array": Bad(lambda: b"[]", TYPE, None, "expected an object"),
    "invalid UTF-8": Bad(lambda: b'{"model": "\xff\xfe"}', "invalid_json", None, "UTF-8"),
    "invalid UTF-8 where nobody looks": Bad(
        lambda: b'{"model":"%s","input":"hi","user":"\xff"}' % MODEL.encode(), "invalid_json", None, "UTF-8"
    ),
    "a mark of byte order": Bad(lambda: b'\xef\xbb\xbf{"input":"hi"}', "invalid_json", None, "could not be parsed"),
    "NaN": Bad(lambda: b'{"model": "m", "temperature": NaN}', "invalid_json", None, "could not be parsed"),
    "a lone surrogate": Bad(text(r"\ud800", 1), "invalid_json", None, "surrogate"),
    "a form": Bad(lambda: b"model=m", "unsupported_media_type", None, "application/json", 415, kind="text/plain"),
    "no input": Bad({"model": MODEL}, MISSING, "input", "'input'"),
    "an unknown model": Bad({"model": "m", "input": "hi"}, "model_not_found", "model", "not exist", 404),
}

PARAMETERS: Table = {
    "a number for a model": create("model", 5, TYPE, "a string"),
    "an empty list for an input": create("input", [], VALUE, "at least one item"),
    "a number for stream": create("stream", 1, TYPE, "a boolean"),
    "stream options without a stream": create("stream_options", {}, VALUE, "'stream': true"),
    "a background that is not stored": create(
        "background", True, UNSUPPORTED, "can only be used when `store` is true", store=False
    ),
    "messages of Chat Completions": create("messages", [], STRANGE, "'input'"),
    "a lost letter": create("reasoning", {"efort": "low"}, STRANGE, "Did you mean 'effort'?", named="reasoning.efort"),
    "a time of the cache that nobody knows": create("prompt_cache_retention", "bogus", VALUE, "24h"),
    "a list for what a client knows": create("client_metadata", [], VALUE, "an object"),
    "a wish for moderation": create("moderation", {"model": "x"}, UNSUPPORTED, "moderates nothing"),
    "a variable of a template that is a tree": create("chat_template_kwargs", {"a": [[]]}, TYPE, "array"),
    "an argument that no template has": create("chat_template_kwargs", {"tools": "x"}, VALUE, "no variable"),
    "too long a variable of a template": create("chat_template_kwargs", {"a": "x" * 20_000}, VALUE, "16384 bytes"),
    "too many variables of a template": create("chat_template_kwargs", {str(n): n for n in range(65)}, VALUE, "64"),
    "vLLM's structured outputs": create("structured_outputs", {"choice": ["a"]}, UNSUPPORTED, "text.format"),
    "a bias of tokens": create("logit_bias", {"1": 1}, UNSUPPORTED, "Leave it out"),
    "a long key of metadata": create("metadata", {"k" * 65: ""}, VALUE, "64"),
    "too many pairs of metadata": create("metadata", {str(n): "" for n in range(17)}, VALUE, "17"),
    "a tier of somebody else": create("service_tier", "gold", VALUE, "priority"),
    "a priority beyond numbers": create("priority", 2**31, VALUE, "2147483647"),
    "an unknown truncation": create("truncation", "middle", VALUE, "auto, disabled"),
    "an empty id for a conversation": create("conversation", "", VALUE, "Give the id"),
    "a conversation with an empty id": create("conversation", {"id": ""}, VALUE, "Give the id"),
    "a number for a conversation": create("conversation", 1, TYPE, "a string"),
    "a context managed twice": create("context_management", [{"type": "compaction"}] * 2, VALUE, "length <= 1"),
    "an image to make": create("image", {"size": "1024x1024"}, UNSUPPORTED, "1024"),
    "an unknown previous response": create("previous_response_id", UNKNOWN, "previous_response_not_found", UNKNOWN),
    "a malformed previous response": create("previous_response_id", "../x", "previous_response_not_found", "../x"),
}

SAMPLING: Table = {
    "a text for a temperature": create("temperature", "hot", TYPE, "a number"),
    "too hot": create("temperature", 2.01, VALUE, "2.01"),
    "top_k below all": create("top_k", -2, VALUE, "-1"),
    "a presence beyond penalty": create("presence_penalty", 2.5, VALUE, "2.5"),
    "no repetition at all": create("repetition_penalty", 0, VALUE, "0"),
    "a seed beyond numbers": create("seed", 2**63, VALUE, "9223372036854775807"),
    "a stop that is a number": create("stop", 7, TYPE, "7"),
    "an empty stop": create("stop", "", VALUE, "256"),
    "too many stops": create("stop", ["END"] * 17, VALUE, "16"),
    "too few output tokens": create("max_output_tokens", 15, VALUE, "15"),
    "more output tokens than a program can count": create("max_output_tokens", 10**40, VALUE, "2147483647"),
    "no tool calls": create("max_tool_calls", 0, VALUE, "0"),
    "too many alternatives": create("top_logprobs", 21, VALUE, "20"),
    "an include of nobody": create("include", ["usage"], VALUE, "usage", named="include[0]"),
    "an unknown effort": create("reasoning", {"effort": "huge"}, VALUE, "huge", named="reasoning.effort"),
    "an unknown key of reasoning": create("reasoning", {"zeal": 1}, STRANGE, "reasoning.zeal", named="reasoning.zeal"),
    "a mode of a later release": create("reasoning", {"mode": "pro"}, UNSUPPORTED, "pro", named="reasoning.mode"),
}

PROMPTS: Table = {
    "a prompt where there are none": create("prompt", {"id": "p"}, UNSUPPORTED, "no stored prompts"),
    "a prompt that is a text": create("prompt", "p", TYPE, "an object"),
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

REPLAYED = {
    *("a shell's call without its id", "a number for a command", "too many commands", "an unknown operation"),
    *("a path of two lines", "a client's search without its id", "a call with a wild name"),
}
"""Those that a model has made, which nobody can change: they are refused only with HARMONIUM_UNSUPPORTED=refuse."""

FEW = 3


def over_http() -> Table:
    """Those that are sent to a service: a few of each kind that a reader refuses, and all others."""
    kinds: dict[object, int] = {}
    sent: Table = {}
    for name, bad in SMALL.items():
        if name in REPLAYED:
            continue
        kind = (bad.path, bad.status, bad.code)
        kinds[kind] = kinds.get(kind, 0) + 1
        if name not in READ or kinds[kind] <= FEW:
            sent[name] = bad
    return sent


def content(bad: Bad) -> bytes | None:
    if callable(bad.body):
        return bad.body()
    return None if bad.body is None else json.dumps(bad.body).encode()


async def refusal(service: Service, bad: Bad) -> ApiError | None:
    """How a request is refused, if it is."""

    async def receive() -> Message:
        return {"type": "http.request", "body": content(bad) or b""}

    settings = service.settings
    try:
        body = await read_body(
            receive, None, limit=settings.max_body_bytes, seconds=settings.send_seconds, take=lambda size: None
        )
        async with AsyncExitStack() as resources:
            await prepare(service, Caller(Entry("default")), await _read(service, bad.path, body), resources)
    except ApiError as error:
        return error
    except StoreError as error:
        return refusal_of(error)
    return None


async def _read(service: Service, path: str, body: bytes) -> CreateRequest:
    """A body as the route of a path reads it."""
    if path == COUNT:
        return read_count(body, store=True)
    return (read_compact if path == COMPACT else read_create)(body, store=True)

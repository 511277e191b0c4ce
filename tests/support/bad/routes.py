"""Paths, methods and queries that no client should send, and bodies of other endpoints than that which creates."""

from tests.support.bad.table import MODEL, UNKNOWN, Bad, Table, get, post

HERE = f"/v1/responses/{UNKNOWN}"
TREES = "/console/api/trees"
COUNT, COMPACT = "/v1/responses/input_tokens", "/v1/responses/compact"

ROUTES: Table = {
    "an unknown response": get(HERE, None, "response_id", UNKNOWN, 404),
    "an unknown response of the other dialect": get(f"/open-responses{HERE}", None, "response_id", UNKNOWN, 404),
    "a malformed id": get("/v1/responses/resp_%00%ff", None, "response_id", "not found", 404),
    "an id of a different kind": get("/v1/responses/conv_" + "0" * 48, None, "response_id", "conv_", 404),
    "an id in capitals": get(HERE.replace("resp_", "RESP_"), None, "response_id", "RESP_", 404),
    "a very long id": get("/v1/responses/" + "x" * 5000, None, "response_id", "xxx", 404),
    "the tree of an unknown response": get(f"{TREES}/{UNKNOWN}", None, "response_id", UNKNOWN, 404),
    "the tree of nothing": get(f"{TREES}/%00", None, "response_id", "not found", 404),
    "the tree of a very long id": get(f"{TREES}/{'x' * 5000}", None, "response_id", "xxx", 404),
    "the tree of half a conversation": get(f"{TREES}/conv_0", None, None, "conv_0", 404),
    "trees behind none": get(f"{TREES}?after=", "invalid_value", "after", "the page before"),
    "trees behind a response": get(f"{TREES}?after={UNKNOWN}", "invalid_value", "after", "resp_"),
    "trees of an unknown status": get(f"{TREES}?status=done", "invalid_value", "status", "done"),
    "trees since a word": get(f"{TREES}?since=today", "invalid_value", "since", "today"),
    "trees of metadata without a key": get(f"{TREES}?metadata=x", "invalid_value", "metadata", "metadata[key]"),
    "trees in an order": get(f"{TREES}?order=asc", "unknown_parameter", "order", "order"),
    "a post of trees": post(TREES, None, None, "GET", 405),
    "items of an unknown response": get(f"{HERE}/input_items", None, "response_id", UNKNOWN, 404),
    "a page of none": get(f"{HERE}/input_items?limit=0", "invalid_value", "limit", "'0'"),
    "a page of too many": get(f"{HERE}/input_items?limit=101", "invalid_value", "limit", "101"),
    "a page of some": get(f"{HERE}/input_items?limit=some", "invalid_value", "limit", "some"),
    "a page of half an item": get(f"{HERE}/input_items?limit=0.5", "invalid_value", "limit", "0.5"),
    "a page beyond numbers": get(f"{HERE}/input_items?limit={10**40}", "invalid_value", "limit", "1000"),
    "an unknown order": get(f"{HERE}/input_items?order=up", "invalid_value", "order", "up"),
    "an empty order": get(f"{HERE}/input_items?order=", "invalid_value", "order", "''"),
    "an unknown include of items": get(f"{HERE}/input_items?include[]=x", "invalid_value", "include", "x"),
    "a stream of an unknown response": get(f"{HERE}?stream=true", None, "response_id", UNKNOWN, 404),
    "a stream that is no truth": get(f"{HERE}?stream=5", "invalid_value", "stream", "'5'"),
    "an obfuscation that is no truth": get(
        f"{HERE}?include_obfuscation=perhaps", "invalid_value", "include_obfuscation", "perhaps"
    ),
    "a place of no stream": get(f"{HERE}?starting_after=3", "invalid_value", "starting_after", "stream=true"),
    "a stream from nowhere": get(f"{HERE}?starting_after=x", "invalid_value", "starting_after", "x"),
    "a stream from before": get(f"{HERE}?stream=true&starting_after=-1", "invalid_value", "starting_after", "'-1'"),
    "a stream from beyond": get(
        f"{HERE}?stream=true&starting_after={2**31}", "invalid_value", "starting_after", str(2**31)
    ),
    "an include of what was": get(f"{HERE}?include[]=x", "invalid_value", "include", "x"),
    "cancelling what isn't there": post(f"{HERE}/cancel", None, "response_id", UNKNOWN, 404),
    "cancelling a malformed id": post("/v1/responses/nothing/cancel", None, "response_id", "nothing", 404),
    "deleting what isn't there": Bad(None, None, "response_id", UNKNOWN, 404, "DELETE", HERE),
    "deleting a tree that isn't there": Bad(None, None, "response_id", UNKNOWN, 404, "DELETE", f"{HERE}?tree=true"),
    "deleting half of it": Bad(None, "invalid_value", "tree", "half", 400, "DELETE", f"{HERE}?tree=half"),
    "erasing perhaps": Bad(None, "invalid_value", "erase", "perhaps", 400, "DELETE", f"{HERE}?erase=perhaps"),
    "a model of nobody": get("/v1/models/gpt-9", "model_not_found", "model", "gpt-9", 404),
    "an unknown route": get("/v1/rhubarb", None, None, "Paths begin with /v1", 404),
    "completions": get("/v1/completions", None, None, "Responses API", 404),
    "a version too many": post("/v1/v1/responses", None, None, "Did you mean /v1/responses?", 404, model=MODEL),
    "a version too few": post("/responses", None, None, "Did you mean /v1/responses?", 404, model=MODEL),
    "a slash too many": post("/v1/responses/", None, None, "Did you mean /v1/responses?", 404, model=MODEL),
    "a page before an item": get(f"{HERE}/input_items?before=msg_1", "unknown_parameter", "before", "Unknown query"),
    "a query that nobody knows": get(f"{HERE}?wibble=1", "unknown_parameter", "wibble", "wibble"),
    "a query with a letter too few": get(f"{HERE}?strem=true", "unknown_parameter", "strem", "Did you mean 'stream'?"),
    "a query of a create": post(
        "/v1/responses?stream=true", "unknown_parameter", "stream", "Unknown query", model=MODEL
    ),
    "a query of models": get("/v1/models?limit=1", "unknown_parameter", "limit", "Unknown query"),
    "a filter of items": get(f"{HERE}/input_items?metadata[a]=1", "unknown_parameter", "metadata[a]", "Unknown query"),
    "chat": post("/v1/chat/completions", None, None, "/v1/chat/completions", 404, model=MODEL, messages=[]),
    "chat's way out": post("/v1/chat/completions", None, None, "POST /v1/responses", 404, model=MODEL, messages=[]),
    "a list of too many conversations": get("/v1/conversations?limit=101", "invalid_value", "limit", "100"),
    "a list in no order": get("/v1/conversations?order=up", "invalid_value", "order", "asc"),
    "a list behind what is not there": get("/v1/conversations?after=conv_1", "invalid_value", "after", "conv_1"),
    "a filter without a key": get("/v1/conversations?metadata=a", "invalid_value", "metadata", "metadata=a."),
    "a filter that is not closed": get(
        "/v1/conversations?metadata[a=1", "invalid_value", "metadata", "metadata[key]=value"
    ),
    "a filter given twice": get("/v1/conversations?metadata[a]=1&metadata[a]=2", "invalid_value", "metadata", "once"),
    "a filter with a long key": get(f"/v1/conversations?metadata[{'k' * 65}]=1", "invalid_value", "metadata", "64"),
    "a filter with a long value": get(
        f"/v1/conversations?metadata[k]={'v' * 513}", "invalid_value", "metadata.k", "512"
    ),
    "a filter with many keys": get(
        "/v1/conversations?" + "&".join(f"metadata[{n}]=1" for n in range(17)), "invalid_value", "metadata", "16"
    ),
    "a dialect of nobody": post("/v2/responses", None, None, "/v2/responses", 404, model=MODEL, input="hi"),
    "no route": get("/nothing", None, None, "Invalid URL", 404),
    "an unknown method": Bad(None, None, None, "PATCH", 405, "PATCH"),
    "a list of responses": Bad(None, "upgrade_required", None, "WebSocket", 426, "GET"),
    "putting a response": Bad({"a": 1}, None, None, "PUT", 405, "PUT", HERE),
    "getting a cancel": get(f"{HERE}/cancel", None, None, "It takes POST.", 405),
    "deleting items": Bad(None, None, None, "DELETE", 405, "DELETE", f"{HERE}/input_items"),
}

OTHERS: Table = {
    "counting nothing": Bad(lambda: b"", "invalid_json", None, "no body", path=COUNT),
    "counting no JSON": Bad(lambda: b"{", "invalid_json", None, "could not be parsed", path=COUNT),
    "counting without input": post(COUNT, "missing_required_parameter", "input", "'input'", model=MODEL),
    "counting for an unknown model": post(COUNT, "model_not_found", "model", MODEL, 404, model="m", input="hi"),
    "counting a number": post(COUNT, "invalid_type", "input", "a string or a list", model=MODEL, input=5),
    "counting what doesn't exist": post(
        COUNT, "unknown_parameter", "messages", "messages", model=MODEL, input="hi", messages=[]
    ),
    "counting a bad choice": post(COUNT, "invalid_value", "tool_choice", "maybe", input="hi", tool_choice="maybe"),
    "counting behind an unknown response": post(
        COUNT, "previous_response_not_found", "previous_response_id", UNKNOWN, input="hi", previous_response_id=UNKNOWN
    ),
    "compacting nothing": Bad(lambda: b"", "invalid_json", None, "no body", path=COMPACT),
    "compacting a list": Bad(lambda: b"[]", "invalid_type", None, "expected an object", path=COMPACT),
    "compacting without a model": post(COMPACT, "missing_required_parameter", "model", "'model'", input="hi"),
    "compacting without input": post(COMPACT, "missing_required_parameter", "input", "'input'", model=MODEL),
    "compacting an empty input": post(COMPACT, "invalid_value", "input", "at least one item", model=MODEL, input=[]),
    "compacting an object": post(COMPACT, "invalid_type", "input", "a string or a list", model=MODEL, input={}),
    "compacting a broken item": post(COMPACT, "invalid_type", "input[0]", "an object", model=MODEL, input=["hi"]),
    "compacting for an unknown model": post(COMPACT, "model_not_found", "model", MODEL, 404, model="m", input="hi"),
    "compacting as a stream": post(
        COMPACT, "unknown_parameter", "stream", "stream", model=MODEL, input="hi", stream=True
    ),
    "compacting with tools": post(COMPACT, "unknown_parameter", "tools", "tools", model=MODEL, input="hi", tools=[]),
    "compacting an unknown response": post(
        COMPACT,
        "previous_response_not_found",
        "previous_response_id",
        UNKNOWN,
        model=MODEL,
        previous_response_id=UNKNOWN,
    ),
    "creating in the other dialect": post(
        "/open-responses/v1/responses", "missing_required_parameter", "input", "'input'", model=MODEL
    ),
}
"""Endpoints that read a body as creating does."""

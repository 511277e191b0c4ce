"""What no client should send, and what it is told: tables of requests and refusals, by what is wrong with them."""

from tests.support.bad.client_tools import DECLARED, SENT
from tests.support.bad.formats import FORMATS, SCHEMAS
from tests.support.bad.items import HISTORIES, ITEMS, PARTS
from tests.support.bad.routes import OTHERS, ROUTES
from tests.support.bad.table import MISSING, MODEL, STRANGE, TYPE, UNKNOWN, UNSUPPORTED, VALUE, Bad, Table, create, text
from tests.support.bad.tools import CHOICES, GRAMMARS, TOOLS

BODIES: Table = {
    "an empty body": Bad(lambda: b"", "invalid_json", None, "no body"),
    "no JSON": Bad(lambda: b"hello", "invalid_json", None, "could not be parsed"),
    "half of a JSON": Bad(lambda: b'{"model": "gp', "invalid_json", None, "could not be parsed"),
    "two JSONs": Bad(lambda: b'{"input": "hi"} {}', "invalid_json", None, "could not be parsed"),
    "an array": Bad(lambda: b"[]", TYPE, None, "expected an object"),
    "a string": Bad(lambda: b'"hi"', TYPE, None, "expected an object"),
    "null": Bad(lambda: b"null", TYPE, None, "expected an object"),
    "invalid UTF-8": Bad(lambda: b'{"model": "\xff\xfe"}', "invalid_json", None, "UTF-8"),
    "invalid UTF-8 where nobody looks": Bad(
        lambda: b'{"model":"%s","input":"hi","user":"\xff"}' % MODEL.encode(), "invalid_json", None, "UTF-8"
    ),
    "a mark of byte order": Bad(lambda: b'\xef\xbb\xbf{"input":"hi"}', "invalid_json", None, "could not be parsed"),
    "UTF-16": Bad(lambda: '{"input":"hi"}'.encode("utf-16"), "invalid_json", None, "UTF-8"),
    "NaN": Bad(lambda: b'{"model": "m", "temperature": NaN}', "invalid_json", None, "could not be parsed"),
    "a comment": Bad(lambda: b'{"model": "m" /* ours */}', "invalid_json", None, "could not be parsed"),
    "a comma too many": Bad(lambda: b'{"model": "m",}', "invalid_json", None, "could not be parsed"),
    "a lone surrogate": Bad(text(r"\ud800", 1), "invalid_json", None, "surrogate"),
    "a reversed pair": Bad(text(r"\udc00\ud800", 1), "invalid_json", None, "surrogate"),
    "a form": Bad(lambda: b"model=m", "unsupported_media_type", None, "application/json", 415, kind="text/plain"),
    "no content type": Bad(lambda: b"{}", "unsupported_media_type", None, "application/json", 415, kind=""),
    "an empty object": Bad({}, MISSING, "model", "'model'"),
    "no input": Bad({"model": MODEL}, MISSING, "input", "'input'"),
    "null for an input": Bad({"model": MODEL, "input": None}, MISSING, "input", "'input'"),
    "an unknown model": Bad({"model": "m", "input": "hi"}, "model_not_found", "model", "'demo'", 404),
}

PARAMETERS: Table = {
    "a number for a model": create("model", 5, TYPE, "a string"),
    "an empty model": create("model", "", MISSING, "'model'"),
    "a number for an input": create("input", 5, TYPE, "a string or a list"),
    "an object for an input": create("input", {}, TYPE, "a string or a list"),
    "an empty list for an input": create("input", [], VALUE, "at least one item"),
    "a list for instructions": create("instructions", ["hi"], TYPE, "a string"),
    "a number for a previous response": create("previous_response_id", 5, TYPE, "a string"),
    "a text for store": create("store", "yes", TYPE, "a boolean"),
    "a number for stream": create("stream", 1, TYPE, "a boolean"),
    "stream options without a stream": create("stream_options", {}, VALUE, "'stream': true"),
    "a list for stream options": create("stream_options", [], TYPE, "an object"),
    "a stream option": create("stream_options", {"fast": 1}, STRANGE, "fast", named="stream_options.fast", stream=True),
    "a text for background": create("background", "yes", TYPE, "a boolean"),
    "a background that is not stored": create(
        "background", True, UNSUPPORTED, "can only be used when `store` is true", store=False
    ),
    "a list for metadata": create("metadata", [], TYPE, "an object"),
    "a number in metadata": create("metadata", {"a": 1}, TYPE, "a string", named="metadata.a"),
    "messages of Chat Completions": create("messages", [], STRANGE, "'input'"),
    "a limit of Chat Completions": create("max_tokens", 5, STRANGE, "'max_output_tokens'"),
    "a format of Chat Completions": create("response_format", {}, STRANGE, "'text.format'"),
    "an effort of Chat Completions": create("reasoning_effort", "low", STRANGE, "'reasoning.effort'"),
    "several choices": create("n", 2, STRANGE, "one answer"),
    "a letter too few": create("temprature", 1, STRANGE, "Did you mean 'temperature'?"),
    "a lost letter": create("reasoning", {"efort": "low"}, STRANGE, "Did you mean 'effort'?", named="reasoning.efort"),
    "a number for a user": create("user", 5, TYPE, "a string"),
    "a long user": create("user", "u" * 1025, VALUE, "1024"),
    "a time of the cache that nobody knows": create("prompt_cache_retention", "bogus", VALUE, "24h"),
    "a text for options of the cache": create("prompt_cache_options", "x", TYPE, "an object"),
    "an unknown option of the cache": create(
        "prompt_cache_options", {"ttll": "1h"}, STRANGE, "ttl", named="prompt_cache_options.ttll"
    ),
    "a time to live that no cache has": create(
        "prompt_cache_options", {"ttl": "1h"}, VALUE, "12h", named="prompt_cache_options.ttl"
    ),
    "a manner of speaking": create("personality", "friendly", UNSUPPORTED, "instructions"),
    "a list for what a client knows": create("client_metadata", [], VALUE, "an object"),
    "a wish for moderation": create("moderation", {"model": "x"}, UNSUPPORTED, "Nothing is moderated"),
    "a wish for a program": create("access_programs", {"a": 1}, UNSUPPORTED, "Leave it out"),
    "a template's arguments": create("chat_template_kwargs", {"a": 1}, UNSUPPORTED, "reasoning.effort"),
    "vLLM's structured outputs": create("structured_outputs", {"choice": ["a"]}, UNSUPPORTED, "text.format"),
    "a bias of tokens": create("logit_bias", {"1": 1}, UNSUPPORTED, "Leave it out"),
    "no reasoning in the answer": create("include_reasoning", False, UNSUPPORTED, "item"),
    "special tokens in the answer": create("skip_special_tokens", False, UNSUPPORTED, "enable_response"),
    "an answer without end": create("ignore_eos", True, UNSUPPORTED, "Leave it out"),
    "a number for a session": create("session_id", 5, TYPE, "a string"),
    "too much metadata": create("metadata", {str(n): "" for n in range(17)}, VALUE, "17"),
    "a long key of metadata": create("metadata", {"k" * 65: ""}, VALUE, "64"),
    "a long value of metadata": create("metadata", {"k": "v" * 513}, VALUE, "512", named="metadata.k"),
    "a long safety identifier": create("safety_identifier", "x" * 129, VALUE, "128"),
    "a long cache key": create("prompt_cache_key", "x" * 1025, VALUE, "1024"),
    "a number for a cache key": create("prompt_cache_key", 5, TYPE, "a string"),
    "an empty cache salt": create("cache_salt", "", VALUE, "1"),
    "a list for a cache salt": create("cache_salt", [], TYPE, "a string"),
    "a tier of somebody else": create("service_tier", "gold", VALUE, "priority"),
    "a number for a tier": create("service_tier", 1, TYPE, "a string"),
    "a text for a priority": create("priority", "high", TYPE, "an integer"),
    "a priority beyond numbers": create("priority", 2**31, VALUE, "2147483647"),
    "a request id with spaces": create("request_id", "a b", VALUE, "a b"),
    "a request id of two lines": create("request_id", "a\n", VALUE, "request_id"),
    "a request id of 129 letters": create("request_id", "a" * 129, VALUE, "aaa"),
    "a text for Harmony's messages": create("enable_response_messages", "yes", TYPE, "a boolean"),
    "an unknown truncation": create("truncation", "middle", VALUE, "auto, disabled"),
    "a boolean for truncation": create("truncation", True, TYPE, "a string"),
    "a number for a conversation": create("conversation", 1, TYPE, "a string"),
    "a conversation without an id": create("conversation", {}, MISSING, "id", named="conversation.id"),
    "a managed context that is no list": create("context_management", {}, TYPE, "an array"),
    "a context by nothing": create("context_management", [{}], MISSING, "type", named="context_management[0].type"),
    "magic": create("context_management", [{"type": "magic"}], VALUE, "magic", named="context_management[0].type"),
    "a context managed twice": create("context_management", [{"type": "compaction"}] * 2, VALUE, "length <= 1"),
    "a threshold of nothing": create(
        "context_management",
        [{"type": "compaction", "compact_threshold": 0}],
        VALUE,
        ">= 1",
        named="context_management[0].compact_threshold",
    ),
    "a threshold in words": create(
        *("context_management", [{"type": "compaction", "compact_threshold": "9"}], TYPE, "an integer"),
        named="context_management[0].compact_threshold",
    ),
    "a context managed with a member too many": create(
        *("context_management", [{"type": "compaction", "keep": 1}], STRANGE, "keep"),
        named="context_management[0].keep",
    ),
    "an image to make": create("image", {"size": "1024x1024"}, UNSUPPORTED, "1024"),
    "an unknown previous response": create("previous_response_id", UNKNOWN, "previous_response_not_found", UNKNOWN),
    "a malformed previous response": create("previous_response_id", "../x", "previous_response_not_found", "../x"),
    "another shard's parent": create("previous_response_id", "resp_" + "f" * 48, "previous_response_not_found", "ffff"),
}

SAMPLING: Table = {
    "a text for a temperature": create("temperature", "hot", TYPE, "a number"),
    "too hot": create("temperature", 2.01, VALUE, "2.01"),
    "too cold": create("temperature", -1, VALUE, "-1"),
    "top_p above one": create("top_p", 1.5, VALUE, "1.5"),
    "a list for top_p": create("top_p", [], TYPE, "a number"),
    "top_k below all": create("top_k", -2, VALUE, "-1"),
    "half a top_k": create("top_k", 1.5, TYPE, "an integer"),
    "min_p above one": create("min_p", 1.1, VALUE, "1.1"),
    "a presence beyond penalty": create("presence_penalty", 2.5, VALUE, "2.5"),
    "a frequency beyond penalty": create("frequency_penalty", -2.5, VALUE, "-2.5"),
    "a penalty that is a text": create("frequency_penalty", "1", TYPE, "a number"),
    "no repetition at all": create("repetition_penalty", 0, VALUE, "0"),
    "too much repetition": create("repetition_penalty", 3, VALUE, "3"),
    "a seed that is a text": create("seed", "42", TYPE, "an integer"),
    "a seed beyond numbers": create("seed", 2**63, VALUE, "9223372036854775807"),
    "a stop that is a number": create("stop", 7, TYPE, "7"),
    "an empty stop": create("stop", "", VALUE, "256"),
    "a long stop": create("stop", "x" * 257, VALUE, "256"),
    "an empty stop among others": create("stop", ["END", ""], VALUE, "256"),
    "too many stops": create("stop", ["END"] * 17, VALUE, "16"),
    "a number among stops": create("stop", ["END", 5], TYPE, "a string", named="stop[1]"),
    "too few output tokens": create("max_output_tokens", 15, VALUE, "15"),
    "more output tokens than a program can count": create("max_output_tokens", 10**40, VALUE, "2147483647"),
    "half an output token": create("max_output_tokens", 20.5, TYPE, "an integer"),
    "no tool calls": create("max_tool_calls", 0, VALUE, "0"),
    "a text for parallel calls": create("parallel_tool_calls", "no", TYPE, "a boolean"),
    "too many alternatives": create("top_logprobs", 21, VALUE, "20"),
    "alternatives below none": create("top_logprobs", -1, VALUE, "0"),
    "alternatives by a boolean": create("top_logprobs", True, TYPE, "an integer"),
    "an include that is a text": create("include", "reasoning.encrypted_content", TYPE, "an array"),
    "an include of nobody": create("include", ["usage"], VALUE, "usage", named="include[0]"),
    "an include of a number": create("include", [5], TYPE, "a string", named="include[0]"),
    "too many includes": create("include", ["reasoning.encrypted_content"] * 65, VALUE, "64"),
    "a text for reasoning": create("reasoning", "high", TYPE, "an object"),
    "an unknown effort": create("reasoning", {"effort": "huge"}, VALUE, "huge", named="reasoning.effort"),
    "a number for an effort": create("reasoning", {"effort": 3}, TYPE, "a string", named="reasoning.effort"),
    "an unknown key of reasoning": create("reasoning", {"zeal": 1}, STRANGE, "reasoning.zeal", named="reasoning.zeal"),
    "an unknown summary": create("reasoning", {"summary": "epic"}, VALUE, "detailed", named="reasoning.summary"),
    "an unknown old summary": create(
        "reasoning", {"generate_summary": "no"}, VALUE, "detailed", named="reasoning.generate_summary"
    ),
    "an unknown context here": create("reasoning", {"context": "none"}, VALUE, "all_turns", named="reasoning.context"),
    "a mode of a later release": create("reasoning", {"mode": "pro"}, UNSUPPORTED, "pro", named="reasoning.mode"),
}

PROMPTS: Table = {
    "a prompt where there are none": create("prompt", {"id": "p"}, UNSUPPORTED, "no stored prompts"),
    "a prompt that is a text": create("prompt", "p", TYPE, "an object"),
    "a prompt of no id": create("prompt", {}, MISSING, "id", named="prompt.id"),
    "a prompt of an empty id": create("prompt", {"id": ""}, VALUE, "1", named="prompt.id"),
    "a prompt of a long id": create("prompt", {"id": "p" * 129}, VALUE, "128", named="prompt.id"),
    "a prompt of an empty version": create("prompt", {"id": "p", "version": ""}, VALUE, "1", named="prompt.version"),
    "a prompt of version 3": create("prompt", {"id": "p", "version": 2}, TYPE, "a string", named="prompt.version"),
    "listed variables": create("prompt", {"id": "p", "variables": []}, TYPE, "an object", named="prompt.variables"),
    "a prompt with something else": create("prompt", {"id": "p", "name": "q"}, STRANGE, "name", named="prompt.name"),
}

TABLES = (
    *(BODIES, PARAMETERS, SAMPLING, PROMPTS, ITEMS, PARTS, HISTORIES, TOOLS, CHOICES, GRAMMARS, FORMATS, SCHEMAS),
    *(DECLARED, SENT, ROUTES, OTHERS),
)
SMALL: Table = {name: bad for table in TABLES for name, bad in table.items()}
"""All those whose bodies are small."""

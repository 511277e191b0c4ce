"""What the document says to people: of the service, of each parameter of a query, and of each member of a request."""

from typing import Any

SUMMARY = "The OpenAI Responses API over open models. It stores every conversation."

ABOUT = """Every path under `/v1` is under `/open-responses/v1` too, but for conversations: there it speaks the Open
Responses specification's dialect. Bodies are JSON. A member that is null is as one that isn't there; one that nobody
knows is refused. Some requests are refused for what no schema can say: two parameters that don't go together, a schema
of a tool that can't be enforced, a prompt that is too long. Every refusal is an error envelope.""".replace("\n", " ")

KEY = "An API key of the service. One that was started without keys needs none. `/metrics` has a key of its own."

TAGS = {
    "Responses": "Made, followed, steered, cancelled, deleted.",
    "Containers": "Sessions in which code runs, and their files.",
    "Files": "Files that requests name by their ids.",
    "Batches": "Files of requests, answered at low priority.",
    "Trajectories": "Conversations as trainers want them.",
    "Conversations": "With an id: made, changed, listed, and what is in them.",
    "Models": "What is served.",
    "Passed on": "To the engine's server, where it has these endpoints. With `HARMONIUM_CHATS=remembered` chat "
    "completions and messages are made here.",
    "Service": "For whoever runs it.",
}

OBFUSCATION = "Noise that hides how long a delta is."

HEADERS: dict[str, Any] = {
    "x-request-id": {
        "description": "The id of this request, under which the log has a line.",
        "schema": {"type": "string"},
    },
    "x-should-retry": {
        "description": "Whether a retry makes sense.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "retry-after": {"description": "When it does, in seconds.", "schema": {"type": "integer"}},
    "etag": {"description": "What `If-None-Match` takes.", "schema": {"type": "string"}},
}

PARAMETERS = {
    "batch_id": "The batch.",
    "id": "A response or a conversation: the trajectories that have it.",
    "format": "The form of a line: ATIF, or NeMo Gym's.",
    "beta": "Anthropic's clients send it beside the header anthropic-beta; it changes nothing.",
    "response_id": "The id of a response.",
    "conversation_id": "The id of a conversation.",
    "item_id": "The id of an item.",
    "container_id": "The id of a container.",
    "file_id": "The id of a file, or of a container's file.",
    "purpose": "Only those of this purpose.",
    "name": "Only those of this name.",
    "model_id": "A name of a model; it may have slashes.",
    "stream": "Give the events of a response that was made with `background` and `stream`.",
    "starting_after": "Give the events behind the one with this number; with `stream` alone.",
    "include_obfuscation": "Whether the deltas of a stream have noise.",
    "include": "What to show besides; `include[]` says the same.",
    "limit": "The most that a page has.",
    "order": "Which come first: the oldest, or the newest.",
    "after": "The `last_id` of the page before.",
    "erase": "Take it out of what continues it, too.",
    "tree": "Delete the whole conversation: all before it, all behind it, all forks.",
    "metadata": "Those alone that have all of these pairs, each written as `metadata[key]=value`.",
    "X-Detach": "Whether a stored stream goes on when its client goes; it is then made in the background.",
    "If-None-Match": "The `ETag` of the answer that you have: a 304 without a body if nothing has changed since.",
    "Idempotency-Key": "Asks for the same thing once, however often it is sent.",
}

CREATE = {
    "model": "A name of `GET /v1/models`. Needed but for a stored `prompt`, and for a count of tokens.",
    "input": "What is said: a text, or items.",
    "instructions": "What the model is told for this response alone.",
    "previous_response_id": "The response that this one continues.",
    "conversation": "The conversation that it continues and is added to: its id.",
    "tools": "What the model may call.",
    "tool_choice": "Whether it must call a tool, and which ones it may.",
    "parallel_tool_calls": "Whether it may call several at once; true unless it is false.",
    "max_output_tokens": "The most tokens to sample.",
    "max_tool_calls": "The most calls to make.",
    "temperature": "How much chance there is; the model's own without it.",
    "top_p": "Of which share of the probable tokens one is chosen.",
    "reasoning": "How hard to think, and whether to sum that up.",
    "text": "The form of the answer, and how long it is.",
    "metadata": "Up to 16 pairs: keys to 64 characters, values to 512.",
    "store": "Whether it is kept; true unless it is false.",
    "stream": "Whether events are the answer.",
    "stream_options": "How to stream.",
    "safety_identifier": "Is echoed.",
    "prompt_cache_key": "Requests with the same one go to the same vLLM server.",
    "user": "Is echoed.",
    "client_metadata": "Has no effect here.",
    "prompt_cache_retention": "Has no effect here.",
    "prompt_cache_options": "Has no effect here.",
    "background": "Whether it is made in the background, and the answer comes at once.",
    "background_options": "Within how many hours a background response is made, and with which others.",
    "completion_window": "`2h` and `8h` wait until there is room, and need `background` without `stream`.",
    "continuation_id": "The later background responses with the same one start before others.",
    "service_tier": "How soon a background response is made.",
    "include": "What to show besides.",
    "prompt": "A stored prompt, and what stands for its variables.",
    "truncation": "Whether the oldest of a long conversation may be left out: `auto`.",
    "top_logprobs": "How many alternatives the log probabilities of each token have.",
    "presence_penalty": "Makes tokens that have occurred less probable.",
    "frequency_penalty": "Makes tokens less probable the more often they have occurred.",
    "repetition_penalty": "Divides the scores of tokens that have occurred, in the prompt too.",
    "seed": "Makes sampling repeat itself.",
    "top_k": "Of how many tokens one is chosen; 0 or -1 of all.",
    "min_p": "How probable a token must be beside the most probable one.",
    "min_tokens": "How many tokens come before the answer may end; where a form is enforced, none.",
    "ignore_eos": "Whether the answer goes on up to its limit, as load generators want it.",
    "stop": "Texts before which the answer ends.",
    "cache_salt": "Keeps the cached prefixes of requests with another one apart.",
    "priority": "How soon the engine begins: lower is sooner.",
    "request_id": "The request's id at the engine.",
    "enable_response_messages": "Show the Harmony messages of prompt and output.",
    "previous_input_messages": "A history that the client keeps: Harmony's messages, or chat's.",
    "context_management": "Have a long conversation compacted before it is answered.",
    "session_id": "Requests with the same one go to the same vLLM server.",
    "chat_template_kwargs": "The variables of the chat template, of a model that has one.",
}
"""The purpose of each member of a create request, and of its `background_options`."""

"""What the document says to people: of the service, of each parameter of a query, and of each member of a request."""

from typing import Any

SUMMARY = "The OpenAI Responses API over open models. It stores every conversation."

ABOUT = """Every path under `/v1`, except conversations, is also under `/open-responses/v1`, in the dialect of the
Open Responses specification. Bodies are JSON. A null member counts as absent; an unknown member is rejected. Some rules
are beyond any schema: parameters that exclude each other, tools' schemas that can't be enforced, prompts that are too
long. Of a history, which ends with the model's last item, the service also accepts items and parts that fit no schema:
it leaves them out, and names them in the header `x-harmonium-items-left-out`. `HARMONIUM_UNSUPPORTED=refuse` rejects
them. Every error has the error envelope.""".replace("\n", " ")

KEY = "An API key of the service. A service without keys needs none. `/metrics` has a key of its own."

TAGS = {
    "Responses": "Create, follow, steer, cancel and delete responses.",
    "Containers": "Sessions in which code runs, and their files.",
    "Files": "Files that requests name by their ids.",
    "Batches": "Files of requests, answered at low priority.",
    "Trajectories": "Conversations as data for training.",
    "Conversations": "Conversations with an id, and their items.",
    "Models": "The served models.",
    "Passed on": "Requests for the engine's server, if it has these endpoints. With `HARMONIUM_CHATS=remember` "
    "harmonium answers chat completions and messages.",
    "Service": "For operators.",
}

OBFUSCATION = "Noise that hides how long a delta is."

HEADERS: dict[str, Any] = {
    "x-request-id": {
        "description": "The id of this request, also in its log line.",
        "schema": {"type": "string"},
    },
    "x-should-retry": {
        "description": "Whether a retry makes sense.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "retry-after": {"description": "The seconds to wait before a retry.", "schema": {"type": "integer"}},
    "etag": {"description": "The value for `If-None-Match`.", "schema": {"type": "string"}},
}

PARAMETERS = {
    "batch_id": "The batch.",
    "id": "A response or a conversation: only trajectories with it.",
    "format": "The form of a line: ATIF, or NeMo Gym's.",
    "beta": "Anthropic's clients send it with the header anthropic-beta; it has no effect.",
    "response_id": "The id of a response.",
    "conversation_id": "The id of a conversation.",
    "item_id": "The id of an item.",
    "container_id": "The id of a container.",
    "file_id": "The id of a file, or of a container's file.",
    "purpose": "Only files with this purpose.",
    "name": "Only containers with this name.",
    "model_id": "A name of a model; it may have slashes.",
    "stream": "Return the events of a response that was created with `background` and `stream`.",
    "starting_after": "Return the events after the one with this number; only with `stream`.",
    "include_obfuscation": "Whether the deltas of a stream are padded.",
    "include": "Additional content; `include[]` means the same.",
    "limit": "The most entries of a page.",
    "order": "Whether the oldest (asc) or the newest (desc) come first.",
    "after": "The `last_id` of the previous page.",
    "erase": "Also erase its content from later turns.",
    "tree": "Delete the whole conversation: all turns before and after it, and all forks.",
    "metadata": "Only conversations with all of these pairs, each written as `metadata[key]=value`.",
    "X-Harmonium-Detach": "Whether a stored stream continues in the background when its client disconnects.",
    "If-None-Match": "The `ETag` of an earlier answer: returns a 304 without a body if nothing has changed.",
    "Idempotency-Key": "A key with which a repeated request makes nothing twice.",
}

CREATE = {
    "model": "A name from `GET /v1/models`. Required, except with a stored `prompt` and for counting tokens.",
    "input": "The input: a text, or items.",
    "instructions": "Instructions for the model, for this response only.",
    "previous_response_id": "The response to continue.",
    "conversation": "The id of the conversation to continue; the response is added to it.",
    "tools": "The tools that the model may call.",
    "tool_choice": "Whether the model must call a tool, and which ones.",
    "parallel_tool_calls": "Whether the model may call several tools at once; true by default.",
    "max_output_tokens": "The most tokens to sample.",
    "max_tool_calls": "The most calls to make.",
    "temperature": "The sampling temperature; by default the model's own.",
    "top_p": "The share of the probable tokens to sample from.",
    "reasoning": "The effort of reasoning, and whether to return a summary.",
    "text": "The format of the answer, and its verbosity.",
    "metadata": "Up to 16 pairs: keys to 64 characters, values to 512.",
    "store": "Whether the response is stored; true by default.",
    "stream": "Whether to return events.",
    "stream_options": "Options of the stream.",
    "safety_identifier": "Is echoed.",
    "prompt_cache_key": "Requests with the same key go to the same server of the engine.",
    "user": "Is echoed.",
    "client_metadata": "Has no effect here.",
    "prompt_cache_retention": "Has no effect here.",
    "prompt_cache_options": "Has no effect here.",
    "background": "Whether to make the response in the background, and return at once.",
    "background_options": "The completion window of a background response, and its place beside others.",
    "completion_window": "`2h` or `8h`: waits until there is room; needs `background` without `stream`.",
    "continuation_id": "Later background responses with the same id start before others.",
    "service_tier": "The priority of a background response.",
    "include": "Additional content of the response.",
    "prompt": "A stored prompt, with values of its variables.",
    "truncation": "`auto` leaves out the oldest turns of a conversation that is too long.",
    "top_logprobs": "The number of alternatives in the log probabilities of each token.",
    "presence_penalty": "Makes tokens that have occurred less probable.",
    "frequency_penalty": "Makes tokens less probable the more often they have occurred.",
    "repetition_penalty": "Divides the scores of tokens that have occurred, in the prompt too.",
    "seed": "The seed, with which sampling can be repeated.",
    "top_k": "The number of most probable tokens to sample from; 0 or -1 for all.",
    "min_p": "The least probability of a token, relative to the most probable one.",
    "min_tokens": "The least tokens of the answer; without effect if a format is enforced.",
    "ignore_eos": "Whether the answer continues to its limit, for load generators.",
    "stop": "Texts at which the answer stops.",
    "cache_salt": "Separates cached prefixes from those of requests with another salt.",
    "priority": "The priority at the engine: lower is earlier.",
    "request_id": "The request's id at the engine.",
    "enable_response_messages": "Whether to return the Harmony messages of prompt and output.",
    "previous_input_messages": "The client's own history, as Harmony's messages or those of chat completions.",
    "context_management": "Compacts a long conversation before the answer.",
    "session_id": "Requests with the same key go to the same server of the engine.",
    "chat_template_kwargs": "The variables of the model's chat template.",
}
"""The purpose of each member of a create request, and of its `background_options`."""

"""Whatever a client sends as items or as a history, it is read or refused by name, and nothing else happens."""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from service.api.read import READERS, identify
from service.errors import InvalidRequest
from service.responses.output import sealed
from service.responses.prompt.build import Prompt
from tests.support.responses.requests import ENVELOPES, Json, prompt
from tests.support.responses.samples import RESPONSE_ID

SEALED = ENVELOPES.seal(sealed.COMPACTION, sealed.compaction("So far."))
NAMES = ("id", "role", "content", "call_id", "name", "namespace", "arguments", "input", "output", "outputs", "code")
MORE = (
    "summary",
    "encrypted_content",
    "status",
    "phase",
    "server_label",
    "error",
    "tools",
    "reasoning",
    "text",
    "action",
)
KINDS = ("input_text", "output_text", "text", "refusal", "input_image", "input_file", "logs", "x")
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "text": st.text(max_size=5) | st.none(),
        "refusal": st.just("No."),
        "image_url": st.just("https://example.com/a.png"),
        "file_data": st.sampled_from(["TWlsaw==", "!", "data:;base64,TWlsaw=="]),
        "logs": st.text(max_size=5),
    },
)
VALUE: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.text(max_size=8),
    st.sampled_from(
        ["user", "assistant", "tool", "developer", "call_1", "call_2", "functions.f", "f", SEALED, "final"]
    ),
    st.lists(PART | st.text(max_size=3), max_size=3),
    st.fixed_dictionaries({}, optional={"effort": st.just("low"), "format": st.just({"type": "text"})}),
    st.just({"message": "Gone."}),
    st.just([{"type": "function", "name": "f"}]),
)
ITEM: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from([*READERS, "song"]) | VALUE, **dict.fromkeys((*NAMES, *MORE), VALUE)}
)
MESSAGE: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "bard"])},
    optional={
        "content": VALUE,
        "channel": st.sampled_from(["analysis", "commentary", "final", "loud"]) | VALUE,
        "recipient": st.sampled_from(["functions.f", "f", "assistant", "all"]) | VALUE,
        "name": VALUE,
        "author": st.just({"role": "tool"}) | VALUE,
        "tool_call_id": VALUE,
        "reasoning": VALUE,
        "tool_calls": st.just([{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]) | VALUE,
    },
)
MENDED: list[Json] = [
    {"role": "user", "content": "Hi"},
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "5"},
]


def read(**body: Any) -> Prompt | str:
    """The prompt, or the name of what the request is refused for."""
    try:
        return prompt(**body)
    except InvalidRequest as refusal:
        return refusal.param or ""


@given(items=st.lists(ITEM | st.sampled_from(MENDED), max_size=4), auto=st.booleans())
@example(items=[{"type": "mcp_call", "server_label": "x", "name": "y", "arguments": "", "error": 5}], auto=False)
def test_any_items_are_read_or_refused_by_name(items: list[Json], auto: bool) -> None:
    made = read(input=items, truncation="auto" if auto else "disabled")
    if isinstance(made, str):
        assert made.startswith("input")
        return
    identify(made.items, RESPONSE_ID)
    assert len(msgspec.json.decode(msgspec.json.encode(made.items))) == len(items)
    assert len({item.id for item in made.items}) == len(items)


@given(history=st.lists(MESSAGE, max_size=4), items=st.lists(st.sampled_from(MENDED), max_size=3))
def test_any_history_is_read_or_refused_by_name(history: list[Json], items: list[Json]) -> None:
    made = read(input=items, previous_input_messages=history)
    if isinstance(made, str):
        assert made.startswith(("input", "previous_input_messages"))
        return
    assert all(message.name for message in made.messages if message.role == "tool")

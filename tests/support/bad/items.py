"""Input items, their parts and histories that no client should send, and what it is told."""

from base64 import b64encode
from typing import Any

from tests.support.bad.table import (
    CALL,
    FUNCTION,
    MISSING,
    OUTPUT,
    TYPE,
    UNKNOWN,
    UNSUPPORTED,
    USER,
    VALUE,
    Table,
    create,
    history,
    items,
    part,
)

FORGED = "hs_AQ" + "A" * 80
"""What has the form of a seal of ours."""


def compaction(content: Any) -> dict[str, Any]:
    return {"type": "compaction", "encrypted_content": content}


def file(**members: Any) -> dict[str, Any]:
    """A part that is a file."""
    return {"type": "input_file", **members}


def encoded(content: bytes) -> str:
    return b64encode(content).decode()


ITEMS: Table = {
    "an item that is a text": items(TYPE, "input[0]", "an object", "hi"),
    "an item of no type": items(MISSING, "input[1].type", "role", USER, {"content": "hi"}),
    "an item of an unknown type": items(UNSUPPORTED, "input[0].type", "telepathy", {"type": "telepathy"}),
    # messages
    "an unknown role": items(VALUE, "input[0].role", "robot", {**USER, "role": "robot"}),
    "a number for content": items(TYPE, "input[0].content", "5", {**USER, "content": 5}),
    # functions
    "an output without a call": items(
        None, "input", "No tool call found for function call output with call_id call_1.", USER, OUTPUT
    ),
    "an output of a custom tool without a call": items(
        *(None, "input", "No tool call found for custom tool call output with call_id call_1."),
        *(USER, {**OUTPUT, "type": "custom_tool_call_output"}),
    ),
    "a call without an output": items(None, "input", "call_1", USER, CALL),
    "a call with a wild name": items(VALUE, "input[0].name", "<|start|>", {**CALL, "name": "<|start|>"}),
    "an empty call id": items(VALUE, "input[0].call_id", "256", {**OUTPUT, "call_id": ""}),
    "an output that is a number": items(TYPE, "input[0].output", "string", {**OUTPUT, "output": 5}),
    # what is sealed
    "a forged compaction": items(
        "invalid_encrypted_content", "input[1].encrypted_content", "can't be opened", USER, compaction(FORGED)
    ),
    # what changes the request
    "compaction amid the input": items(VALUE, "input[0].type", "the last item", {"type": "compaction_trigger"}, USER),
    "nothing to compact": items(VALUE, "input", "at least one item", {"type": "compaction_trigger"}),
    "many tools, a few in each item": items(
        VALUE, "input[10].tools", "at most 1024", *[{"type": "additional_tools", "tools": [FUNCTION] * 100}] * 11
    ),
    "a reference": items(VALUE, "input[0].id", "msg_1", {"id": "msg_1"}),
    "a reference to an item of nobody": items(
        VALUE, "input[1].id", "No item", USER, {"type": "item_reference", "id": f"msg_{UNKNOWN[5:]}00000000"}
    ),
    "an item referred to twice": items(
        None, "input", "Duplicate item found with id msg_1.", {"id": "msg_1"}, {"id": "msg_1"}
    ),
    "a reference of no id": items(VALUE, "input[0].id", "256", {"type": "item_reference", "id": ""}),
}

PARTS: Table = {
    "too many parts": items(
        *(VALUE, "input[0].content", "1024"), {"role": "user", "content": [{"type": "input_text", "text": "."}] * 1025}
    ),
    "a part without its text": part(MISSING, "text", "text", {"type": "input_text"}),
    "a part that is a text": part(TYPE, "", "an object", "hi"),
    "a part of an unknown type": part(UNSUPPORTED, "type", "video", {"type": "video"}),
    "an image that is nowhere": part(MISSING, "image_url", "its URL", {"type": "input_image"}),
    "an image that is no base64": part(
        VALUE, "image_url", "base64", {"type": "input_image", "image_url": "data:image/png;base64,@@@"}
    ),
    "an image at no URL": part(VALUE, "image_url", "http", {"type": "input_image", "image_url": "a.png"}),
    "an image of nobody": part(VALUE, "file_id", "no file with this id", {"type": "input_image", "file_id": "file_1"}),
    "a file that is nowhere": part(MISSING, "file_data", "base64", file(filename="a.txt")),
    "a file of nobody": part(VALUE, "file_id", "no file with this id", file(file_id="file_1")),
    "a file that is named and sent": part(
        VALUE, "file_id", "one of the two", file(file_id="file_1", file_data=encoded(b"hello"))
    ),
    "a file from elsewhere": part(UNSUPPORTED, "file_url", "example.org", file(file_url="https://example.org/x.txt")),
    "a file that is no base64": part(VALUE, "file_data", "base64", file(file_data="hello!")),
    "a picture as a file": part(VALUE, "file_data", "text files", file(file_data=encoded(b"\x89PNG\0"))),
    "a file named in two lines": part(VALUE, "filename", "printable", file(file_data=encoded(b"a"), filename="a\nb")),
}

WHERE = "previous_input_messages"
ASKED = {"role": "user", "content": "hi"}

HISTORIES: Table = {
    "a history that is a text": create(WHERE, "hi", TYPE, "got a string"),
    "history beside a store": create(WHERE, [ASKED], VALUE, "Send one of the two", previous_response_id=UNKNOWN),
    "a history of nobody": history(MISSING, f"{WHERE}[0].role", "'user'", {"content": "hi"}),
    "a history of robots": history(VALUE, f"{WHERE}[1].role", "robot", ASKED, {"role": "robot", "content": "hi"}),
    "a history without words": history(MISSING, f"{WHERE}[0].content", "a text", {"role": "user"}),
    "a history on an unknown channel": history(
        VALUE, f"{WHERE}[0].channel", "analysis", {"role": "assistant", "channel": "noise", "content": "hi"}
    ),
    "a history of a strange type": history(
        VALUE,
        f"{WHERE}[0].content_type",
        "constrain",
        {"role": "assistant", "channel": "final", "content_type": "a\nb", "content": "hi"},
    ),
    "a tool of the history that answers nothing": history(
        VALUE, f"{WHERE}[0]", "call_9", {"role": "tool", "tool_call_id": "call_9", "content": "5"}
    ),
    "a call of the history that nobody answers": history(
        None,
        "input",
        "call_1",
        {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]},
    ),
}
"""`previous_input_messages`."""

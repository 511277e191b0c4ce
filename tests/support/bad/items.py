"""Input items, their parts and histories that no client should send, and what it is told."""

from base64 import b64encode
from typing import Any

from tests.support.bad.table import (
    CALL,
    CUSTOM,
    FUNCTION,
    MISSING,
    MODEL,
    OUTPUT,
    TYPE,
    UNKNOWN,
    UNSUPPORTED,
    USER,
    VALUE,
    Bad,
    Table,
    create,
    history,
    items,
    part,
)

FOREIGN = "gAAAAABo"
"""How OpenAI's encrypted content begins."""

FORGED = "hs_AQ" + "A" * 80
"""What has the form of a seal of ours."""


def reasoning(**members: Any) -> dict[str, Any]:
    """A reasoning item with these members."""
    return {"type": "reasoning", "summary": [], **members}


def compaction(content: Any) -> dict[str, Any]:
    return {"type": "compaction", "encrypted_content": content}


def file(**members: Any) -> dict[str, Any]:
    """A part that is a file."""
    return {"type": "input_file", **members}


def encoded(content: bytes) -> str:
    return b64encode(content).decode()


ITEMS: Table = {
    "an item that is a text": items(TYPE, "input[0]", "an object", "hi"),
    "an item that is null": items(TYPE, "input[1]", "an object", USER, None),
    "an item that is a list": items(TYPE, "input[0]", "an object", [USER]),
    "an item of no type": items(MISSING, "input[1].type", "role", USER, {"content": "hi"}),
    "a number for an item's type": items(TYPE, "input[0].type", "a string", {"type": 5}),
    "an item of an unknown type": items(UNSUPPORTED, "input[0].type", "telepathy", {"type": "telepathy"}),
    "a broken text of a shell": Bad(
        lambda: b'{"model":"%s","input":[{"type":"shell_call_output","output":"\\ud800"}]}' % MODEL.encode(),
        "invalid_json",
        None,
        "surrogate",
    ),
    # messages
    "an unknown role": items(VALUE, "input[0].role", "robot", {**USER, "role": "robot"}),
    "a tool's role": items(VALUE, "input[0].role", "tool", {**USER, "role": "tool"}),
    "a number for a role": items(TYPE, "input[0].role", "a string", {**USER, "role": 5}),
    "a message of no role": items(MISSING, "input[0].role", "role", {"type": "message"}),
    "a message without content": items(MISSING, "input[0].content", "content", {"role": "user"}),
    "a number for content": items(TYPE, "input[0].content", "5", {**USER, "content": 5}),
    "an object for content": items(TYPE, "input[0].content", "{}", {**USER, "content": {}}),
    "an unknown phase": items(
        VALUE, "input[0].phase", "final_answer", {"role": "assistant", "content": "hi", "phase": "middle"}
    ),
    # functions
    "an output without a call": items(None, "input", "call_1", USER, OUTPUT),
    "an output before its call": items(None, "input", "call_1", OUTPUT, CALL),
    "a call without an output": items(None, "input", "call_1", USER, CALL),
    "a call unanswered amid others": items(None, "input", "call_2", CALL, {**CALL, "call_id": "call_2"}, OUTPUT, USER),
    "an output of another call": items(None, "input", "call_2", CALL, {**OUTPUT, "call_id": "call_2"}),
    "a call with a wild name": items(VALUE, "input[0].name", "<|start|>", {**CALL, "name": "<|start|>"}),
    "a call in a wild namespace": items(VALUE, "input[0].namespace", "a b", {**CALL, "namespace": "a b"}),
    "a call of a number": items(TYPE, "input[0].name", "a string", {**CALL, "name": 5}),
    "a call without arguments": items(
        MISSING, "input[0].arguments", "arguments", {**OUTPUT, "type": "function_call", "name": "f"}
    ),
    "arguments that are an object": items(TYPE, "input[0].arguments", "a string", {**CALL, "arguments": {}}),
    "an empty call id": items(VALUE, "input[0].call_id", "256", {**CALL, "call_id": ""}),
    "a call id of 257 letters": items(VALUE, "input[0].call_id", "256", {**CALL, "call_id": "c" * 257}),
    "a number for a call id": items(TYPE, "input[1].call_id", "a string", CALL, {**OUTPUT, "call_id": 1}),
    "nobody's output": items(MISSING, "input[0].call_id", "call_id", {"type": "function_call_output", "output": "x"}),
    "no output": items(MISSING, "input[0].output", "output", {"type": "function_call_output", "call_id": "call_1"}),
    "an output that is a number": items(TYPE, "input[0].output", "string", {**OUTPUT, "output": 5}),
    "an output that is a video": items(
        UNSUPPORTED, "input[0].output[0].type", "video", {**OUTPUT, "output": [{"type": "video"}]}
    ),
    # custom tools
    "a custom call without its input": items(
        MISSING, "input[0].input", "input", {"type": "custom_tool_call", "call_id": "c", "name": "f"}
    ),
    "a custom call with an object": items(
        TYPE, "input[0].input", "a string", {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": {}}
    ),
    "a custom output without a call": items(
        None, "input", "call_9", {"type": "custom_tool_call_output", "call_id": "call_9", "output": "x"}
    ),
    "a custom call without an output": items(
        None,
        "input",
        "call_9",
        {"type": "custom_tool_call", "call_id": "call_9", "name": "c", "input": "x"},
        tools=[CUSTOM],
    ),
    # what is sealed
    "foreign seal": items(VALUE, "input[0].encrypted_content", "can't be opened", reasoning(encrypted_content=FOREIGN)),
    "forged reasoning": items(
        VALUE, "input[0].encrypted_content", "can't be opened", reasoning(encrypted_content=FORGED)
    ),
    "emoji seal": items(VALUE, "input[0].encrypted_content", "can't be opened", reasoning(encrypted_content="hs_😀")),
    "empty reasoning": items(VALUE, "input[0].encrypted_content", "can't be opened", reasoning(encrypted_content="")),
    "reasoning of a number": items(TYPE, "input[0].encrypted_content", "a string", reasoning(encrypted_content=5)),
    "reasoning that is a text": items(TYPE, "input[0].content", "an array", reasoning(content="hm")),
    "a summary that is an object": items(TYPE, "input[0].summary", "an array", reasoning(summary={})),
    "a foreign compaction": items(VALUE, "input[0].encrypted_content", "can't be opened", compaction(FOREIGN)),
    "a forged compaction": items(VALUE, "input[1].encrypted_content", "can't be opened", USER, compaction(FORGED)),
    "an empty compaction": items(MISSING, "input[0].encrypted_content", "encrypted_content", {"type": "compaction"}),
    "a compaction of null": items(TYPE, "input[0].encrypted_content", "a string", compaction(None)),
    # what changes the request
    "compaction amid the input": items(VALUE, "input[0].type", "the last item", {"type": "compaction_trigger"}, USER),
    "nothing to compact": items(VALUE, "input", "at least one item", {"type": "compaction_trigger"}),
    "tools that a user adds": items(
        VALUE, "input[0].role", "developer", {"type": "additional_tools", "role": "user", "tools": []}
    ),
    "tools not added": items(MISSING, "input[0].tools", "tools", {"type": "additional_tools", "role": "developer"}),
    "an object of tools": items(TYPE, "input[0].tools", "an array", {"type": "additional_tools", "tools": {}}, USER),
    "an added tool without a name": items(
        MISSING,
        "input[0].tools[0].name",
        "name",
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]},
        USER,
    ),
    "an added tool of an unknown type": items(
        VALUE,
        "input[1].tools[1].type",
        "telepathy",
        USER,
        {"type": "additional_tools", "tools": [FUNCTION, {"type": "telepathy"}]},
    ),
    "many tools, a few in each item": items(
        VALUE, "input[10].tools", "at most 1024", *[{"type": "additional_tools", "tools": [FUNCTION] * 100}] * 11
    ),
    "an update to an unknown effort": items(
        VALUE,
        "input[0].reasoning.effort",
        "great",
        {"type": "configuration_update", "reasoning": {"effort": "great"}},
        USER,
    ),
    "an update that is a text": items(
        TYPE, "input[0].reasoning", "an object", {"type": "configuration_update", "reasoning": "low"}, USER
    ),
    "a reference": items(VALUE, "input[0].id", "msg_1", {"id": "msg_1"}),
    "a reference to an item of nobody": items(
        VALUE, "input[1].id", "No item", USER, {"type": "item_reference", "id": f"msg_{UNKNOWN[5:]}00000000"}
    ),
    "an item referred to twice": items(VALUE, "input[1].id", "once", {"id": "msg_1"}, {"id": "msg_1"}),
    "a reference of no id": items(VALUE, "input[0].id", "256", {"type": "item_reference", "id": ""}),
    "a reference by a number": items(TYPE, "input[0].id", "a string", {"type": "item_reference", "id": 5}),
    # what ran elsewhere
    "an MCP call of no server": items(
        MISSING, "input[0].server_label", "server_label", {"type": "mcp_call", "name": "x", "arguments": "{}"}
    ),
    "an MCP call with an object": items(
        TYPE, "input[0].arguments", "a string", {"type": "mcp_call", "server_label": "a", "name": "x", "arguments": {}}
    ),
    "a request for approval without a tool": items(
        MISSING, "input[0].name", "", {"type": "mcp_approval_request", "server_label": "a", "arguments": "{}"}
    ),
    "an answer to no request for approval": items(
        MISSING, "input[0].approval_request_id", "", {"type": "mcp_approval_response", "approve": True}
    ),
    "an answer that neither approves nor denies": items(
        TYPE,
        "input[0].approve",
        "bool",
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": "yes"},
    ),
    "an answer to an unknown request for approval": items(
        None,
        "input",
        "No approval request 'mcpr_1'",
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ),
    "a reason that is a book": items(
        VALUE,
        "input[0].reason",
        "at most 4096",
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "x" * 5_000},
    ),
    "a request for approval twice": items(
        None,
        "input",
        "Duplicate item found with id mcpr_1",
        *[{"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "a", "name": "b", "arguments": "{}"}] * 2,
    ),
    "code that is a number": items(TYPE, "input[0].code", "a string", {"type": "code_interpreter_call", "code": 5}),
    "text for outputs": items(TYPE, "input[0].outputs", "an array", {"type": "code_interpreter_call", "outputs": "42"}),
}

PARTS: Table = {
    "too many parts": items(
        *(VALUE, "input[0].content", "1024"), {"role": "user", "content": [{"type": "input_text", "text": "."}] * 1025}
    ),
    "an output that is a picture of nothing": items(
        *(MISSING, "input[0].output[0].image_url", "its URL"),
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]},
    ),
    "a part that is a text": part(TYPE, "", "an object", "hi"),
    "a part of no type": part(MISSING, "type", "type", {"text": "hi"}),
    "a part of an unknown type": part(UNSUPPORTED, "type", "video", {"type": "video"}),
    "a part that is a sound": part(UNSUPPORTED, "type", "input_audio", {"type": "input_audio"}),
    "a refusal of the user's": part(UNSUPPORTED, "type", "refusal", {"type": "refusal", "refusal": "no"}),
    "a part without text": part(MISSING, "text", "text", {"type": "input_text"}),
    "a part whose text is a number": part(TYPE, "text", "a string", {"type": "input_text", "text": 5}),
    "an image that is nowhere": part(MISSING, "image_url", "its URL", {"type": "input_image"}),
    "an image that is no base64": part(
        VALUE, "image_url", "base64", {"type": "input_image", "image_url": "data:image/png;base64,@@@"}
    ),
    "an image of nothing": part(VALUE, "image_url", "base64", {"type": "input_image", "image_url": "data:,"}),
    "an image at no URL": part(VALUE, "image_url", "http", {"type": "input_image", "image_url": "a.png"}),
    "an image in an unknown detail": part(
        VALUE, "detail", "original", {"type": "input_image", "image_url": "https://a.b/c", "detail": "huge"}
    ),
    "chat's form of an image": part(
        TYPE, "image_url", "a string", {"type": "input_image", "image_url": {"url": "https://example.org"}}
    ),
    "a file that is nowhere": part(MISSING, "file_data", "base64", file(filename="a.txt")),
    "a file that is stored": part(UNSUPPORTED, "file_id", "file_data", file(file_id="file_1")),
    "a file from elsewhere": part(UNSUPPORTED, "file_url", "example.org", file(file_url="https://example.org/x.txt")),
    "a file that is no base64": part(VALUE, "file_data", "base64", file(file_data="hello!")),
    "a picture as a file": part(VALUE, "file_data", "UTF-8", file(file_data="iVBORw0KGgo=", filename="x.png")),
    "a PDF": part(VALUE, "file_data", "text files", file(file_data=encoded(b"%PDF-1.7 words"))),
    "a file with zeros": part(VALUE, "file_data", "UTF-8", file(file_data=encoded(b"a\0b"))),
    "a file named in two lines": part(VALUE, "filename", "printable", file(file_data=encoded(b"a"), filename="a\nb")),
    "a file named by 257 letters": part(VALUE, "filename", "256", file(file_data=encoded(b"a"), filename="a" * 257)),
}

WHERE = "previous_input_messages"
ASKED = {"role": "user", "content": "hi"}

HISTORIES: Table = {
    "a history that is a text": create(WHERE, "hi", TYPE, "got a string"),
    "history beside a store": create(WHERE, [ASKED], VALUE, "the one or from the other", previous_response_id=UNKNOWN),
    "a history of texts": history(TYPE, f"{WHERE}[0]", "an object", "hi"),
    "a history of nobody": history(MISSING, f"{WHERE}[0].role", "'user'", {"content": "hi"}),
    "a history of robots": history(VALUE, f"{WHERE}[1].role", "robot", ASKED, {"role": "robot", "content": "hi"}),
    "a history without words": history(MISSING, f"{WHERE}[0].content", "a text", {"role": "user"}),
    "a history on an unknown channel": history(
        VALUE, f"{WHERE}[0].channel", "analysis", {"role": "assistant", "channel": "noise", "content": "hi"}
    ),
    "a history to a wild recipient": history(
        VALUE, f"{WHERE}[0].recipient", "a b", {"role": "assistant", "recipient": "a b", "content": "hi"}
    ),
    "a history of a strange type": history(
        VALUE,
        f"{WHERE}[0].content_type",
        "constrain",
        {"role": "assistant", "channel": "final", "content_type": "a\nb", "content": "hi"},
    ),
    "a history of pictures of music": history(
        UNSUPPORTED, f"{WHERE}[0].content[0].type", "music", {"role": "user", "content": [{"type": "music"}]}
    ),
    "a tool of the history that answers nothing": history(
        VALUE, f"{WHERE}[0]", "call_9", {"role": "tool", "tool_call_id": "call_9", "content": "5"}
    ),
    "a wildly named tool": history(VALUE, f"{WHERE}[0].name", "a b", {"role": "tool", "name": "a b", "content": "5"}),
    "a call of the history without a function": history(
        MISSING,
        f"{WHERE}[0].tool_calls[0].function",
        "function",
        {"role": "assistant", "tool_calls": [{"id": "call_1"}]},
    ),
    "a call of the history with a wild name": history(
        VALUE,
        f"{WHERE}[0].tool_calls[0].function.name",
        "a b",
        {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "a b", "arguments": "{}"}}]},
    ),
    "a call of the history with an empty id": history(
        VALUE,
        f"{WHERE}[0].tool_calls[0].id",
        "256",
        {"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "f"}}]},
    ),
    "a call of the history that nobody answers": history(
        None,
        "input",
        "call_1",
        {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]},
    ),
}
"""`previous_input_messages`."""

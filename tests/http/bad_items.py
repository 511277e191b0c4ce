"""Create requests whose input items are bad, one or two in each way that there is."""

from typing import Any

from tests.http.bad_requests import Bad, create
from tests.http.process import MODEL

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}


def items(code: str | None, param: str, words: str, *values: Any) -> Bad:
    """A create request with these input items."""
    return Bad({"model": MODEL, "input": list(values)}, code, param, words)


ITEMS: dict[str, Bad] = {
    "an item that is a text": items("invalid_type", "input[0]", "an object", "hi"),
    "an item of no type": items("missing_required_parameter", "input[1].type", "role", USER, {"content": "hi"}),
    "an item of an unknown type": items("unsupported_parameter", "input[0].type", "telepathy", {"type": "telepathy"}),
    "a reference": items("invalid_value", "input[0].id", "msg_1", {"id": "msg_1"}),
    "an unknown role": items("invalid_value", "input[0].role", "robot", {**USER, "role": "robot"}),
    "a message without content": items("missing_required_parameter", "input[0].content", "content", {"role": "user"}),
    "a part without text": items(
        "missing_required_parameter", "input[0].content[0].text", "text", {**USER, "content": [{"type": "input_text"}]}
    ),
    "an image that is nowhere": items(
        "missing_required_parameter",
        "input[0].content[0].image_url",
        "its URL",
        {**USER, "content": [{"type": "input_image"}]},
    ),
    "a file that is no text": items(
        "invalid_value",
        "input[0].content[0].file_data",
        "UTF-8",
        {**USER, "content": [{"type": "input_file", "filename": "x.png", "file_data": "iVBORw0KGgo="}]},
    ),
    "a file that is elsewhere": items(
        "unsupported_parameter",
        "input[0].content[0].file_url",
        "example.org",
        {**USER, "content": [{"type": "input_file", "file_url": "https://example.org/x.txt"}]},
    ),
    "foreign reasoning": items(
        "invalid_value",
        "input[0].encrypted_content",
        "can't be opened",
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABo"},
    ),
    "a foreign compaction": items(
        "invalid_value",
        "input[0].encrypted_content",
        "can't be opened",
        {"type": "compaction", "encrypted_content": "gAAAAABo"},
    ),
    "a wish to compact amid the input": items(
        "invalid_value", "input[0].type", "the last item", {"type": "compaction_trigger"}, USER
    ),
    "nothing to compact": items("invalid_value", "input", "at least one item", {"type": "compaction_trigger"}),
    "tools that a user adds": items(
        "invalid_value", "input[0].role", "developer", {"type": "additional_tools", "role": "user", "tools": []}
    ),
    "an added tool without a name": items(
        "missing_required_parameter",
        "input[0].tools[0].name",
        "name",
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]},
        USER,
    ),
    "a computer's screen": items(
        "unsupported_parameter", "input[0].type", "computer", {"type": "computer_call_output", "call_id": "c"}
    ),
    "a custom call without its input": items(
        "missing_required_parameter",
        "input[0].input",
        "input",
        {"type": "custom_tool_call", "call_id": "c", "name": "f"},
    ),
    "an update to an unknown effort": items(
        "invalid_value",
        "input[0].reasoning.effort",
        "great",
        {"type": "configuration_update", "reasoning": {"effort": "great"}},
        USER,
    ),
    "a history that is a text": create("previous_input_messages", "hi", "invalid_type", "got a string"),
    "a history of nobody": create(
        "previous_input_messages",
        [{"content": "hi"}],
        "missing_required_parameter",
        "'user'",
        named="previous_input_messages[0].role",
    ),
    "a tool of the history that answers nothing": create(
        "previous_input_messages",
        [{"role": "tool", "tool_call_id": "call_9", "content": "5"}],
        "invalid_value",
        "call_9",
        named="previous_input_messages[0]",
    ),
    "an output without a call": items(None, "input", "call_1", USER, OUTPUT),
    "a call without an output": items(None, "input", "call_1", USER, CALL),
    "an output of another call": items(None, "input", "call_2", CALL, {**OUTPUT, "call_id": "call_2"}),
    "a call with a wild name": items("invalid_value", "input[0].name", "<|start|>", {**CALL, "name": "<|start|>"}),
    "a call without arguments": items(
        "missing_required_parameter",
        "input[0].arguments",
        "arguments",
        {**OUTPUT, "type": "function_call", "name": "f"},
    ),
    "an empty call id": items("invalid_value", "input[0].call_id", "256", {**CALL, "call_id": ""}),
    "an output that is a number": items("invalid_type", "input[0].output", "string", {**OUTPUT, "output": 5}),
}

"""Tools as they are declared: what is echoed, and what is refused by its place."""

from typing import Any

import msgspec
import pytest

from service.protocol.errors import ApiError
from service.protocol.steps import in_one_go
from service.protocol.tools import Tools, read_tools

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does f.", "parameters": {"type": "object"}}
MAX_TOOLS = 8
MAX_TOOLS_BYTES = 4096


def tools(value: Any) -> Tools:
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return in_one_go(read_tools(msgspec.Raw(raw), max_tools=MAX_TOOLS, max_bytes=MAX_TOOLS_BYTES))


def test_a_function_is_echoed_with_every_key() -> None:
    assert tools([TOOL]).echo == ({**TOOL, "strict": True},)
    assert tools([{"type": "function", "name": "g"}]).echo == (
        {"type": "function", "name": "g", "description": None, "parameters": None, "strict": True},
    )


@pytest.mark.parametrize("value", [[], None])
def test_no_tools_are_no_tools(value: object) -> None:
    assert tools(value) == Tools()


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ({}, "invalid_type", "tools"),
        ([5], "invalid_type", "tools[0]"),
        ([{}], "missing_required_parameter", "tools[0].type"),
        ([TOOL, {"type": "mcp"}], "unsupported_parameter", "tools[1].type"),
        ([{"type": "function"}], "missing_required_parameter", "tools[0].name"),
        ([{**TOOL, "name": "a b"}], "invalid_value", "tools[0].name"),
        ([{**TOOL, "name": "n" * 65}], "invalid_value", "tools[0].name"),
        ([{**TOOL, "parameters": []}], "invalid_type", "tools[0].parameters"),
        ([{**TOOL, "colour": "red"}], "unknown_parameter", "tools[0].colour"),
        ([{**TOOL, "defer_loading": True}], "unsupported_parameter", "tools[0].defer_loading"),
        ([{**TOOL, "async": True}], "unsupported_parameter", "tools[0].async"),
        ([TOOL, TOOL], "invalid_value", "tools"),
        ([{**TOOL, "name": str(i)} for i in range(MAX_TOOLS + 1)], "invalid_value", "tools"),
        ([{**TOOL, "description": "d" * MAX_TOOLS_BYTES}], "invalid_value", "tools"),
        (
            b'[{"type":"function","name":"f","parameters":' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}]",
            "invalid_value",
            "tools",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_tool_is_refused_by_its_place(value: Any, code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        tools(value)

    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)

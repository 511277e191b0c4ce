"""Output items in a line, for tests to compare."""

import msgspec

from service.api.response import (
    CodeInterpreterCall,
    Compaction,
    CustomToolCall,
    FunctionCall,
    Item,
    McpCall,
    McpListTools,
    Message,
    Reasoning,
    WebSearchCall,
)


def text_of(item: Item) -> str:
    """What an output item shows of its message's content: its text, arguments, input or code."""
    match item:
        case FunctionCall() | McpCall():
            return item.arguments
        case CustomToolCall():
            return item.input
        case CodeInterpreterCall():
            return item.code
        case Message() | Reasoning():
            return "".join(part.text for part in item.content)
        case WebSearchCall() | McpListTools() | Compaction():
            return ""


def short(item: Item) -> tuple[str, ...]:
    """An item in a line: its kind, for a call its name, and its text."""
    match item:
        case FunctionCall():
            return "call", item.name, item.arguments
        case CustomToolCall():
            return "custom", item.name, item.input
        case McpCall():
            return "mcp", item.server_label, item.name, item.arguments
        case McpListTools():
            return "mcp", item.server_label, *(tool["name"] for tool in item.tools)
        case CodeInterpreterCall():
            return "python", item.code
        case WebSearchCall():
            action = {} if isinstance(item.action, msgspec.UnsetType) else item.action
            return "web", *map(str, action.values())
        case Compaction():
            return ("compaction",)
        case Message():
            return item.phase, text_of(item)
        case Reasoning():
            return "reasoning", text_of(item)

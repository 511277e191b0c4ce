"""Output items in a line, for tests to compare."""

import msgspec

from service.api.response import (
    ApplyPatchCall,
    CodeInterpreterCall,
    Compaction,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    Item,
    LocalShellCall,
    McpCall,
    McpListTools,
    Message,
    Reasoning,
    ShellCall,
    ToolSearchCall,
    WebSearchCall,
)


def as_json(said: object) -> str:
    """What is to be done, as JSON."""
    return msgspec.json.encode(said).decode()


def text_of(item: Item) -> str:
    """What an output item shows of its message's content: its text, arguments, input, code or action."""
    match item:
        case FunctionCall() | McpCall():
            return item.arguments
        case CustomToolCall():
            return item.input
        case CodeInterpreterCall():
            return item.code
        case Message() | Reasoning():
            return "".join(part.text for part in item.content)
        case ToolSearchCall():
            return as_json(item.arguments)
        case ShellCall() | LocalShellCall():
            return as_json(item.action)
        case ApplyPatchCall():
            return as_json(item.operation)
        case WebSearchCall() | FileSearchCall() | McpListTools() | Compaction():
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
        case ToolSearchCall() | ShellCall() | LocalShellCall() | ApplyPatchCall():
            return str(item.__struct_config__.tag), text_of(item)
        case McpListTools():
            return "mcp", item.server_label, *(tool["name"] for tool in item.tools)
        case CodeInterpreterCall():
            return "python", item.code
        case WebSearchCall():
            action = {} if isinstance(item.action, msgspec.UnsetType) else item.action
            return "web", *map(str, action.values())
        case FileSearchCall():
            return "files", *item.queries
        case Compaction():
            return ("compaction",)
        case Message():
            return item.phase, text_of(item)
        case Reasoning():
            return "reasoning", text_of(item)

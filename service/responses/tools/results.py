"""What a tool answers as one text, for the model and for the client: texts as they are, and of all else what it is."""

import mcp_types as types
import msgspec

from service.responses.tools.port import ToolResult
from service.responses.tools.redaction import Redaction


def result_of(result: types.CallToolResult, redaction: Redaction, chars: int) -> ToolResult:
    """The text of a result, of at most so many characters and a few."""
    parts = [_text(part) for part in result.content]
    whole = parts[0].encode() if len(parts) == 1 else b""
    if result.structured_content is not None:
        whole = msgspec.json.encode(result.structured_content)
        parts = parts or [whole.decode()]
    return ToolResult(_shortened("\n".join(parts), redaction, chars), result.is_error, redaction.data(whole))


def _text(part: types.ContentBlock) -> str:
    match part:
        case types.TextContent():
            return part.text
        case types.ImageContent() | types.AudioContent():
            return f"[{part.mime_type}, {len(part.data) * 3 // 4:,} bytes]"
        case types.ResourceLink():
            return f"[{part.name}]({part.uri})"
        case types.EmbeddedResource():
            held = part.resource
            if isinstance(held, types.TextResourceContents):
                return held.text
            return f"[{held.uri}, {len(held.blob) * 3 // 4:,} bytes]"


def _shortened(text: str, redaction: Redaction, chars: int) -> str:
    """The text without secrets. Where it is longer than that, its middle is left out."""
    if len(text) <= chars:
        return redaction.text(text)
    half = chars // 2
    left_out = len(text) - 2 * half
    head, tail = redaction.beginning(text, half), redaction.end(text, half)
    return f"{head}\n[{left_out:,} characters left out]\n{tail}"

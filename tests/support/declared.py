"""The types of items, blocks and parts that an SDK declares, by the names of its own types."""

import json
import sys
import typing
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

OPENAI = {
    "items": (
        "openai.types.responses.response_input_item_param:ResponseInputItemParam",
        "openai.types.responses.response_output_item:ResponseOutputItem",
        "openai.types.responses.response_item:ResponseItem",
        "openai.types.conversations.conversation_item:ConversationItem",
    ),
    "parts": (
        "openai.types.responses.response_input_content_param:ResponseInputContentParam",
        "openai.types.conversations.message:Content",
    ),
    "chat": ("openai.types.chat.chat_completion_content_part_param:ChatCompletionContentPartParam",),
}
ANTHROPIC = {
    "blocks": (
        "anthropic.types.content_block_param:ContentBlockParam",
        "anthropic.types.content_block:ContentBlock",
        "anthropic.types.beta.beta_content_block_param:BetaContentBlockParam",
        "anthropic.types.beta.beta_content_block:BetaContentBlock",
        "anthropic.types.beta.beta_tool_result_block_param:Content",
    )
}


def declared(names: typing.Iterable[str]) -> set[str]:
    """The types of the members of these unions, each named as MODULE:UNION."""
    found: set[str] = set()
    for name in names:
        module, _, union = name.partition(":")
        found |= _types_in(getattr(import_module(module), union))
    return found


def _types_in(union: Any) -> set[str]:
    found: set[str] = set()
    for each in _alternatives(union):
        if hasattr(each, "model_fields"):
            field = each.model_fields.get("type")
            kind = None if field is None else field.annotation
        else:
            kind = get_type_hints(each).get("type")
        found |= {text for one in _alternatives(kind) for text in get_args(one) if isinstance(text, str)}
    return found


def _alternatives(kind: Any) -> list[Any]:
    origin = get_origin(kind)
    if origin is Annotated or getattr(origin, "__name__", getattr(origin, "_name", "")) in ("Required", "NotRequired"):
        return _alternatives(get_args(kind)[0])
    if origin in (Union, UnionType):
        return [each for inside in get_args(kind) for each in _alternatives(inside)]
    return [kind]


if __name__ == "__main__":
    json.dump({kind: sorted(declared(names)) for kind, names in ANTHROPIC.items()}, sys.stdout)

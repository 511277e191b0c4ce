"""Prompts of create requests, as tests ask for them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from service.protocol.prompt import Identity, Limits, Prompt, build_prompt
from service.protocol.steps import in_one_go
from service.protocol.wire import read_create
from store.turn import StoredMessage

IDENTITY = Identity("You are ChatGPT, a large language model trained by OpenAI.", "2024-06", context_tokens=131_072)
DATE = "2025-06-28"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "get_weather", "description": "The weather now.", "parameters": SCHEMA},
    {"type": "function", "name": "lookup", "parameters": None},
]


def prompt(chain: Sequence[StoredMessage] = (), identity: Identity = IDENTITY, **body: Any) -> Prompt:
    """The prompt of a create request on top of a chain."""
    request = read_create(msgspec.json.encode({"model": "m", **body}), store=True)
    return in_one_go(build_prompt(request, chain, identity, date=DATE, limits=Limits()))

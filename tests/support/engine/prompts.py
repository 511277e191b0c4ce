"""Harmony prompts by hand, token by token.

The layout is written out here instead of taken from the service's renderer, so that an engine is tested against the
format itself; the tests with the oracle add openai-harmony's own rendering.
"""

from openai_harmony import Role

from service.harmony.tokens import ASSISTANT, CHANNEL, END, MESSAGE, START, encode
from tests.support.oracles.harmony import Oracle

SYSTEM = """You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06
Current date: 2025-01-01

Reasoning: {effort}

# Valid channels: analysis, commentary, final. Channel must be included for every message."""

WEATHER = """# Tools

## functions

namespace functions {

// Get the current weather for a city.
type get_weather = (_: {
// City name
city: string,
unit?: "c" | "f", // default: c
}) => any;

} // namespace functions"""

Message = list[int]


def message(role: str, text: str, channel: str | None = None) -> Message:
    """One message: role or tool name, header text after it, content."""
    header = encode(role) + ([CHANNEL, *encode(channel)] if channel else [])
    return [START, *header, MESSAGE, *encode(text), END]


def user(text: str) -> Message:
    return message("user", text)


def final(text: str) -> Message:
    return message("assistant", text, "final")


def prompt(*messages: Message, effort: str = "medium", developer: str = "") -> list[int]:
    """A whole prompt, up to where the assistant speaks."""
    head = message("system", SYSTEM.format(effort=effort))
    if developer:
        head += message("developer", developer)
    return [*head, *(token for one in messages for token in one), START, ASSISTANT]


def parsed(oracle: Oracle, tokens: list[int]) -> list[dict[str, object]]:
    """The same answer as openai-harmony's parser reads it."""
    messages = oracle.encoding.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
    return [one.to_dict() for one in messages]

"""Harmony prompts by hand, token by token, and what a demo engine makes of them.

The layout is written out here instead of taken from the service's renderer, so that the engine is tested against the
format itself; the tests with the oracle add openai-harmony's own rendering.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from openai_harmony import Role

from service.features.demo.sampling import sampled_answer
from service.harmony.tokens import ASSISTANT, CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, decode, encode
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


@dataclass(frozen=True)
class Answer:
    """The ids that were sampled, and their texts by channel."""

    tokens: list[int]
    analysis: str = ""
    final: str = ""


def answer(tokens_before: Sequence[int]) -> Answer:
    """Let the demo engine's mind answer a prompt, and take the answer apart by its special tokens."""
    tokens = [token for piece in sampled_answer(tokens_before) for token in piece]
    places = [(part, part.index(MESSAGE)) for part in _split(tokens)]
    return Answer(tokens, **{decode(part[:place]): decode(part[place + 1 :]) for part, place in places})


def _split(tokens: list[int]) -> list[list[int]]:
    """The messages of an answer, from behind CHANNEL to before the token that closes each."""
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token in (END, RETURN, CALL):
            parts.append([])
        elif token not in (START, ASSISTANT, CHANNEL, CONSTRAIN):
            parts[-1].append(token)
    return parts[:-1]


def parsed(oracle: Oracle, tokens: list[int]) -> list[dict[str, object]]:
    """The same answer as openai-harmony's parser reads it."""
    messages = oracle.encoding.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
    return [one.to_dict() for one in messages]

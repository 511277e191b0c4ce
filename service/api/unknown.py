"""What is said of a member that nobody knows: where the Responses API has what it is for, or the name it resembles.

Who comes from Chat Completions sends its names. Nothing is ever taken under another name: a refusal that has the right
one is mended once, a guess is never seen.
"""

from collections.abc import Iterable
from difflib import get_close_matches

MOVED = {
    "messages": "In the Responses API they are 'input'.",
    "max_tokens": "In the Responses API it is 'max_output_tokens'.",
    "max_completion_tokens": "In the Responses API it is 'max_output_tokens'.",
    "response_format": "In the Responses API it is 'text.format'.",
    "json_schema": "In the Responses API its members stand beside 'type'.",
    "reasoning_effort": "In the Responses API it is 'reasoning.effort'.",
    "verbosity": "In the Responses API it is 'text.verbosity'.",
    "function": "In the Responses API its members stand beside 'type'.",
    "functions": "In the Responses API they are 'tools'.",
    "function_call": "In the Responses API it is 'tool_choice', and what a model calls is an item of that type.",
    "tool_calls": "In the Responses API each is an item of type 'function_call'.",
    "tool_call_id": "In the Responses API it is the 'call_id' of an item of type 'function_call_output'.",
    "n": "The Responses API makes one answer a request.",
    "logprobs": 'In the Responses API they are "include": ["message.output_text.logprobs"], with \'top_logprobs\'.',
    "max_new_tokens": "In the Responses API it is 'max_output_tokens'.",
}
"""Names of Chat Completions, and what the Responses API has in their place."""

_ALIKE = 0.7
"""From which likeness on a name is guessed: one letter of three may be wrong."""

_NAME_CHARS = 64
"""How long a name may be for which another is looked."""


def advice(name: str, known: Iterable[str]) -> str:
    """What to do about a member that is called `name`, where those that are `known` were expected."""
    if name in MOVED:
        return MOVED[name]
    alike = get_close_matches(name, known, n=1, cutoff=_ALIKE) if len(name) <= _NAME_CHARS else []
    return f"Did you mean '{alike[0]}'?" if alike else "Check its spelling, or leave it out."

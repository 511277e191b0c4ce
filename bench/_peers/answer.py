"""What every stub engine answers: so many words, the same in every form that a gateway asks for. Imports nothing, as
the engines of rivals run in environments of their own.
"""

WORDS = (" one", " two", " three", " four", " five", " six", " seven", " eight")
IDS = (1001, 1920, 3407, 4242, 6468, 7429, 12938, 14212)
"""Each a token of o200k_harmony, in the same order."""

CHANNEL, FINAL, MESSAGE, RETURN = 200005, 17196, 200008, 200002
PROMPT_TOKENS = 70
"""What is said of any prompt."""

TOKENS = 64


def text(tokens: int) -> str:
    """The answer of so many tokens."""
    return "".join(WORDS[place % len(WORDS)] for place in range(tokens))


def sampled(tokens: int) -> list[int]:
    """The ids of a model that says it and stops."""
    return [CHANNEL, FINAL, MESSAGE, *(IDS[place % len(IDS)] for place in range(tokens)), RETURN]

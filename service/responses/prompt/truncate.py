"""`truncation: auto`: which turns of a conversation that is too long a prompt shows.

First the user's words inside a compaction go, then whole turns, the oldest first. A turn begins where the user speaks
(or a developer) after somebody else did. What the conversation opens with, the words of developers and a summary,
stays; so does the newest turn; and a call is never parted from its output. What is left out of one prompt stays in the
chain.
"""

from collections.abc import Sequence

from service.harmony.calls import answered_calls
from service.harmony.tokens import BYTES_A_TOKEN
from service.responses.output.compaction import behind_compaction
from store.turn import StoredMessage

ANSWER_RESERVE_TOKENS = 4096
"""How much room is made for an answer whose `max_output_tokens` isn't given."""

RESERVE_SHARE = 4
"""At most one part in so many of the context is kept for the answer."""

_PROMPTERS = ("user", "developer")


def reserve(context_tokens: int, max_output_tokens: int | None) -> int:
    """How many tokens of the context a shortened prompt leaves to the answer."""
    return min(max_output_tokens or ANSWER_RESERVE_TOKENS, context_tokens // RESERVE_SHARE)


def shortened(messages: Sequence[StoredMessage], room: int) -> list[StoredMessage]:
    """The messages without so many of the oldest turns that they have at most `room` tokens, if that is enough."""
    excess = sum(len(message.tokens) for message in messages) - room * BYTES_A_TOKEN
    if excess <= 0:
        return list(messages)
    cut = head = _head(messages)
    rest, excess = _without_words(messages[:head], excess)
    dropped = 0
    for place in _cuts(messages, head) if excess > 0 else ():
        dropped += sum(len(message.tokens) for message in messages[cut:place])
        cut = place
        if dropped >= excess:
            break
    return [*rest, *messages[cut:]]


def _without_words(head: Sequence[StoredMessage], excess: int) -> tuple[list[StoredMessage], int]:
    """The head without so many of the oldest words of the user's that it is `excess` bytes shorter, and what of that is
    left. All that a user says in a head stands between a compaction's mark and its summary.
    """
    rest: list[StoredMessage] = []
    for message in head:
        if message.role == "user" and excess > 0:
            excess -= len(message.tokens)
        else:
            rest.append(message)
    return rest, excess


def _head(messages: Sequence[StoredMessage]) -> int:
    """Where the first turn begins."""
    place = behind_compaction(messages)
    while place < len(messages) and messages[place].role == "developer":
        place += 1
    return place


def _cuts(messages: Sequence[StoredMessage], head: int) -> list[int]:
    """The places where a turn begins and no call before waits for an output behind, oldest first."""
    open_until = [0] * (len(messages) + 1)
    for output, call in answered_calls(messages).items():
        open_until[call] = output
    cuts: list[int] = []
    latest = 0
    for place in range(head, len(messages)):
        begins = messages[place].role in _PROMPTERS and place > head and messages[place - 1].role not in _PROMPTERS
        if begins and latest < place:
            cuts.append(place)
        latest = max(latest, open_until[place])
    return cuts

"""A compacted conversation as it stands in a prompt: the user's last words, word by word, and a summary of all else.

    developer: this conversation was compacted … · user messages · developer: the summary

The first of these messages is a marker: messages before it in a chain are out of the prompt, for good. They are kept
in the chain like any others, so a compaction is one turn among turns.
"""

from collections.abc import Sequence

import msgspec

from service.harmony.pictures import without_pictures
from service.harmony.render import message_steps
from service.harmony.tokens import BYTES_A_TOKEN
from service.responses.output.sealed import MAX_SUMMARY_BYTES, SealedCompaction, size_of
from service.steps import in_one_go
from store.turn import StoredMessage

MARKER = "compaction"
SUMMARY = "summary"
"""Names of the two developer messages. They are kept beside the tokens, and aren't in a prompt."""

_SUMMARY_ALONE = (
    "# Conversation so far\n\nThe conversation before this was compacted. This is a summary of what was said and done:"
)
_KEPT = (
    "# Conversation so far\n\nThe conversation before this was compacted. What the user said last in it follows word "
    "by word, and then a summary of what was said and done."
)
_SUMMARY = "# Summary\n\nThis is a summary of what was said and done in the conversation so far:"


def compaction_messages(compaction: SealedCompaction, *, limit: int) -> list[StoredMessage]:
    """The messages that stand for a compacted conversation; `limit` is the most tokens of the summary.

    A summary has at most MAX_SUMMARY_BYTES, which takes some 10 ms. Raises TooManyTokens.
    """

    def named_message(name: str, text: str) -> StoredMessage:
        developer = in_one_go(message_steps(text, "developer", limit=limit))
        return msgspec.structs.replace(developer, name=name)

    if not compaction.kept:
        return [named_message(MARKER, f"{_SUMMARY_ALONE}\n\n{compaction.summary}"), *compaction.newest]
    summary = named_message(SUMMARY, f"{_SUMMARY}\n\n{compaction.summary}")
    return [named_message(MARKER, _KEPT), *compaction.kept, summary, *compaction.newest]


def users_words(messages: Sequence[StoredMessage], room: int, size: int) -> tuple[StoredMessage, ...]:
    """The messages that a compaction keeps word by word: the user's newest ones that have at most `room` tokens
    together, and take at most `size` bytes of the payload.
    """
    kept: list[StoredMessage] = []
    for message in reversed(messages):
        if message.role != "user":
            continue
        room -= len(message.tokens) // BYTES_A_TOKEN
        size -= size_of(message)
        if room < 0 or size < 0:
            break
        kept.append(without_pictures(message))
    return tuple(reversed(kept))


def fault_of(summary: str) -> str | None:
    """Why the model's summary can't stand for a conversation; None where it can."""
    if not summary.strip():
        return "The model wrote no summary of the conversation."
    if len(summary.encode("utf-8", "surrogatepass")) > MAX_SUMMARY_BYTES:
        return f"The model's summary of the conversation is longer than {MAX_SUMMARY_BYTES} bytes."
    return None


def since_compaction(messages: Sequence[StoredMessage]) -> int:
    """The place of the newest marker, 0 where there is none: nothing before it is in the prompt."""
    if MARKER not in [message.name for message in messages]:  # nearly always, and quickly seen
        return 0
    return max((place for place, message in enumerate(messages) if is_marker(message)), default=0)


def is_marker(message: StoredMessage) -> bool:
    """Whether a compaction begins with this message."""
    return message.role == "developer" and message.name == MARKER


def is_summary(message: StoredMessage) -> bool:
    """Whether a compaction that kept the user's words ends with this message."""
    return message.role == "developer" and message.name == SUMMARY


def behind_compaction(messages: Sequence[StoredMessage]) -> int:
    """The place behind the compaction that these messages begin with, 0 where they begin with none."""
    if not messages or not is_marker(messages[0]):
        return 0
    return next((place + 1 for place, message in enumerate(messages) if is_summary(message)), 1)

"""Pairs outputs with calls: by the call's id, or, where it has none, in the order of the calls.

All calls have ids, except in a history that the client keeps itself in Harmony's form, which knows none.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from store.turn import Chain, StoredMessage

CUT_CALL = "cut_call"
"""The role of a note of a call that was cut short."""


def cut_call(call_id: str, recipient: str, content: str, content_type: str | None) -> StoredMessage:
    """The note of a call that was cut short. It owes no output, and no prompt shows it; but if its output comes, both
    are shown then, the content as far as it came.
    """
    return StoredMessage(CUT_CALL, b"", recipient=recipient, name=content, content_type=content_type, call_id=call_id)


class UnnamedCalls:
    """Calls without an id that wait for an output, by the places of their messages."""

    def __init__(self) -> None:
        self._recipients: OrderedDict[int, str] = OrderedDict()
        self._places: dict[str, deque[int]] = {}

    @property
    def recipients(self) -> Iterable[str]:
        return self._recipients.values()

    def add(self, place: int, recipient: str) -> None:
        """Note the call of the message at `place`."""
        self._recipients[place] = recipient
        self._places.setdefault(recipient, deque()).append(place)

    def claim(self, recipient: str | None = None) -> tuple[int, str] | None:
        """Take the first waiting call, of `recipient` where given: its place and its recipient."""
        if recipient is None:
            recipient = next(iter(self.recipients), None)
        places = self._places.get(recipient) if recipient is not None else None
        if recipient is None or not places:
            return None
        place = places.popleft()
        del self._recipients[place]
        return place, recipient

    def clear(self) -> None:
        self._recipients.clear()
        self._places.clear()


def answered_calls(messages: Sequence[StoredMessage]) -> dict[int, int]:
    """The place of the call that each output answers, by the output's place. An output without
    such an id answers the first call without one: of its own tool, or else of any.
    """
    answered: dict[int, int] = {}
    named: dict[str, int] = {}
    unnamed = UnnamedCalls()
    for place, message in enumerate(messages):
        if message.role == "assistant" and message.recipient is not None:
            if message.call_id is None:
                unnamed.add(place, message.recipient)
            else:
                named[message.call_id] = place
        elif message.role == "tool" and message.call_id in named:
            answered[place] = named[message.call_id]
        elif message.role == "tool" and (claimed := unnamed.claim(message.name) or unnamed.claim()) is not None:
            answered[place] = claimed[0]
    return answered


def pair(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The messages without the outputs that lack a call, and the calls that lack an output. Calls behind which nobody
    spoke stay: they may still get theirs. A cut history may have such messages, and no model has seen any.
    """
    answered = answered_calls(messages)
    calls = set(answered.values())
    since = next((at for at in range(len(messages), 0, -1) if _speaks(messages[at - 1])), 0)
    return [
        message
        for place, message in enumerate(messages)
        if (message.role != "tool" or place in answered)
        and (message.role != "assistant" or message.recipient is None or place in calls or place >= since)
    ]


def _speaks(message: StoredMessage) -> bool:
    """Whether a message is neither a call nor an output."""
    return message.recipient is None and message.role != "tool"


def in_order_of_calls(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """The messages, with outputs that stand side by side in the order of their calls: nothing else tells a model of
    Harmony which output is whose, and in a conversation they may have been added in any order.
    """
    ordered, run = list[StoredMessage](), list[StoredMessage]()
    ranks: dict[str | None, int] = {}
    for message in messages:
        if message.role == "tool" and message.call_id in ranks:
            run.append(message)
            continue
        if run:
            ordered += sorted(run, key=lambda output: ranks[output.call_id])
            run = []
        if message.call_id is not None:
            ranks[message.call_id] = len(ordered)
        ordered.append(message)
    return ordered + sorted(run, key=lambda output: ranks[output.call_id])


def history_of(chain: Chain) -> list[StoredMessage]:
    """The messages of a chain as its next prompt has them, oldest first."""
    messages = chain.messages()
    return pair(messages) if chain.cut else messages

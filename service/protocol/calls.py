"""The calls of a conversation: which tool each call id stands for, and which still wait for an output.

An output names its call by id alone, which may be anywhere before it. Calls that a client keeps in Harmony's form have
no id; they are claimed in their order by outputs whose ids nobody knows.
"""

from collections.abc import Iterable

from service.protocol.errors import InvalidRequest
from service.protocol.rules import FUNCTIONS, Callee, Rules
from store.turn import StoredMessage


class Calls:
    """The calls so far, by call id: their recipients, and which still wait."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._recipients: dict[str, str] = {}
        self._waiting: dict[str, None] = {}
        self._unnamed: list[tuple[int, str]] = []

    def known(self, messages: Iterable[StoredMessage], *, unnamed: bool = False) -> None:
        """Take over what was called in earlier messages. A call waits only if nobody but the model spoke since: any
        before that was answered in its time, and an answer that isn't there has been erased.

        With `unnamed` the messages are a client's, whose calls may have no id; such a one is known by its place.
        """
        for place, message in enumerate(messages):
            if message.role != "assistant":
                self._waiting.clear()
                self._hear(message)
            elif message.recipient is None:
                continue
            elif message.call_id is not None:
                self.made(message.call_id, self.tool_of(message.recipient))
            elif unnamed:
                self._unnamed.append((place, self.tool_of(message.recipient)))

    def tool_of(self, recipient: str) -> str:
        """The name under which the tool answers that was called so; the model leaves `functions.` out at times."""
        meant = self._rules.called(recipient, None)
        if isinstance(meant, Callee):
            return meant.recipient
        return recipient if "." in recipient else f"{FUNCTIONS}.{recipient}"

    def made(self, call_id: str, recipient: str) -> None:
        """A call was made."""
        self._recipients[call_id] = recipient
        self._waiting[call_id] = None

    def skipped(self, call_id: str, recipient: str) -> None:
        """A call was made that the prompt doesn't show; nobody waits for it."""
        self._recipients[call_id] = recipient

    def answered(self, call_id: str) -> str | None:
        """The tool that answers the call, which waits no more; None for an id that nobody knows."""
        self._waiting.pop(call_id, None)
        return self._recipients.get(call_id)

    def claim(self, recipient: str | None = None) -> tuple[int, str] | None:
        """The place and the tool of the first call without an id, of `recipient`'s where given; it waits no more."""
        for call in self._unnamed:
            if recipient in (None, call[1]):
                self._unnamed.remove(call)
                return call
        return None

    def refuse_open(self) -> None:
        """Raise InvalidRequest if a call still waits."""
        for call_id in self._waiting:
            raise InvalidRequest(
                f"No tool output found for function call {call_id}. Send a function_call_output item with this "
                "call_id.",
                param="input",
            )
        for _, recipient in self._unnamed:
            raise InvalidRequest(
                f"No tool output found for the call of {recipient} in 'previous_input_messages'. Send its output.",
                param="input",
            )

    def _hear(self, message: StoredMessage) -> None:
        """A tool that names no call answers the first one of it, and anybody but a tool all calls."""
        if message.role != "tool":
            self._unnamed.clear()
        elif message.call_id is None:
            self.claim(message.name)

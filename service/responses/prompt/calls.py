"""The calls of a conversation: which tool each call id stands for, and which still wait for an output.

An output names its call by id alone, which may be anywhere before it. Calls without an id are claimed in their order
(harmony/calls.py), by answers of the tool or by outputs whose ids nobody knows.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from service.api.items import ActionOutputItem, FunctionCallOutputItem, InputItem, ToolSearchOutputItem
from service.api.tools.callee import FUNCTIONS, Callee
from service.errors import InvalidRequest, invalid_value
from service.harmony.calls import UnnamedCalls
from service.responses.output.rules import Rules
from store.turn import StoredMessage

OUTPUTS = (FunctionCallOutputItem, ActionOutputItem, ToolSearchOutputItem)
"""The items that answer a call by its id."""


class Calls:
    """The calls so far, by call id: their recipients, and which still wait."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._recipients: dict[str, str] = {}
        self._made: Counter[str] = Counter()
        self._count = 0
        self._ranks: dict[str, int] = {}
        self._outputs: Counter[str] = Counter()
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._cut: dict[str, StoredMessage] = {}
        self.unnamed = UnnamedCalls()

    def take_over(self, chain: Iterable[StoredMessage], cut_calls: Iterable[StoredMessage] = ()) -> None:
        """Take over the calls of a chain. A call waits until its own output, or until anybody spoke since, or the model
        went on behind another one's output: an answer that isn't there was erased. A cut call that was answered is
        among the others.
        """
        answered = False
        for message in chain:
            if message.role == "tool" and message.call_id in self._waiting:
                del self._waiting[message.call_id]
                answered = True
                continue
            if message.role != "assistant" or answered:
                self._waiting.clear()
                answered = False
            if message.role == "assistant" and message.recipient is not None and message.call_id is not None:
                self.note_call(message.call_id, self.tool_of(message.recipient))
        for note in cut_calls:
            if note.call_id not in self._recipients:
                self.note_cut(note)

    def tool_of(self, recipient: str) -> str:
        """The name under which the tool answers that was called so; the model leaves `functions.` out at times."""
        meant = self._rules.callee_of(recipient, None)
        if isinstance(meant, Callee):
            return meant.recipient
        alone = "." in recipient or recipient in ("python", "browser", "container")
        return recipient if alone else f"{FUNCTIONS}.{recipient}"

    def note_call(self, call_id: str, recipient: str) -> None:
        self.record(call_id, recipient)
        self._waiting[call_id] = None

    def record(self, call_id: str, recipient: str) -> None:
        """A call was made that needs no output, though it may have one."""
        self._recipients[call_id] = recipient
        self._made[call_id] += 1
        self._count += 1
        self._ranks[call_id] = self._count

    def note_cut(self, note: StoredMessage) -> None:
        if note.call_id is not None and note.recipient is not None:
            self.record(note.call_id, note.recipient)
            self._cut[note.call_id] = note

    def take_cut(self, call_id: str) -> StoredMessage | None:
        """The note of a call that was cut short, of which no prompt has anything yet; it is let go of."""
        return self._cut.pop(call_id, None)

    def count_output(self, call_id: str, where: str) -> None:
        """An output was sent. Raises InvalidRequest for more than there are calls; ids are used again at times."""
        self._outputs[call_id] += 1
        if self._outputs[call_id] > max(self._made[call_id], 1):
            raise invalid_value(f"{where}.call_id", call_id, "This call has its output already; send it once.")

    def together(self, items: Sequence[InputItem], place: int) -> list[int]:
        """The place, or those of all outputs that stand there side by side, in the order of their calls: nothing else
        tells the model which output is whose.
        """
        ranks: list[tuple[int, int]] = []
        for at in range(place, len(items)):
            item = items[at]
            rank = self._ranks.get(item.call_id or "") if isinstance(item, OUTPUTS) else None
            if rank is None:
                break
            ranks.append((rank, at))
        return [at for _, at in sorted(ranks)] or [place]

    def interrupt(self) -> None:
        """Somebody spoke who is neither the model nor a tool: nothing waits any more."""
        self._waiting.clear()
        self.unnamed.clear()

    def answer(self, call_id: str) -> str | None:
        """The tool that answers the call, which waits no more; None for an id that nobody knows."""
        self._waiting.pop(call_id, None)
        return self._recipients.get(call_id)

    def oldest(self) -> str | None:
        """The tool of the first call that waits, and waits no more; those without an id come first."""
        claimed = self.unnamed.claim()
        if claimed is not None:
            return claimed[1]
        return self._recipients[self._waiting.popitem(last=False)[0]] if self._waiting else None

    def refuse_open(self) -> None:
        """Raise InvalidRequest if a call still waits."""
        for call_id in self._waiting:
            raise InvalidRequest(
                f"No tool output found for function call {call_id}. Send its output, which names this id.",
                param="input",
            )
        for recipient in self.unnamed.recipients:
            raise InvalidRequest(
                f"No tool output found for the call of {recipient} in 'previous_input_messages'. Send its output.",
                param="input",
            )

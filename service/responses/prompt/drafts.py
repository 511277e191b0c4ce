"""Input items and a client's own history as Harmony messages: each is rendered once, and kept in the chain as it is.

Which item becomes which message is a table in docs/harmony.md. Each item is drafted by a
plain function; the loop over the items renders the drafts, and yields between pieces of work.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, Unpack

import msgspec

from service.api import ids
from service.api import items as listed
from service.api.approving import NO_APPROVALS, Approvals, Approving, Pending
from service.api.content import ReadPictures, shown_in
from service.api.history import Earlier, unknown_call
from service.api.items import InputItem
from service.api.outcome import Answers, ApprovalOutcome, ApprovalRequest
from service.api.replay import LeftOut, is_the_models
from service.api.tools.callee import FUNCTIONS, PLAIN
from service.api.tools.client import recipient_of
from service.errors import InvalidRequest, brief
from service.harmony import render, tokens
from service.harmony.calls import cut_call
from service.harmony.header import CHANNELS, JSON_TYPE
from service.harmony.pictures import pictures_note
from service.harmony.render import HeaderParts, developer_text, message_steps
from service.pictures import REFERENCE
from service.responses.output import sealed
from service.responses.output.compaction import compaction_messages
from service.responses.output.rules import Rules
from service.responses.prompt.calls import OUTPUTS, Calls
from store.turn import LISTED_PICTURES, PICTURES, StoredMessage

LOADED = "loaded_tools"
"""The role of a note of tools that a search found."""

COMPACTIONS_TRIED = 16
"""The newest compactions of an input among which the last that opens is looked for."""

NO_PICTURES = ReadPictures()

_ABOUT_APPROVALS = (listed.McpApprovalRequestItem, listed.McpApprovalResponseItem)

BYTES_A_STEP = 65_536
"""How many bytes of new tokens are made before others get a turn."""

BYTES_AN_ITEM = 512
"""How many bytes take as long as the reading of an item without any."""


Drafts = list[StoredMessage | Generator[None, None, StoredMessage]]
"""The messages of an item: known ones, and steps in which the others' texts are encoded."""

ClientCall = listed.FunctionCallItem | listed.CustomToolCallItem | listed.ActionCallItem | listed.ToolSearchCallItem
"""A call of a tool of the client's."""


class _Error(msgspec.Struct):
    message: str | None = None


_ERROR = msgspec.json.Decoder(_Error | str | None)


def _listed_pictures(item: InputItem) -> Drafts:
    """The note of the pictures of an item that no prompt shows, if it has any."""
    urls = [url for url in item.images if url.startswith(REFERENCE)]
    return [StoredMessage(LISTED_PICTURES, b"", name=" ".join(urls))] if urls else []


class Conversion:
    """Makes the new messages of a request, of at most `room` tokens.

    `rules` know the tools by name, `opener` opens seals, `chain` is the one that the `items` continue.
    """

    def __init__(
        self,
        rules: Rules,
        opener: sealed.Opener,
        chain: Sequence[StoredMessage],
        items: Sequence[InputItem],
        room: int,
        waiting: Sequence[ApprovalRequest] = (),
        begins_at: int = 0,
        pictures: ReadPictures = NO_PICTURES,
        cut_calls: Sequence[StoredMessage] = (),
        left_out: LeftOut | None = None,
        approvals: Approvals = NO_APPROVALS,
    ) -> None:
        """`waiting` are the requests for approval that wait in the conversation, to which `approvals` read the answers,
        and `cut_calls` the notes of its calls that were cut short. The client sent the first item at `begins_at`,
        `pictures` are those of the items, and an item of a history that can't be shown is `left_out`, or refused for
        None. Raises InvalidRequest for answers to no request.
        """
        self._begins_at, self._pictures = begins_at, pictures
        self._left_out = left_out
        self._turned = 0 if left_out is None else _last_turn_in(items)
        if stale := _stale_approvals(items, self._turned):
            for place in stale:
                self._leave_out(items[place])
            items = [listed.LeftOutItem() if place in stale else item for place, item in enumerate(items)]
        self._rules = rules
        self._items = items
        asks = waiting or any(isinstance(item, _ABOUT_APPROVALS) for item in items)
        self._approving = approvals.read(rules.hosted_callee, waiting, items) if asks else Approving()
        self._dropped: set[int] = set()
        """The places of calls that are left out."""
        self._split = 0
        """How many of the messages stand before the first answer to a request for approval."""
        self.answers: Answers | None = None
        """The approvals that the response handles before anything is sampled, once there are messages."""
        self._opener = opener
        self._room = room
        self._unbroken = 0
        self._calls = Calls(rules)
        self._calls.take_over(chain, cut_calls)
        self.messages: list[StoredMessage] = []

    def messages_of(
        self, earlier: Sequence[Earlier] = (), *, answered: bool = True
    ) -> Generator[None, None, list[StoredMessage]]:
        """The messages of a client's own history, then of the items. Items before a compaction make none but notes.

        Raises TooManyTokens, RunTooLong, and InvalidRequest: for outputs without a call, for what can't be opened, and
        where all has to be `answered` for calls without an output.
        """
        items = self._items
        for pending in self._approving.at_once:
            yield from self._add(self._approval_answer(pending), _number_of_answer(pending))
        self._split = len(self.messages)
        for message in earlier:
            yield from self._add(self._earlier(message))
        compactions = [place for place, item in enumerate(items) if isinstance(item, listed.CompactionItem)]
        newest = reversed(compactions[-COMPACTIONS_TRIED:])
        first = next((place for place in newest if self._may_open(items[place])), 0)
        self._drop_unanswered(first)
        for at, item in enumerate(items[:first]):
            self._record(item)
            yield from self._add(_listed_pictures(item), ids.input_number(at))
            if isinstance(item, listed.ConfigurationUpdateItem):
                yield from self._add([_note(item)], ids.input_number(at))
            elif isinstance(item, listed.ToolSearchOutputItem):
                yield from self._add(_note_of_loaded(item), ids.input_number(at))
        place = first
        while place < len(items):
            together = self._calls.together(items, place)
            for at in together:
                yield from self._add(self._draft_of(items[at], at), ids.input_number(at))
                if (asked := self._approving.asked.get(at)) and not self._approving.is_answered(asked):
                    yield from self._add(self._approval_answer(asked), _number_of_answer(asked))
                if self._approving.answered and self._begins_with(items[at], at):
                    self._split = len(self.messages)
            place += len(together)
        if answered:
            self._calls.refuse_open()
        self._answer_approvals()
        return self.messages

    def _begins_with(self, item: InputItem, place: int) -> bool:
        """Whether the item shows a call with which the response begins; behind a compaction, all calls before it."""
        if isinstance(item, listed.CompactionItem):
            return any(each.place is None or each.place < place for each in self._approving.answered)
        asked = self._approving.asked.get(place)
        return asked is not None and self._approving.is_answered(asked)

    def _answer_approvals(self) -> None:
        """Part the messages behind the answers to requests for approval from those before them."""
        approving = self._approving
        self.messages += [request.answer_note for request in approving.passed]
        given: list[ApprovalOutcome] = []
        for pending in approving.answered:
            recipient = self._asked_of(pending.request)
            callee = self._rules.hosted_callee(pending.request.server, pending.request.tool)
            if pending.approved and callee is not None and callee.hosted is not None:
                request = msgspec.structs.replace(pending.request, at=callee.hosted.at)
                given.append(ApprovalOutcome(request, callee.recipient, tool=callee.hosted))
            elif recipient is not None:
                channel = _channel_of(pending)
                told = render.message(pending.told, "tool", name=recipient, channel=channel, recipient="assistant")
                told = msgspec.structs.replace(told, item=_number_of_answer(pending))
                given.append(ApprovalOutcome(pending.request, recipient, told=told))
        if given:
            last = self.messages[self._split :]
            behind = [message for message in last if message.tokens or message.role == PICTURES]
            notes = [message for message in last if not message.tokens and message.role != PICTURES]
            self.messages = [*self.messages[: self._split], *notes]
            self.answers = Answers(tuple(given), tuple(behind))

    def _add(self, drafts: Drafts, number: int | None = None) -> Generator[None, None, None]:
        """Add the messages of one item, by its number, made of the drafts."""
        size = 0
        for draft in drafts:
            message = draft if isinstance(draft, StoredMessage) else (yield from draft)
            self.messages.append(msgspec.structs.replace(message, item=number))
            size += len(message.tokens)
        self._room -= size // tokens.BYTES_A_TOKEN
        self._unbroken += size + BYTES_AN_ITEM
        if self._unbroken > BYTES_A_STEP:
            self._unbroken = 0
            yield

    def _message_of(self, text: str, role: str, call_id: str | None = None, **header: Unpack[HeaderParts]) -> Drafts:
        return [message_steps(text, role, limit=self._room, call_id=call_id, **header)]

    def _call_draft(
        self,
        recipient: str,
        content: str,
        kind: str | None = JSON_TYPE,
        channel: str = "commentary",
        id: str | None = None,
    ) -> Drafts:
        """A call, whose content has this content type."""
        return self._message_of(content, "assistant", id, channel=channel, recipient=recipient, content_type=kind)

    def _answer(self, text: str, name: str, channel: str = "commentary", call_id: str | None = None) -> Drafts:
        return self._message_of(text, "tool", call_id, name=name, channel=channel, recipient="assistant")

    # --- a client's own history ---

    def _earlier(self, message: Earlier) -> Drafts:
        name = None
        if message.role == "tool":
            name = self._answering(message)
        elif message.role != "assistant":
            self._calls.interrupt()
        elif message.recipient is not None:
            tool = self._calls.tool_of(message.recipient)
            if message.call_id is None:
                self._calls.unnamed.add(len(self.messages), tool)
            else:
                self._calls.note_call(message.call_id, tool)
        return self._message_of(
            message.text,
            message.role,
            message.call_id,
            name=name,
            channel=message.channel,
            recipient=message.recipient,
            content_type=message.content_type,
        )

    def _answering(self, message: Earlier) -> str:
        """The name of a tool that answers: that of its call, found by the id or the name, or else by the order."""
        name = None if message.name is None else self._calls.tool_of(message.name)
        if message.call_id is not None:
            name = self._calls.answer(message.call_id) or name
        elif name is not None:
            self._calls.unnamed.claim(name)
        else:
            name = self._calls.oldest()
        if name is None:
            raise unknown_call(message)
        return name

    # --- items ---

    def _record(self, item: InputItem) -> None:
        """An item before a compaction: what comes after may still answer its call."""
        if isinstance(item, listed.FunctionCallItem | listed.CustomToolCallItem):
            self._calls.record(item.call_id, self._recipient(item))
        elif isinstance(item, listed.ActionCallItem | listed.ToolSearchCallItem) and item.call_id is not None:
            self._calls.record(item.call_id, recipient_of(item.tool))

    def _drop_unanswered(self, first: int) -> None:
        """Leave out the calls from item `first` on that have no output, and behind which the model went on."""
        answered: Counter[str | None] = Counter()
        for place in range(len(self._items) - 1, first - 1, -1):
            item = self._items[place]
            if isinstance(item, OUTPUTS):
                answered[item.call_id] += 1
            elif isinstance(item, ClientCall) and item.call_id is not None:
                if answered[item.call_id]:
                    answered[item.call_id] -= 1
                elif item.status != "incomplete" and place < self._turned:
                    self._dropped.add(place)

    def _draft_of(self, item: InputItem, place: int) -> Drafts:
        """The drafts of an item; none for one of a history that can't be shown. Raises InvalidRequest."""
        try:
            if place not in self._dropped:
                return self._item(item, place)
        except InvalidRequest:
            if place >= self._turned or not isinstance(item, OUTPUTS):
                raise
        self._leave_out(item)
        return []

    def _leave_out(self, item: InputItem) -> None:
        assert self._left_out is not None
        self._left_out.add(item.kind)

    def _may_open(self, item: InputItem) -> bool:
        """Whether an item is a compaction that stands for all before it, or is refused."""
        if not isinstance(item, listed.CompactionItem):
            return False
        try:
            sealed.open_compaction(item.encrypted_content, self._opener)
        except sealed.Unsealable as error:
            return not self._may_leave_out(item, error)
        return True

    def _may_leave_out(self, item: listed.CompactionItem, error: sealed.Unsealable) -> bool:
        """Whether a compaction that can't be opened is left out; else it is refused."""
        foreign = isinstance(error, sealed.ForeignSeal) or isinstance(item, listed.CompactionSummaryItem)
        return foreign and self._left_out is not None

    def _item(self, item: InputItem, place: int) -> Drafts:
        where = f"input[{self._begins_at + place}]"
        match item:
            case listed.MessageItem():
                return self._message(item)
            case listed.ReasoningItem():
                return self._reasoning(item, where)
            case listed.FunctionCallItem():
                return self._call(item, self._recipient(item), item.arguments, JSON_TYPE)
            case listed.CustomToolCallItem():
                return self._custom_call(item)
            case listed.ActionCallItem() | listed.ToolSearchCallItem():
                return self._action_call(item)
            case listed.FunctionCallOutputItem():
                return self._with_note(self._output(item, item.call_id, where), item.output)
            case listed.ActionOutputItem():
                return self._output(item, item.call_id, where)
            case listed.ToolSearchOutputItem():
                return self._search_answer(item, where)
            case listed.CompactionItem():
                return self._compaction(item, place, where)
            case listed.AgentMessageItem():
                return self._message_of(item.text, "user")
            case listed.ConfigurationUpdateItem():
                return [_note(item)]
            case listed.CodeInterpreterCallItem():
                return self._code(item)
            case listed.McpCallItem():
                return self._mcp(item)
            case listed.McpApprovalRequestItem() if place in self._approving.asked:
                return [*self._call_of(self._approving.asked[place])]
            case listed.ForeignItem():
                return self._foreign(item)
            case _:
                return []

    def _message(self, item: listed.MessageItem) -> Drafts:
        """A user's words as they are, an assistant's on its channel, and the rest as a developer's instructions.

        gpt-oss was trained with one system message, which is ours; so a system item is a developer's word.
        """
        if item.role == "user":
            return self._with_note(self._message_of(item.text, "user"), item.content)
        if item.role == "assistant":
            channel = "commentary" if item.phase == "commentary" else "final"
            return self._message_of(item.text, "assistant", channel=channel)
        return [*self._message_of(developer_text(item.text), "developer"), *_listed_pictures(item)]

    def _with_note(self, drafts: Drafts, content: str | list[dict[str, Any]]) -> Drafts:
        """The drafts, and behind them the note of the pictures in the content, if it has any."""
        shown = [] if isinstance(content, str) else shown_in(content, self._pictures)
        return [*drafts, pictures_note(shown)] if shown else drafts

    def _reasoning(self, item: listed.ReasoningItem, where: str) -> Drafts:
        """The drafts of a reasoning. A sealed message is the very one that was sampled, so it precedes plain text."""
        text = item.text if item.content else None
        if isinstance(item.encrypted_content, str) and item.encrypted_content:
            try:
                opened = sealed.open_reasoning(item.encrypted_content, self._opener)
            except sealed.Unsealable as error:
                if self._left_out is None:
                    raise _unsealable(where, item.encrypted_content, error) from None
                text = text or "\n".join(part["text"] for part in item.summary) or None
                if text is None:
                    self._leave_out(item)
            else:
                if isinstance(opened, StoredMessage):
                    return self._fitting([opened])
                text = opened
        return [] if text is None else self._message_of(text, "assistant", channel="analysis")

    def _compaction(self, item: listed.CompactionItem, place: int, where: str) -> Drafts:
        """The drafts of a summary; behind it, calls that stood before it and were approved only now."""
        calls = [each for each in self._approving.answered if each.place is None or each.place < place]
        try:
            opened = sealed.open_compaction(item.encrypted_content, self._opener)
        except sealed.Unsealable as error:
            if self._may_leave_out(item, error):
                self._leave_out(item)
                return []
            raise _unsealable(where, item.encrypted_content, error) from None
        short = self._fitting(compaction_messages(opened, limit=self._room))
        return [*short, *(draft for each in calls for draft in self._call_of(each))]

    def _fitting(self, messages: Sequence[StoredMessage]) -> Drafts:
        if sum(len(message.tokens) for message in messages) > self._room * tokens.BYTES_A_TOKEN:
            raise tokens.TooManyTokens
        return [*messages]

    def _recipient(self, item: listed.FunctionCallItem | listed.CustomToolCallItem) -> str:
        return f"{item.namespace or FUNCTIONS}.{item.name}"

    def _call(self, item: ClientCall, recipient: str, content: str, content_type: str | None) -> Drafts:
        """A call; of one that was cut short the note, as a history with an open call confuses the model."""
        call_id = item.call_id or ""
        if item.status == "incomplete":
            note = cut_call(call_id, recipient, content, content_type)
            self._calls.note_cut(note)
            return [note]
        claimed = self._calls.unnamed.claim(recipient)
        self._calls.note_call(call_id, recipient)
        if claimed is not None:
            self._name(claimed[0], call_id)
            return []
        return self._call_draft(recipient, content, content_type, id=call_id)

    def _custom_call(self, item: listed.CustomToolCallItem) -> Drafts:
        """In the form in which the tool is declared; one that isn't, as text in JSON."""
        recipient = self._recipient(item)
        callee = self._rules.by_recipient.get(recipient)
        if callee is not None and callee.kind == "custom" and not callee.wrapped:
            return self._call(item, recipient, item.input, None)
        content = msgspec.json.encode({"input": item.input}).decode()
        return self._call(item, recipient, content, JSON_TYPE)

    def _action_call(self, item: listed.ActionCallItem | listed.ToolSearchCallItem) -> Drafts:
        if item.call_id is None or (isinstance(item, listed.ToolSearchCallItem) and not item.is_shown):
            return []
        return self._call(item, recipient_of(item.tool), item.content, None if item.tool in PLAIN else JSON_TYPE)

    def _search_answer(self, item: listed.ToolSearchOutputItem, where: str) -> Drafts:
        """The answer to a search, and the note from which later requests know what it found."""
        if item.call_id is None or item.execution == "server":
            return _note_of_loaded(item)
        return [*self._output(item, item.call_id, where), *_note_of_loaded(item)]

    def _output(
        self,
        item: listed.FunctionCallOutputItem | listed.ActionOutputItem | listed.ToolSearchOutputItem,
        call_id: str,
        where: str,
    ) -> Drafts:
        self._calls.count_output(call_id, where)
        name = self._calls.answer(call_id)
        if name is None and (claimed := self._calls.unnamed.claim()) is not None:
            place, name = claimed
            self._name(place, call_id)
            self._calls.record(call_id, name)
        if name is None:
            raise InvalidRequest(
                f"No tool call found for {item.kind.replace('_', ' ')} with call_id {call_id}. It stands at {where}. "
                "Send the call, too, or continue from the response that made it.",
                param="input",
            )
        cut = self._calls.take_cut(call_id)
        call = [] if cut is None else self._call_draft(name, cut.name or "", cut.content_type, id=call_id)
        return [*call, *self._answer(item.text, name, call_id=call_id)]

    def _name(self, place: int, call_id: str) -> None:
        """Give a call of the client's own history the id by which it is known after all."""
        self.messages[place] = msgspec.structs.replace(self.messages[place], call_id=call_id)

    # --- tools that ran elsewhere: a call with what came of it; without that, nothing ---

    def _code(self, item: listed.CodeInterpreterCallItem) -> Drafts:
        if item.code is None or item.outputs is None:
            return []
        logs = "".join(output.get("logs") or "" for output in item.outputs)
        call = self._call_draft("python", item.code, None, "analysis")
        return [*call, *self._answer(logs, "python", "analysis")]

    def _mcp(self, item: listed.McpCallItem) -> Drafts:
        callee = self._rules.hosted_callee(item.server_label, item.name)
        name = f"{item.server_label}.{item.name}" if callee is None else callee.recipient
        text = item.output if item.output is not None else _error_text(item.error)
        if text is None or not listed.CALL_NAME.fullmatch(name):
            return []
        return [*self._call_draft(name, item.arguments), *self._answer(text, name)]

    # --- calls that somebody has to approve: with the text for the model, if that is known by now ---

    def _asked_of(self, request: ApprovalRequest) -> str | None:
        """The recipient of the call in Harmony; None for a name that a recipient can't have."""
        callee = self._rules.hosted_callee(request.server, request.tool)
        name = f"{request.server}.{request.tool}" if callee is None else callee.recipient
        return name if listed.CALL_NAME.fullmatch(name) else None

    def _call_of(self, pending: Pending) -> Drafts:
        recipient = self._asked_of(pending.request)
        return [] if recipient is None else self._call_draft(recipient, pending.request.arguments)

    def _approval_answer(self, pending: Pending) -> Drafts:
        recipient = self._asked_of(pending.request)
        return [] if recipient is None else self._answer(pending.told, recipient, _channel_of(pending))

    def _foreign(self, item: listed.ForeignItem) -> Drafts:
        name, asked, told = item.foreign.name, item.asked, item.told
        call = [] if asked is None else self._call_draft(name, asked)
        return call if told is None else [*call, *self._answer(told, name)]


def _last_turn_in(items: Sequence[InputItem]) -> int:
    """Where the last items begin that the model has made one after another, or its last words where these come later:
    it went on behind all before them.
    """
    roles = [item.role if isinstance(item, listed.MessageItem | listed.LeftOutItem) else "" for item in items]
    made = [
        is_the_models(item.sent if isinstance(item, listed.LeftOutItem) else item.kind, role)
        for item, role in zip(items, roles, strict=True)
    ]
    place = len(made)
    while place and not made[place - 1]:
        place -= 1
    while place and made[place - 1]:
        place -= 1
    return max(place, *(at for at, role in enumerate(roles) if role == "assistant"), 0)


def _stale_approvals(items: Sequence[InputItem], turned: int) -> set[int]:
    """The places of the approvals before `turned` of which nothing came: their calls were never made, and will not be
    made now that the model went on.
    """
    made = {item.approval_request_id for item in items if isinstance(item, listed.McpCallItem)}
    asked = {item.id: place for place, item in enumerate(items) if isinstance(item, listed.McpApprovalRequestItem)}
    stale, answered = set[int](), set[str]()
    for place, item in enumerate(items[:turned]):
        if not isinstance(item, listed.McpApprovalResponseItem) or (id := item.approval_request_id) in made:
            continue
        if id in answered or id not in asked:
            stale.add(place)
        elif item.approve:
            stale |= {place, asked[id]}
        answered.add(id)
    return stale


def _note(item: listed.ConfigurationUpdateItem) -> StoredMessage:
    """The note of an update, for later responses of the conversation."""
    return StoredMessage(listed.CONFIGURATION, b"", name=listed.configuration_note(item))


def _number_of_answer(pending: Pending) -> int | None:
    """The number of the item that says why a call isn't made; of the request where none does, if that is an item."""
    place = pending.place if pending.answered_at is None else pending.answered_at
    return None if place is None else ids.input_number(place)


def _channel_of(pending: Pending) -> str:
    channel = pending.request.channel
    return channel if channel in CHANNELS else "commentary"


def _note_of_loaded(item: listed.ToolSearchOutputItem) -> Drafts:
    """The note of the tools that were loaded, if any, for requests that continue this one."""
    return [StoredMessage(LOADED, b"", name=msgspec.json.encode(item.tools).decode())] if item.tools else []


def _error_text(raw: msgspec.Raw | msgspec.UnsetType) -> str | None:
    """The text of a tool's error; None where there is none."""
    if isinstance(raw, msgspec.UnsetType):
        return None
    try:
        error = _ERROR.decode(raw)
    except msgspec.DecodeError:
        return None
    if isinstance(error, _Error):
        return error.message if error.message is not None else bytes(raw).decode("utf-8", "replace")
    return error


def _unsealable(where: str, text: str, error: sealed.Unsealable) -> InvalidRequest:
    param = f"{where}.encrypted_content"
    return InvalidRequest(
        f"Invalid value for '{param}': {brief(text)}. It can't be opened: {error}.",
        code="invalid_encrypted_content",
        param=param,
    )

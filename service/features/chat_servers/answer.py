"""The events of Chat Completions to the chunks of the engine's port. Pure.

    reasoning, content, calls, as the server read them ─▶ Writing ─▶ text with marks of our own

Ids only count here. Where a server gives those of each event, each counts; else an event with text is one token, and
tokens that only the usage knows come with the last chunk. A chunk begins where a part of the answer does.
"""

from collections.abc import Iterator, Sequence

import msgspec

from service.engine.port import LEAST_LOGPROB, UNTOLD, Chunk, EngineError, EngineRefused, Finish, TokenLogprobs
from service.engine.servers.answer import Answer
from service.engine.servers.kind import UNREADABLE, Count, RefusedAlone, ServerEvent, read_event, refusal, said_status
from service.features.models.markup.by_server import ENDED, WORD, ServerWriting, opens
from service.features.models.markup.calls import ObjectScan, legal_name

TOKEN_BYTES = 512
"""The most that one token may stand for: none in any vocabulary known here has as much."""

MOST_CALLS = 256
"""How many calls may be told in turns."""

FORBIDDEN = 403
NOT_KNOWN = (404, 405)

NOTHING = msgspec.Raw(b"null")

REASONS = {"tool_calls": "stop", "function_call": "stop"}
"""Why a turn ended that called something."""


class _TopLogprob(msgspec.Struct):
    """A token that might have been sampled."""

    token: str
    logprob: float


class _TokenLogprob(_TopLogprob):
    """The sampled token."""

    top_logprobs: list[_TopLogprob] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_TokenLogprob] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    """A piece of a call."""

    index: int | None = None
    id: str | None = None
    function: _Function | None = None

    @property
    def name(self) -> str:
        """The name of the function to call, if this piece has it."""
        return (self.function and self.function.name) or ""

    @property
    def arguments(self) -> str:
        """This piece's part of the arguments."""
        return (self.function and self.function.arguments) or ""


class _Delta(msgspec.Struct):
    """The next piece of a message. Reasoning has either of two names. A refusal counts as an answer: no model here was
    trained to tell it apart.
    """

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallDelta | None] | None = None

    @property
    def answer(self) -> str:
        """This piece's part of the answer."""
        return (self.content or "") + (self.refusal or "")


class _Choice(msgspec.Struct):
    """The answer's next piece. Only vLLM gives `token_ids`, of which the number counts alone."""

    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None

    @property
    def likely(self) -> list[_TokenLogprob]:
        """The log probabilities of its tokens."""
        return (self.logprobs and self.logprobs.content) or []


class _Usage(msgspec.Struct):
    """The usage that a stream reports; a value that can't be a number of tokens counts as missing."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class _Event(ServerEvent):
    """One event of a stream."""

    choices: list[_Choice | None] | None = None
    usage: msgspec.Raw = NOTHING
    prompt_token_ids: list[int] | None = None
    """Only vLLM gives them, with the first event."""


_EVENT = msgspec.json.Decoder(_Event)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNT = msgspec.json.Decoder(Count)


class ChatAnswer(Answer):
    """One stream. `max_tokens` is the most that may come; where more does, the answer is `over`. `tells_cached` is
    whether the number of cached tokens may be reported.
    """

    ends_at_done = True

    def __init__(self, name: str, *, max_tokens: int, logprobs: int | None, tells_cached: bool = True) -> None:
        super().__init__(logprobs=logprobs)
        self.name = name
        self._max_tokens = max_tokens
        self._tells_cached = tells_cached
        self._writing = ServerWriting()
        self._ready: list[Chunk] = []
        self._calls: list[_Open] = []
        """The calls that may go on: the first one's pieces are written at once."""
        self._whole: set[int | None] = set()
        """The numbers of the calls before them."""
        self._given = 0
        """How many tokens the chunks so far have."""
        self._spare = 0
        """How many tokens came without text, or were counted too many."""
        self._guesses = True
        """Whether we count the tokens ourselves, so that it is unknown by now whether an end comes with them."""
        self._size = 0
        self._usage = _Usage()
        self._prompt_tokens: int | None = None
        """How many tokens the prompt has, where that is told at the beginning, and until it is passed on."""

    def _take_chunks(self) -> Sequence[Chunk]:
        """The chunks added since the last call, one for each part of the answer."""
        self._flush()
        ready, self._ready = self._ready, []
        return ready

    def end(self) -> Chunk:
        """The last chunk: what came with the finish, and what the stream told of itself. Raises as Answer does."""
        last = super().end()
        stops = last.finish is Finish.STOP
        text = "".join(self._text) + (self._writing.ends() if stops else "")
        counted = self._usage.completion_tokens
        missing = self._spare if counted is None else counted - self._given
        count = max(min(missing, self._max_tokens - self._given), int(stops or bool(text)), 0)
        ids = [WORD] * (count - stops) + [ENDED] * stops
        known = None if self._alternatives is None else _pad(self._logprobs, count)
        prompt = self._prompt_tokens if self._usage.prompt_tokens is None else self._usage.prompt_tokens
        cached = self._usage.cached_tokens if self._tells_cached else None
        if cached is not None and prompt is not None:
            cached = min(cached, prompt)
        return Chunk(ids, last.finish, cached, known, text, prompt)

    def _take(self, payload: bytes) -> None:
        event = read_event(self.name, _EVENT, payload, refusal_of)
        if event.prompt_token_ids:
            self._prompt_tokens = len(event.prompt_token_ids)
        if event.usage != NOTHING:
            self._usage = _read_usage(event.usage)
        for choice in () if self.finished else event.choices or ():
            if choice is None:
                continue
            if choice.index:
                raise EngineError(f"the {self.name} server gave several answers")
            delta = choice.delta or _Delta()
            pieces = [piece for piece in self._write(delta) if piece]
            said = choice.likely if self._alternatives is not None else []
            self._guesses = choice.token_ids is None
            ids = int(bool(pieces or delta.tool_calls)) if choice.token_ids is None else len(choice.token_ids)
            self._spare += max(ids, len(said))
            if choice.finish_reason:  # what it brings comes with what is told behind it
                self._flush()
                self._text += pieces
                self._logprobs += map(self._likely, said)
                self._finish_as(REASONS.get(choice.finish_reason, choice.finish_reason))
                self._text.append(self._ended_calls() if self._finish is Finish.STOP else self._cut_calls())
            elif pieces:
                self._say(pieces, said)

    def _say(self, pieces: Sequence[str], said: Sequence[_TokenLogprob]) -> None:
        """Add what an event says. A chunk ends where it begins another part."""
        self._take_in(sum(len(piece) for piece in pieces))
        for place, piece in enumerate(pieces):
            if opens(piece) and (place == 0 or self._spare > 0):
                self._flush()
            count = max(self._spare - len(pieces) + place + 1, int(not self._tokens))
            known = self._given + len(self._tokens) + count
            if known > self._max_tokens:
                self._flush()
                self._finish_as("length")
                self.over, self._spare = True, self._max_tokens - self._given if self._text else 0
                return
            if known == self._max_tokens and self._guesses:  # the end may be one of them
                self._flush()
                self._text += pieces[place:]
                self._logprobs += map(self._likely, said)
                return
            self._text.append(piece)
            self._tokens += [WORD] * count
            self._spare -= count
            if place == len(pieces) - 1:
                self._logprobs += map(self._likely, said)

    def _take_in(self, size: int) -> None:
        """Counts text. Raises EngineError where there is more than the allowed tokens can have."""
        self._size += size
        if self._size > self._max_tokens * TOKEN_BYTES:
            raise EngineError(f"the {self.name} server sent more text than {self._max_tokens} tokens can have")

    def _flush(self) -> None:
        """Ends the chunk of the parts so far, if there are any."""
        if not self._tokens:
            return
        known = None if self._alternatives is None else _pad(self._logprobs, len(self._tokens))
        self._ready.append(Chunk(self._tokens, None, None, known, "".join(self._text), self._prompt_tokens))
        self._given += len(self._tokens)
        self._tokens, self._logprobs, self._text, self._prompt_tokens = [], [], [], None
        self.begun = True

    def _write(self, delta: _Delta) -> Iterator[str]:
        thought, content = delta.reasoning_content or delta.reasoning or "", delta.answer
        says = thought or (content and self._writing.answers_now(content))
        closing = self._ended_calls() if says else ""
        yield closing + self._writing.thinks(thought)
        yield self._writing.answers(content)
        for piece in delta.tool_calls or ():
            if piece is not None:
                yield self._write_call(piece)

    def _write_call(self, piece: _CallDelta) -> str:
        """Takes a piece of a call, perhaps its first. Pieces of other calls wait until the one before is whole."""
        call = next((each for each in reversed(self._calls) if not each.is_other(piece)), None)
        if call is None:
            if piece.index in self._whole and not piece.name and not piece.arguments.strip():
                return ""
            if len(self._calls) == MOST_CALLS:
                raise EngineError(f"the {self.name} server sent {MOST_CALLS} calls at once")
            call = _Open(piece)
            self._calls.append(call)
        if not call.name and piece.name:
            name = legal_name(piece.name)
            if name is None:
                raise EngineError(f"the {self.name} server sent an impossible name of a tool")
            call.name = name
        if call is not self._calls[0] or not call.name:
            self._take_in(len(piece.arguments))
        call.add(piece.arguments)
        written = ""
        while len(self._calls) > 1 and self._calls[0].name and self._calls[0].whole:
            written += self._end_call(self._calls.pop(0))
        return written + self._begin_call(self._calls[0])

    def _begin_call(self, call: "_Open") -> str:
        """The unwritten text of a call as far as it is known: nothing before its name."""
        if not call.name:
            return ""
        opening = "" if call.written else self._writing.calls(call.name)
        call.written = True
        return opening + self._writing.arguments(call.take())

    def _end_call(self, call: "_Open") -> str:
        """The rest of a call: one without arguments has an empty object of them. Raises EngineError where it has no
        name.
        """
        if not call.name:
            raise EngineError(f"the {self.name} server sent a call without a name")
        self._whole.add(call.index)
        return self._begin_call(call) + ("" if call.argued else self._writing.arguments("{}"))

    def _ended_calls(self) -> str:
        """The text that ends the open calls, where another part begins or the stream ends. Raises as `_end_call`."""
        calls, self._calls = self._calls, []
        return "".join(map(self._end_call, calls))

    def _cut_calls(self) -> str:
        """The text of calls that the server cut off: the last isn't ended."""
        calls = [each for each in self._calls if each.name]
        self._calls = []
        return "".join([*map(self._end_call, calls[:-1]), *map(self._begin_call, calls[-1:])])

    def _likely(self, said: _TokenLogprob) -> TokenLogprobs:
        top = (said.top_logprobs or ())[: self._alternatives]
        return TokenLogprobs(
            max(said.logprob, LEAST_LOGPROB),
            tuple((WORD, max(each.logprob, LEAST_LOGPROB)) for each in top),
            (said.token, *(each.token for each in top)),
        )


class _Open:
    """A call that is being told."""

    def __init__(self, first: _CallDelta) -> None:
        self.index = first.index
        self.id = first.id
        self.name = ""
        """The name of the function, empty until a piece names it."""
        self.written = self.argued = False
        """Whether it was begun to be written; whether it has arguments."""
        self._waiting: list[str] = []
        """Its arguments that were not written yet."""
        self.whole = False
        """Whether its arguments are an object that has ended, or nothing that shows where it ends."""
        self._scan = ObjectScan()

    def add(self, arguments: str) -> None:
        """Some more of its arguments."""
        self._waiting.append(arguments)
        text = arguments if self.argued else arguments.lstrip()
        if text and not self.argued:
            self.argued, self.whole = True, not text.startswith("{")
        self.whole = self.whole or (self.argued and self._scan.end(text) is not None)

    def take(self) -> str:
        """The text not written yet."""
        waiting, self._waiting = self._waiting, []
        return "".join(waiting)

    def is_other(self, piece: _CallDelta) -> bool:
        """Whether a piece is of another call than this one: some servers number them, some have only their ids, some
        have another id with every piece, and some tell only whole calls, without either.
        """
        if piece.index != self.index or (self.whole and piece.name and piece.arguments.strip()):
            return True
        begins = bool(piece.name) or not self.name
        return begins and bool(piece.id and self.id and piece.id != self.id)


def _pad(logprobs: Sequence[TokenLogprobs], count: int) -> list[TokenLogprobs]:
    """One for each of so many tokens."""
    return [*logprobs[:count], *[UNTOLD] * (count - len(logprobs))]


def _read_usage(told: msgspec.Raw) -> _Usage:
    """The usage, in whichever form a server reports it."""
    said = _members(told)
    cached = _members(said.get("prompt_tokens_details", NOTHING)).get("cached_tokens", NOTHING)
    prompt, sampled = (_count(said.get(name, NOTHING)) for name in ("prompt_tokens", "completion_tokens"))
    return _Usage(prompt, sampled, _count(cached))


def _members(told: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _OBJECT.decode(told)
    except UNREADABLE:
        return {}


def _count(told: msgspec.Raw) -> int | None:
    """A number of tokens; None for anything else."""
    try:
        return _COUNT.decode(told)
    except UNREADABLE:
        return None


def refusal_of(name: str, status: int, body: bytes) -> EngineError:
    """The error that an answer with an HTTP error status stands for, or an event. Status 403 may refuse one prompt
    alone, where a provider moderates prompts, and 404 or 405 one request alone. As an EngineUnavailable they would make
    all others wait for the server, too. Their messages aren't repeated, as they may name keys.
    """
    status, message = said_status(status, body)
    if status == FORBIDDEN:
        return EngineRefused(f"the {name} server forbids it (status {status})")
    if status in NOT_KNOWN:
        return RefusedAlone(f"the {name} server does not serve this request (status {status})")
    return refusal(name, status, message)

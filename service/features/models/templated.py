"""Models that don't speak Harmony: how their prompts are made, and how their words are read.

    TemplatedReading    a chat template makes every prompt anew, and the parser of the model's family reads the text
    ServedReading       the same, but the server makes the prompts, and tells how long they were

A prompt is made of the kept messages, by the template that the engine knows. Wherever it can, it begins with the ids
that the engine has read (known_ids.py).
"""

import asyncio
import secrets
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from service.api.request import CreateRequest
from service.api.tools.callee import Callee
from service.engine.port import (
    ChatRequest,
    Generation,
    MarkupTags,
    ModelCard,
    Speech,
    TokenLogprobs,
    Transcript,
    usual_options,
)
from service.features.models.known_ids import key_behind, known_of, make_prompt, note_of
from service.features.models.markup import tags
from service.features.models.markup.chat import Chat
from service.features.models.markup.families import FAMILIES, ReasoningPlace
from service.features.models.markup.messages import form_of, name_of, tool_names, tools_told
from service.features.models.markup.stream import MarkupPart
from service.features.models.markup.tags import Callable, TurnConstraint, response_format, tools_asked
from service.harmony.pictures import with_pictures
from service.harmony.render import VERBOSITY
from service.harmony.segments import Segment
from service.harmony.typescript import Function
from service.responses.output.logprobs import pieces_of
from service.responses.output.reading import (
    NO_PROMPT,
    NOTHING,
    KnownTurns,
    Piece,
    Reading,
    RenderPrompt,
    ResumePoint,
    Speaking,
    Stretch,
    Templated,
)
from service.responses.output.reading import (
    Read as ReadPieces,
)
from service.responses.output.rules import Rules, Spoken
from service.responses.prompt.build import Prompt
from service.responses.prompt.read import Read
from service.responses.readings import Readings
from store.codec import THREAD_FROM_BYTES
from store.turn import StoredMessage


class TemplatedChat(Chat, Speaking, frozen=True, dict=True):
    """How to ask for and read one response; queued jobs hold it."""

    decoded: ClassVar[bool] = True

    def reading(self, input_tokens: int) -> Reading:
        """See Speaking."""
        return (ServedReading if self.served else TemplatedReading)(self, input_tokens)

    def name_of(self, recipient: str) -> str:
        """See Speaking."""
        return name_of(recipient, self.names)


class Before(msgspec.Struct, frozen=True):
    """The model's context: the prompt of the `first` stretch or of a later one, where it is known here, and the tokens
    sampled behind it.
    """

    first: bool
    prompt: Templated | None
    sampled: "array[int]"


class TemplatedReading(Reading):
    """Of a model with a chat template and a markup of its own. Later prompts are known once they were `prompted`, and
    their ids only where that was.
    """

    asks_anew = False
    before_text = slice(-1)
    by_text = True

    def __init__(self, chat: Chat, input_tokens: int) -> None:
        super().__init__(input_tokens)
        self.chat = chat
        self.ends = chat.ends
        self.thinking = chat.thinking
        """Whether the last prompt ended inside of reasoning."""
        self.parser = chat.parser(thinking=chat.thinking)
        self._waits = False
        """Whether the present stretch's prompt is still to be made, anywhere."""
        self.before: Before | None = None
        """The model's context in the stretch before, if there was one."""
        self.prompt: Templated | None = None
        """The ids of a later stretch's prompt, where they are known."""
        self._prompting: Sequence[StoredMessage] = ()
        """The response's messages that stand in the present stretch's prompt."""
        self._anew = False
        self._thought = False
        """Whether there was reasoning in an earlier stretch."""

    @property
    def _unseen(self) -> bool:
        """Whether ids don't show that there was reasoning, so that nobody could tell where a template drops it."""
        return (self._thought or self.parser.thought) and not self.chat.shows_reasoning

    @property
    def unprompted(self) -> bool:
        """See Reading."""
        return self._waits or (self.before is not None and self.prompt is None)

    @property
    def transcript(self) -> Transcript:
        """The input from which the template makes the present stretch's prompt."""
        return self.chat.transcript(with_pictures(self._prompting), anew=self._anew)

    @property
    def shown(self) -> bytes:
        """See Reading."""
        return self.transcript.messages if self.chat.sees else b""

    def words(self, ids: Sequence[int], text: str) -> list[Segment]:
        """See Reading. Ids are taken with what they say."""
        self.tail.extend(ids)
        self.add(len(ids))
        return self.parser.feed(ids, text)

    def read(self, ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprobs] | None) -> Iterator[ReadPieces]:
        """See Reading."""
        for piece, said, known in pieces_of(ids, text, logprobs or ()):
            yield self.words(piece, said), known

    def end(self) -> list[Segment]:
        """See Reading."""
        return self.parser.end()

    def give_feedback(self, messages: Sequence[StoredMessage], *, counts: bool = True) -> None:
        """See Reading. The prompt is made of all these messages."""
        self.before = Before(self.before is None, self.prompt, self.tail)
        self.tail = array("I")
        self.prompt, self._waits, self._prompting = None, True, tuple(messages)
        self._all.append(Stretch(0, feedback=int(counts)))

    def begin_behind(self, messages: Sequence[StoredMessage], answers: int) -> None:
        """See Reading."""
        self._all.clear()
        self.give_feedback(messages, counts=False)

    def begin_anew(self, messages: Sequence[StoredMessage], prefix_tokens: int) -> None:
        """See Reading."""
        self._anew = True
        self.give_feedback(messages, counts=False)

    def next_generation(self, initial: Generation, rules: Rules, place: ResumePoint) -> Generation:
        """See Reading."""
        prompt = initial.prompt if self.prompt is None else self.prompt.ids
        tag = None if self.tail else turn_tag(rules, self.chat, thinking=self.thinking)
        sampling = initial.sampling
        if tag is not None:  # nothing can follow a form that is complete
            sampling = msgspec.structs.replace(sampling, structural_tag=tag, min_tokens=0)
        return msgspec.structs.replace(initial, prompt=self.behind(prompt), sampling=sampling)

    async def make_prompt(self, render: RenderPrompt, initial: Generation) -> Templated:
        """See Reading."""
        return await make_prompt(render, initial.model, self.chat, self.transcript, self._read_before(initial))

    def _read_before(self, initial: Generation) -> KnownTurns:
        """The turns sampled before the present stretch, where they are known here."""
        before, chat = self.before, self.chat
        prompt = None if before is None else _first(initial, chat) if before.first else before.prompt
        if before is None or prompt is None or self._unseen:
            return NOTHING
        heard = prompt.with_turn(array("I") if self.dropped else before.sampled)
        return KnownTurns(heard.sampled_turns(chat.key), chat.key)

    def take_prompt(self, prompt: Templated) -> Piece | None:
        """See Reading."""
        length, thinking = len(prompt.ids), self.chat.thinks(prompt.ids)
        return Piece(0, "", length, thinking) if self._take_prompt(length, thinking, prompt) else None

    def prompted(self, length: int, thinking: bool) -> None:
        """See Reading."""
        if self._waits:
            self._take_prompt(length, thinking, None)
        else:
            self._all[-1].shown = length - self.prefix_tokens

    def _take_prompt(self, length: int, thinking: bool, prompt: Templated | None) -> bool:
        """The present stretch's prompt was made, `prompt` where that was here; whether nobody had made it before."""
        self.prompt, self.prefix_tokens = prompt, length
        if not self._waits:
            return False
        self._waits, self.thinking, self.dropped = False, thinking, False
        self._thought = self._thought or self.parser.thought
        self.parser = self.chat.parser(thinking=thinking)
        self._note_prompt(length)
        return True

    def note(self, initial: Generation) -> list[StoredMessage]:
        """The note of the response's sampled tokens that its last prompt has or that stand behind it, where they are
        known here. Tokens that stand in no message are no part of it.
        """
        if not self.chat.noted or self.unprompted or self._unseen:
            return []
        first = _first(initial, self.chat)
        sampled = array("I") if self.dropped else self.tail
        return [note_of(initial.model, self.chat, first, self.prompt or first, sampled)]

    def _note_prompt(self, length: int) -> None:
        """The prompt of the present stretch had so many tokens, where one was before it also what was given since."""
        stretch = self._all[-1]
        stretch.prompt = length
        if len(self._all) == 1:
            return
        before = self._all[-2]
        given = max(1, length - before.prompt - before.sampled)
        if stretch.feedback:
            stretch.feedback = given
        else:
            stretch.told = given


class ServedReading(TemplatedReading):
    """Of a model whose server makes the prompts, and reads it by a parser of its own."""

    before_text = slice(0)  # a chunk begins where a segment opens
    at_once = True

    def next_generation(self, initial: Generation, rules: Rules, place: ResumePoint) -> Generation:
        """See Reading."""
        return msgspec.structs.replace(initial, asks=chat_request(rules, self.chat, self.transcript))

    async def make_prompt(self, render: RenderPrompt, initial: Generation) -> Templated:
        """See Reading. The server makes it."""
        return NO_PROMPT

    def prompted(self, length: int, thinking: bool) -> None:
        """See Reading: the server tells it behind the prompt."""
        if self._waits:
            self._take_prompt(length, thinking, NO_PROMPT)
        else:
            self._note_prompt(length)


def chat_request(rules: Rules, chat: Chat, transcript: Transcript) -> ChatRequest:
    """The request to a server that reads its model itself. Tools come before the format of the answer, to which servers
    would hold a call, too: where there are both, only the check at the end holds the answer to its format.
    """
    if transcript.tools == b"[]":
        return ChatRequest(transcript, form=b"" if rules.answer is None else response_format(rules.answer))
    able = {name_of(each.recipient, chat.names): each.content for each in rules.callable}
    if not able:
        return ChatRequest(transcript, "none")
    shown = msgspec.structs.replace(transcript, tools=tools_asked(transcript.tools, able))
    return ChatRequest(shown, "required" if rules.choice == "required" else "auto", rules.parallel > 1)


def turn_tag(rules: Rules, chat: Chat, *, thinking: bool) -> str | None:
    """The structural tag of a whole turn, from its beginning, of a model that doesn't speak Harmony; `thinking` is
    whether that is inside of reasoning. None where nothing is asked, or its calls can't be constrained.

    Where a turn goes on in its middle there is none: what holds then is the check at the end.
    """
    able = rules.callable
    asked = TurnConstraint(
        tools=tuple(Callable(name_of(each.recipient, chat.names), each.content) for each in able),
        required=rules.choice == "required" and bool(able),
        parallel=rules.parallel > 1,
        answer=rules.answer,
    )
    family = FAMILIES[chat.family]
    begun = MarkupPart.TEXT if family.reasoning is ReasoningPlace.NONE else MarkupPart.BEFORE
    part = MarkupPart.THINKING if thinking else begun
    try:
        return tags.tag(family.markup, tuple(chat.marks.items()), asked, part)
    except LookupError:
        return None


def _first(initial: Generation, chat: Chat) -> Templated:
    """The prompt at the response's beginning."""
    prompt = initial.prompt
    return Templated(prompt if isinstance(prompt, array) else array("I", prompt), chat.turns)


RANDOM_BYTES = 16
"""The size of `own`, and of a note's salt: nobody else can make them."""


def _functions(declared: Sequence[tuple[Callee, Function]], names: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Tools as Chat Completions declare them, under these names."""
    return [
        {
            "type": "function",
            "function": {
                "name": names[callee.recipient],
                "description": shown.description,
                "parameters": shown.parameters or {"type": "object", "properties": {}},
            },
        }
        for callee, shown in declared
    ]


def _opening(request: CreateRequest, read: Read, speech: Speech, told: str | None) -> list[dict[str, str]]:
    """The opening before the conversation: one message of instructions, where there are any; `told`, the text about
    tools, comes last.
    """
    verbosity = VERBOSITY[request.verbosity] if request.verbosity != "medium" else None
    parts = (request.instructions, verbosity, read.format.section or None, told)
    words = [part for part in parts if part is not None]
    return [{"role": "system", "content": "\n\n".join(words)}] if words or speech.empty_system else []


class TemplatedReadings(Readings):
    """See Readings."""

    def turns_in(self, notes: Iterable[StoredMessage], model: str) -> KnownTurns:
        """See Readings."""
        return known_of(notes, model)

    async def prompt(
        self,
        render: RenderPrompt,
        model: ModelCard,
        speech: Speech,
        read: Read,
        request: CreateRequest,
        prompt: Prompt,
        known: KnownTurns,
        *,
        noted: bool,
    ) -> tuple[Templated, Speaking]:
        """See Readings. Where calls that were approved come first, the prompt is empty until they were made; where the
        server makes it, it always is.
        """
        declared = read.tools.declared if read.rules.choice != "none" else ()
        names = tool_names([callee.recipient for callee, _ in declared])
        tools = _functions(declared, names)
        schemas = {names[callee.recipient]: shown.parameters or {} for callee, shown in declared}
        own = f" {secrets.token_hex(RANDOM_BYTES)} "  # between blanks it looks like no mark
        form = form_of(FAMILIES[speech.family].markup, speech.shown)
        told = None if form is None or not tools else tools_told(form, tools, own)
        salt = secrets.token_bytes(RANDOM_BYTES)
        options = usual_options(read.effort) | FAMILIES[speech.family].effort_option(read.effort)
        encode = msgspec.json.encode
        chat = TemplatedChat(
            family=speech.family,
            marks=dict(speech.marks),
            ends=speech.ends,
            names=names,
            schemas=encode(schemas),
            opening=encode(_opening(request, read, speech, told)),
            history=b"[]",
            tools=encode([] if told else tools),
            options=encode(options | request.template_options),
            shown=speech.shown,
            sees=speech.sees,
            keeps=encode({k: v for k, v in speech.keeps if k not in request.template_options}),
            own=own,
            salt=salt,
            key=key_behind(known.key, salt),
        )
        messages = [*prompt.shown, *prompt.ending]
        large = sum(len(each.tokens) for each in messages) > THREAD_FROM_BYTES
        history = await asyncio.to_thread(chat.encode, messages) if large else chat.encode(messages)
        chat = msgspec.structs.replace(chat, history=history, noted=noted)
        if chat.served:
            return NO_PROMPT, msgspec.structs.replace(chat, about=len(prompt.whole))
        if prompt.rules.answers is not None:
            return NO_PROMPT, chat
        made = await make_prompt(render, model.id, chat, chat.transcript(()), known)
        return made, msgspec.structs.replace(chat, thinking=chat.thinks(made.ids), turns=made.turns)

    def restore(self, spoken: Any) -> Spoken:
        """See Readings."""
        return msgspec.convert(spoken, TemplatedChat)

    def written_by(self, speech: Speech | None) -> MarkupTags:
        """See Readings."""
        return tags.written_by(speech)

"""Prompts of models that don't speak Harmony: made by the template that the engine knows, from the kept messages."""

import asyncio
import secrets
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.api.request import CreateRequest
from service.api.tools.callee import Callee
from service.engine.port import Engine, EngineRefused, Generation, ModelCard, Renderer
from service.harmony.render import VERBOSITY
from service.harmony.typescript import Function
from service.markup.chat import Chat
from service.markup.families import FAMILIES
from service.markup.messages import tool_names
from service.markup.prompts import NOTHING, Known, Templated, key_behind, with_known
from service.markup.speech import Speech, Transcript
from service.markup.telling import form_of, tools_told
from service.responses.chat.reading import read_before
from service.responses.output.machine import Machine
from service.responses.prompt.build import Prompt
from service.responses.read import Read
from store.codec import THREAD_FROM_BYTES
from store.turn import StoredMessage

OWN_BYTES = 16
"""Of chance in what nobody else can put into a mark."""

SALT_BYTES = 16
"""Of chance in the salt of a note."""

THREAD_FROM_TOKENS = 16_384
"""To compare so many takes some 3 ms, where the template writes each turn otherwise than it was sampled."""


async def prompt_of(
    engine: Engine, model: ModelCard, speech: Speech, read: Read, request: CreateRequest, prompt: Prompt, known: Known
) -> tuple[Templated, Chat]:
    """A request's prompt, and how its response is read. `known` is what the model has sampled of the conversation.
    Where calls that were approved come first, the prompt is empty until they were made; where the server makes it, it
    always is. Raises EngineError.
    """
    declared = [(callee, shown) for callee, shown in read.tools.declared if read.rules.choice != "none"]
    names = tool_names([callee.recipient for callee, _ in declared])
    tools = _functions(declared, names)
    schemas = {names[callee.recipient]: shown.parameters or {} for callee, shown in declared}
    own = f" {secrets.token_hex(OWN_BYTES)} "  # between blanks it looks like no mark
    form = form_of(FAMILIES[speech.family].markup, speech.shown)
    told = None if form is None or not tools else tools_told(form, tools, own)
    salt = secrets.token_bytes(SALT_BYTES)
    chat = Chat(
        family=speech.family,
        marks=dict(speech.marks),
        ends=speech.ends,
        names=names,
        schemas=_json(schemas),
        opening=_json(_opening(request, read, speech, told)),
        history=b"[]",
        tools=_json([] if told else tools),
        options=_json(_options(read)),
        shown=speech.shown,
        own=own,
        salt=salt,
        key=key_behind(known.key, salt),
    )
    chat = msgspec.structs.replace(chat, history=await _encoded(chat, [*prompt.shown, *prompt.ending]))
    if chat.served:
        return Templated(array("I")), msgspec.structs.replace(chat, about=len(prompt.whole))
    if prompt.rules.answers is not None:
        return Templated(array("I")), chat
    made = await _made(engine, model.id, chat, chat.transcript(()), known)
    return made, msgspec.structs.replace(chat, thinking=chat.thinks(made.ids), turns=made.turns)


async def later_prompt(engine: Engine, initial: Generation, machine: Machine) -> Templated:
    """The prompt behind which a response goes on; an empty one where the server makes it. Raises EngineError."""
    chat = machine.rules.chat
    assert chat is not None
    if chat.served:
        return Templated(array("I"))
    transcript = chat.transcript(machine.prompting, anew=machine.anew)
    return await _made(engine, initial.model, chat, transcript, read_before(initial, machine))


async def _made(engine: Engine, model: str, chat: Chat, transcript: Transcript, known: Known) -> Templated:
    """The prompt of a transcript, with what is `known` where it can be. Raises EngineError."""
    if not isinstance(engine, Renderer):
        raise EngineRefused(f"the engine of '{model}' knows no chat template")
    written = array("I", await engine.render(transcript, model))
    compared = (written, known if chat.shows_reasoning else NOTHING, chat.ends, chat.mark_ids)
    if len(written) > THREAD_FROM_TOKENS:
        return await asyncio.to_thread(with_known, *compared)
    return with_known(*compared)


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
    """What comes before the conversation: one message of instructions, where there are any; last what is `told` of
    tools.
    """
    words = [] if request.instructions is None else [request.instructions]
    if request.verbosity != "medium":
        words.append(VERBOSITY[request.verbosity])
    if read.format.section:
        words.append(read.format.section)
    if told is not None:
        words.append(told)
    if not words and not speech.empty_system:
        return []
    return [{"role": "system", "content": "\n\n".join(words)}]


def _options(read: Read) -> dict[str, object]:
    """What templates may be told of reasoning; each takes what it knows."""
    return {
        "enable_thinking": read.effort != "none",
        "thinking": read.effort != "none",
        "reasoning_effort": read.effort,
    }


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


async def _encoded(chat: Chat, messages: Sequence[StoredMessage]) -> bytes:
    if sum(len(each.tokens) for each in messages) > THREAD_FROM_BYTES:
        return await asyncio.to_thread(chat.encoded, messages)
    return chat.encoded(messages)

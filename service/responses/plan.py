"""A response that is to be made: all that is needed for it, read, checked and rendered once.

    request ─▶ Plan ─┬─▶ Run
                     └─▶ encode ─▶ queue ─▶ decode ─▶ Run

In the background it waits in the queue as bytes: version | packing | msgpack. A prompt holds the day on which it was
asked for, and a worker may be of another day or have other settings, so nothing of a plan is made twice. Never put
a plain secret, or a tenant's name, into a plan: its place in the store says whose it is. From 0.1.0 on never change the
meaning of a version: add the next.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from service.api.response import CodeInterpreterCall, Response, decode_response
from service.engine.port import Generation
from service.harmony import tokens
from service.harmony.render import PROMPT_END
from service.responses.output.machine import Machine
from service.responses.output.reading import speaking_in
from service.responses.output.rules import Rules, Spoken
from service.spans import Fact, conversation
from store.codec import THREAD_FROM_BYTES, check_version, squeeze, unsqueeze
from store.turn import Expense, Messages, Picture, Status, StoredMessage, Turn

FORMAT = 6
"""The version of a plan's bytes."""

MODEL_CHARS = 128
"""How much of a model's name is counted by."""

CONTAINER = "container"
"""The role of a note of the container in which a conversation last ran code."""


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a plan that wait in the queue as they are.

    `messages` are the new ones and `items` the input as listed, JSON as in a Turn. `stored` says whether the response
    can be continued later, and `rules` hold for the answer.
    """

    parent: str | None
    stored: bool
    messages: Messages
    items: bytes
    rules: Rules
    settings: bytes = b""
    """The settings of its request for a response that goes on from it (`steer.settings_of`), where it can be steered in
    the background; else empty."""
    connections: str = ""
    """How to reach the servers of tools that its request named, sealed, as that holds secrets; empty where it named
    none."""
    root: str = ""
    """The first response of the tree that it continues; empty where it begins one, or where nobody said it."""
    key: str = ""
    """The id of the key that asked for it; empty where that is none of the registry's, or where nobody said it."""
    said: bytes = b""
    """The digest of the visible transcript up to the answer, where the conversation may be recognised by it; else
    empty."""
    announced: bool = True
    """Whether a webhook reports its end, where there is a receiver."""
    reserved: bool = False
    """Whether something is reserved for it of limits, which the process that ends it settles."""


class Plan(_Planned, frozen=True, kw_only=True):
    """The plan of a response, in the foreground as in the background.

    `base` is the response as it is created, and `generation` the first request to the engine; its
    `sampling.max_tokens` counts from the prompt's end.
    """

    base: Response
    generation: Generation
    pictures: tuple[Picture, ...] = ()
    """The pictures of its messages, until they are stored: what waits in the queue refers to them."""

    @property
    def id(self) -> str:
        return self.base.id

    @property
    def conversation(self) -> str | None:
        """The id of the conversation that it continues, if it does."""
        given = self.base.conversation
        return None if isinstance(given, msgspec.UnsetType) else given["id"]

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts of each span of its response. Its model isn't one: Phoenix takes a span that names a model for a
        call of it.
        """
        return {
            "gen_ai.response.id": self.id,
            "gen_ai.request.previous_response.id": self.parent,
            **conversation(self.conversation or self.root or self.id),
        }

    @property
    def input_tokens(self) -> int:
        """How many tokens the engine is asked with, as far as that is known."""
        answers = self.rules.answers
        if about := speaking_in(self.rules).about:
            return about
        behind = b"" if answers is None else b"".join((*(each.tokens for each in answers.behind), PROMPT_END))
        return len(self.generation.prompt) + len(behind) // tokens.BYTES_A_TOKEN

    @property
    def size(self) -> int:
        """About how many bytes it takes before it is compressed, the response's own aside."""
        behind = self.rules.answers.behind if self.rules.answers is not None else ()
        kept = (*self.messages, *self.rules.kept_messages, *self.rules.newest, *behind)
        said = sum(message.size for message in kept) + len(msgspec.msgpack.encode(self.rules.displays))
        said += speaking_in(self.rules).size
        return len(self.generation.prompt) * tokens.BYTES_A_TOKEN + len(self.items) + len(self.settings) + said


def expense_of(plan: Plan, response: Response) -> Expense | None:
    """The expense of a response, once it has ended. Models have the names of engines, of bounded length."""
    usage, model = response.usage, plan.generation.model or response.model
    if usage is None:
        return None
    return Expense(
        key=plan.key,
        model=model[:MODEL_CHARS],
        input_tokens=usage.input_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
    )


def turn_of(plan: Plan, machine: Machine, response: Response, said: bytes = b"") -> Turn:
    """The turn of a planned response as it stands: with the messages of its machine, as it is served, and
    with the digest of what was `said` by its end.
    """
    return Turn(
        id=plan.id,
        parent=plan.parent,
        status=Status(response.status),
        messages=messages_of(plan, machine),
        response=msgspec.json.encode(response),
        items=plan.items,
        expense=expense_of(plan, response),
        said=said,
        pictures=pictures_of(plan, machine) if plan.stored or plan.base.background else (),
    )


def pictures_of(plan: Plan, machine: Machine) -> tuple[Picture, ...]:
    """The pictures of a planned response as it stands, each once."""
    return tuple({each.digest: each for each in (*plan.pictures, *machine.pictures)}.values())


def messages_of(plan: Plan, machine: Machine) -> Messages:
    """The messages that a response adds to its conversation. The plan's first ones note that lists of tools were shown:
    without any output they are left out. The last one notes the container in which code ran, if any did.
    """
    notes = 0 if machine.output else len(plan.rules.listed)
    ran = [item.container_id for item in machine.output if isinstance(item, CodeInterpreterCall) and item.container_id]
    container = [StoredMessage(CONTAINER, b"", name=ran[-1])] if ran else []
    read = (*machine.stretches.note(plan.generation), *machine.sampled_note())
    approvals = (*(each.note for each in machine.asked), *(each.answer_note for each in machine.gone_on))
    return (*plan.messages[notes:], *machine.messages, *approvals, *container, *read)


class _Queued(_Planned, frozen=True, kw_only=True):
    """A plan as it waits in the queue: `base` as JSON, as tools hold numbers that msgpack can't, and the generation's
    `prompt` as little-endian u32 ids.
    """

    base: bytes
    generation: Generation
    prompt: bytes


Restore = Callable[[Any], Spoken]
"""Restores what a queued plan has of how its model speaks, from plain data. Raises ValueError."""


@cache
def _decoder(restore: Restore) -> msgspec.msgpack.Decoder[_Queued]:
    return msgspec.msgpack.Decoder(_Queued, dec_hook=lambda _, spoken: restore(spoken))


def _as_it_is(plan: _Planned) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in _Planned.__struct_fields__}


async def encode(plan: Plan) -> bytes:
    """The bytes of a plan, by a thread where it takes long."""
    if plan.size > THREAD_FROM_BYTES:
        return await asyncio.to_thread(_encode, plan)
    return _encode(plan)


def _encode(plan: Plan) -> bytes:
    queued = _Queued(
        base=msgspec.json.encode(plan.base),
        generation=msgspec.structs.replace(plan.generation, prompt=(), tenant=""),
        prompt=tokens.pack(plan.generation.prompt),
        **_as_it_is(plan),
    )
    return bytes([FORMAT]) + squeeze(msgspec.msgpack.encode(queued))


async def decode(blob: bytes, restore: Restore) -> Plan:
    """The plan of some bytes, by a thread where it takes long. Raises NewerFormat."""
    check_version(blob, FORMAT)
    if len(blob) > THREAD_FROM_BYTES:
        return await asyncio.to_thread(_decode, blob, restore)
    return _decode(blob, restore)


def _decode(blob: bytes, restore: Restore) -> Plan:
    queued = _decoder(restore).decode(unsqueeze(blob[1:]))
    generation = msgspec.structs.replace(queued.generation, prompt=tokens.unpack(queued.prompt))
    return Plan(base=decode_response(queued.base), generation=generation, **_as_it_is(queued))

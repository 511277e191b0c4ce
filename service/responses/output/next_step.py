"""The next step of a response: ask the engine, give the model feedback, or end.

A response is one generation unless something is constrained: behind a header whose content must match a format the
engine is asked anew, with that format alone, and behind a call of an undeclared tool the model gets feedback first. All
that was sampled stands in the prompt of the next one, so an engine's prefix cache makes it cheap. Nothing here depends
on how often the engine was asked: a worker that takes over asks what the one before would have. Pure: the driver
carries out the steps.
"""

from array import array
from typing import overload

import msgspec

from service.engine.port import ChatRequest, Finish, Generation, Sampling, Transcript
from service.grammar.tags import HeaderState, addressing_tag, content_tag
from service.harmony import tokens
from service.markup import tags
from service.markup.chat import Chat
from service.markup.families import FAMILIES, ReasoningPlace
from service.markup.messages import name_of
from service.markup.stream import MarkupPart
from service.markup.tags import Callable, TurnConstraint, response_format, tools_asked
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import Phase
from service.responses.output.reading import HarmonyReading, ServedReading, TemplatedReading
from service.responses.output.rules import Rules

_ENDINGS = {Finish.STOP: Ending.STOP, Finish.LENGTH: Ending.LENGTH, Finish.ABORT: Ending.ABORT}


class Generated(msgspec.Struct, frozen=True):
    """The state of a generation: its request, whether anything of it was sampled, and its finish, if any."""

    asked: Generation
    sampled: bool
    finish: Finish | None


class Ask(msgspec.Struct, frozen=True):
    """Ask the engine for this; a generation under way is broken off."""

    generation: Generation


class GiveFeedback(msgspec.Struct, frozen=True):
    """Have the machine give the model its feedback; a generation under way is broken off."""


class Render(msgspec.Struct, frozen=True):
    """Have the model's chat template make the next prompt."""

    reading: TemplatedReading


class Call(msgspec.Struct, frozen=True):
    """Call the tool that the machine waits for, and give it the outcome; a generation under way is broken off."""


class End(msgspec.Struct, frozen=True):
    """The response ends so; a generation under way is broken off."""

    ending: Ending


Next = Ask | GiveFeedback | Render | Call | End


@overload
def next_step(machine: Machine, initial: Generation) -> Next: ...
@overload
def next_step(machine: Machine, initial: Generation, generated: Generated) -> Next | None: ...
def next_step(machine: Machine, initial: Generation, generated: Generated | None = None) -> Next | None:
    """The next step from where the machine stands; None where the generation under way simply goes on.

    `initial` is how the engine would be asked at the beginning, and `generated` the generation under way, if any. Only
    one that sampled something is followed by another one, so no engine is asked again and again.
    """
    if (boundary := machine.boundary) is not None:
        return End(boundary)
    if machine.phase is Phase.FEEDBACK:
        return GiveFeedback()
    if machine.phase is Phase.CALLING:
        return Call()
    if generated is not None and machine.phase is not Phase.FULL and not _another_follows(machine, generated):
        return None if generated.finish is None else End(_ENDINGS[generated.finish])
    ending = ending_of(machine, initial.sampling.max_tokens)
    if ending is not None:
        return End(ending)
    reading = machine.stretches
    if isinstance(reading, TemplatedReading) and reading.unprompted:
        return Render(reading)
    return Ask(next_generation(initial, machine))


def _another_follows(machine: Machine, generated: Generated) -> bool:
    """Whether the engine is asked anew: for a constrained content, or as it could only stop at a call, behind which
    another one may follow.
    """
    at_call = generated.finish is Finish.STOP and machine.calls > 0 and tokens.CALL in generated.asked.sampling.stop_ids
    anew = machine.stretches.asks_anew and generated.sampled
    return anew and (machine.phase is Phase.CONSTRAINED or at_call)


def ending_of(machine: Machine, max_tokens: int) -> Ending | None:
    """How the response has ended by what stands behind its prompt, or None where it goes on.

    `max_tokens` is how much may be sampled and given as feedback. Where a worker died before it could say that it was
    done, there is nothing left to sample; an engine asked for more would go on behind the end.
    """
    if machine.fault is not None:
        return Ending.ERROR
    if machine.phase is Phase.CALLING:
        return None
    reading = machine.stretches
    may_call = reading.asks_anew and reading.last == tokens.CALL and 0 < machine.calls < machine.rules.parallel
    stopped = reading.last in reading.ends and not may_call and machine.phase is not Phase.FEEDBACK
    if stopped or machine.phase is Phase.FULL:
        return Ending.STOP
    return Ending.LENGTH if _ids_left(machine, max_tokens) < 1 else None


def _ids_left(machine: Machine, max_tokens: int) -> int:
    """How many more ids may be sampled: of a response that compacts first, no more than its context has room for."""
    stretches, behind = machine.stretches, machine.after_compaction
    left = max_tokens - stretches.length
    context = machine.rules.context_tokens if behind is None else behind.context_tokens
    return left if context is None else min(left, context - stretches.prefix_tokens - len(stretches.tail))


def next_generation(initial: Generation, machine: Machine) -> Generation:
    """The request to the engine that goes on from where the machine stands.

    `initial` is how it would be asked at the beginning. Raises ValueError where nothing is left to ask for, as
    `ending_of` tells.
    """
    left, reading, rules = _ids_left(machine, initial.sampling.max_tokens), machine.stretches, machine.rules
    if left < 1:
        raise ValueError(f"all {initial.sampling.max_tokens} tokens of {initial.id} have been sampled")
    prompt, sampling = initial.prompt, msgspec.structs.replace(initial.sampling, max_tokens=left)
    if isinstance(reading, ServedReading):
        return msgspec.structs.replace(
            initial, sampling=sampling, asks=chat_request(rules, reading.chat, reading.transcript)
        )
    if isinstance(reading, TemplatedReading):
        prompt = prompt if reading.prompt is None else reading.prompt.ids
        tag = None if reading.tail else turn_tag(rules, reading.chat, thinking=reading.thinking)
        sampling = sampling if tag is None else msgspec.structs.replace(sampling, structural_tag=tag)
    else:
        sampling = _constrain(sampling, machine, reading)
    prompt = prompt if len(prompt) <= reading.prefix_tokens else prompt[: reading.prefix_tokens]
    return msgspec.structs.replace(
        initial, prompt=array("I", prompt) + reading.tail if reading.tail else prompt, sampling=sampling
    )


def _constrain(sampling: Sampling, machine: Machine, reading: HarmonyReading) -> Sampling:
    """The sampling with the model's constraint here: its content's format, or the recipients that it may address.

    Where nothing does, a call doesn't end the generation if another one may follow. Behind a tag it does: an engine
    knows only ends there, and lets the mark of a call through as one.
    """
    item = machine.open_item
    if item is not None and item.constraint is not None and machine.phase is Phase.CONSTRAINED:
        return msgspec.structs.replace(sampling, structural_tag=content_tag(item.constraint))
    state = reading.header_state(called=machine.calls > 0, free=item is None or item.is_aside)
    tag = None if state is None else header_tag(machine.rules, state)
    if tag is not None:
        return msgspec.structs.replace(sampling, structural_tag=tag)
    if state is None or machine.rules.parallel == 1 or not machine.rules.callable:
        return sampling
    return msgspec.structs.replace(sampling, stop_ids=tuple(stop for stop in sampling.stop_ids if stop != tokens.CALL))


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
    part = (
        MarkupPart.THINKING
        if thinking
        else MarkupPart.TEXT
        if family.reasoning is ReasoningPlace.NONE
        else MarkupPart.BEFORE
    )
    try:
        return tags.tag(family.markup, tuple(chat.marks.items()), asked, part)
    except LookupError:
        return None


def header_tag(rules: Rules, state: HeaderState) -> str | None:
    """The structural tag of whom the model may address from here on, None where nothing is constrained."""
    final = rules.choice != "required" or not rules.callable
    if final and rules.answer is None and rules.allowed is None and (rules.choice == "auto" or not rules.callees):
        return None
    able = [each for each in rules.callable if state is not HeaderState.CALLED or each.awaits]
    trained = tuple(each.recipient for each in able if each.trained)
    typed = tuple(each.recipient for each in able if each.takes_json and not each.trained)
    plain = tuple(each.recipient for each in able if not each.takes_json and not each.trained)
    return addressing_tag(typed, plain, final, state, trained)

"""The next step of a response: ask the engine, give the model feedback, or end.

A response is one generation unless something is constrained: behind a header whose content must match a format the
engine is asked anew, with that format alone, and behind a call of an undeclared tool the model gets feedback first. All
that was sampled stands in the prompt of the next one, so an engine's prefix cache makes it cheap. Nothing here depends
on how often the engine was asked: a worker that takes over asks what the one before would have. Pure: the driver
carries out the steps.
"""

import msgspec

from service.engine.port import Finish, Generation
from service.harmony import tokens
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import Phase
from service.responses.output.reading import Reading, ResumePoint

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
    """Have the next prompt made."""

    reading: Reading


class Call(msgspec.Struct, frozen=True):
    """Call the tool that the machine waits for, and give it the outcome; a generation under way is broken off."""


class End(msgspec.Struct, frozen=True):
    """The response ends so; a generation under way is broken off."""

    ending: Ending


Next = Ask | GiveFeedback | Render | Call | End


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
    if reading.unprompted:
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
    left, item = _ids_left(machine, initial.sampling.max_tokens), machine.open_item
    if left < 1:
        raise ValueError(f"all {initial.sampling.max_tokens} tokens of {initial.id} have been sampled")
    least = min(max(initial.sampling.min_tokens - machine.stretches.length, 0), left)
    sampling = msgspec.structs.replace(initial.sampling, max_tokens=left, min_tokens=least)
    place = ResumePoint(
        content=item.constraint if item is not None and machine.phase is Phase.CONSTRAINED else None,
        called=machine.calls > 0,
        free=item is None or item.is_aside,
    )
    rest = msgspec.structs.replace(initial, sampling=sampling)
    return machine.stretches.next_generation(rest, machine.rules, place)

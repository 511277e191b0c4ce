"""The course of a response: what the engine is asked next, from where its machine stands.

A response is one generation unless something has to be held: behind a header whose content must match a format the
engine is asked anew, with that format alone, and behind a call of a tool that isn't here the model is told so first.
All that was sampled stands in the prompt of the next one, so an engine's prefix cache makes it cheap. Nothing here
depends on how often it was asked: a worker that takes over asks what the one before would have.
"""

from array import array

import msgspec

from service.engine.port import Generation, Sampling
from service.protocol import tokens
from service.protocol.constraints import content_tag, header_tag
from service.protocol.machine import Ending, Machine


def ended(machine: Machine, max_tokens: int) -> Ending | None:
    """How the response has ended by what stands behind its prompt, or None where the engine is to go on.

    `max_tokens` is how much may stand there. Where a worker died before it could say that it was done, there is nothing
    left to sample; an engine asked for more would go on behind the end.
    """
    over = machine.over
    if over is None and machine.length >= max_tokens:
        return Ending.LENGTH
    return over


def asked(whole: Generation, machine: Machine, number: int = 0) -> Generation:
    """What the engine is asked for the `number`-th time, to go on from where the machine stands.

    `whole` is how it would be asked at the beginning. Raises ValueError where nothing is left to ask for, as `ended`
    tells.
    """
    left = whole.sampling.max_tokens - machine.length
    if left < 1:
        raise ValueError(f"all {whole.sampling.max_tokens} tokens of {whole.id} have been sampled")
    return msgspec.structs.replace(
        whole,
        id=f"{whole.id}-{number}" if number else whole.id,
        prompt=array("I", whole.prompt) + machine.tail if machine.tail else whole.prompt,
        sampling=_held(msgspec.structs.replace(whole.sampling, max_tokens=left), machine),
    )


def _held(sampling: Sampling, machine: Machine) -> Sampling:
    """The sampling with what holds the model here: its content's format, or whom it may address.

    A call doesn't end a generation where another one may follow, unless it is a call that is held: behind a format
    an engine knows only ends.
    """
    if machine.held is not None:
        return msgspec.structs.replace(sampling, structural_tag=content_tag(machine.held))
    state = machine.header_state
    if state is None:
        return sampling
    tag = header_tag(machine.rules, state)
    stops = sampling.stop_ids
    if machine.rules.parallel > 1 and machine.rules.callable:
        stops = tuple(stop for stop in stops if stop != tokens.CALL)
    return msgspec.structs.replace(sampling, structural_tag=tag, stop_ids=stops)

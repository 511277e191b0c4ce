"""The course of a response: what the engine is asked next, from where its machine stands.

A response is one generation unless something has to be held: behind a header whose content must match a format the
engine is asked anew, with that format alone, and behind a call of a tool that isn't here the model is told so first.
All that was sampled stands in the prompt of the next one, so an engine's prefix cache makes it cheap. Nothing here
depends on how often it was asked: a worker that takes over asks what the one before would have.
"""

from array import array

import msgspec

from service.api.tools.callee import Callee
from service.engine.port import Generation, Sampling
from service.grammar.tags import HeaderState, addressing_tag, content_tag
from service.harmony import tokens
from service.responses.output.machine import Ending, Machine
from service.responses.rules import Rules


def ended(machine: Machine, max_tokens: int) -> Ending | None:
    """How the response has ended by what stands behind its prompt, or None where the engine is to go on.

    `max_tokens` is how much may be sampled and told. Where a worker died before it could say that it was done, there is
    nothing left to sample; an engine asked for more would go on behind the end.
    """
    over = machine.over
    if over is None and _left(machine, max_tokens) < 1:
        return Ending.LENGTH
    return over


def _left(machine: Machine, max_tokens: int) -> int:
    """How many more ids may be sampled: of a response that compacts first, no more than its context has room for."""
    stretches, onward = machine.stretches, machine.after_compaction
    left = max_tokens - stretches.length
    return left if onward is None else min(left, onward.context_tokens - stretches.prefix_tokens - len(stretches.tail))


def asked(whole: Generation, machine: Machine, number: int = 0) -> Generation:
    """What the engine is asked for the `number`-th time, to go on from where the machine stands.

    `whole` is how it would be asked at the beginning. Raises ValueError where nothing is left to ask for, as `ended`
    tells.
    """
    left, stretches = _left(machine, whole.sampling.max_tokens), machine.stretches
    if left < 1:
        raise ValueError(f"all {whole.sampling.max_tokens} tokens of {whole.id} have been sampled")
    prompt = whole.prompt if len(whole.prompt) <= stretches.prefix_tokens else whole.prompt[: stretches.prefix_tokens]
    return msgspec.structs.replace(
        whole,
        id=f"{whole.id}-{number}" if number else whole.id,
        prompt=array("I", prompt) + stretches.tail if stretches.tail else prompt,
        sampling=_held(msgspec.structs.replace(whole.sampling, max_tokens=left), machine),
    )


def _held(sampling: Sampling, machine: Machine) -> Sampling:
    """The sampling with what holds the model here: its content's format, or whom it may address.

    Where nothing does, a call doesn't end the generation if another one may follow. Behind a tag it does: an engine
    knows only ends there, and lets the mark of a call through as one.
    """
    if machine.held is not None:
        return msgspec.structs.replace(sampling, structural_tag=content_tag(machine.held))
    state = machine.header_state
    tag = None if state is None else header_tag(machine.rules, state)
    if tag is not None:
        return msgspec.structs.replace(sampling, structural_tag=tag)
    if state is None or machine.rules.parallel == 1 or not machine.rules.callable:
        return sampling
    return msgspec.structs.replace(sampling, stop_ids=tuple(stop for stop in sampling.stop_ids if stop != tokens.CALL))


def header_tag(rules: Rules, state: HeaderState) -> str | None:
    """The structural tag of whom the model may address from here on, None where nothing is held."""
    final = rules.choice != "required" or not rules.callable
    if final and rules.answer is None and rules.allowed is None and (rules.choice == "auto" or not rules.callees):
        return None
    typed = tuple(each.recipient for each in rules.callable if _typed(each))
    plain = tuple(each.recipient for each in rules.callable if not _typed(each))
    return addressing_tag(typed, plain, final, state)


def _typed(callee: Callee) -> bool:
    """Whether the header of a call says that its content is JSON."""
    return callee.kind == "function" or callee.wrapped

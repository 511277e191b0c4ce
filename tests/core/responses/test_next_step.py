"""What comes next: when the engine is asked, and for what, when the model gets feedback, and when a response ends."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.tools.callee import Callee
from service.engine.port import Finish, Generation, Sampling
from service.grammar.tags import HeaderState, grammar_content, schema_content
from service.harmony import tokens
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import (
    Ask,
    End,
    Generated,
    GiveFeedback,
    next_generation,
    next_step,
)
from service.responses.output.reading import header_tag
from service.responses.output.rules import Rules
from service.steps import in_one_go
from tests.support.engine.scripted import ScriptedEngine
from tests.support.responses import samples
from tests.support.responses.samples import harmony
from tests.support.responses.sampling import made, playing, survived

PROMPT = [200006, 1, 2, 3]
WHOLE = Generation("resp_1", PROMPT, Sampling(500, stop_ids=tokens.ENDS))
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
HELD = schema_content(SCHEMA)
TOOLS = (Callee("count", content=HELD), Callee("look"))
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
LOOK = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}<|call|>"
NEXT = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>Done.<|return|>"
STRANGER = "<|channel|>commentary to=functions.stranger <|constrain|>json<|message|>{}<|call|>"


def began(rules: Rules, ids: Sequence[int] = ()) -> Machine:
    """A machine that has begun, and was fed so far."""
    machine = samples.machine(rules)
    machine.begin()
    machine.feed(ids)
    return machine


def shown(machine: Machine) -> list[tuple[str, str]]:
    """The kinds of the items and how each ended."""
    return [(str(item.__struct_config__.tag), getattr(item, "status", "")) for item in machine.output]


# --- the steps ---

PLAIN = msgspec.structs.replace(WHOLE, sampling=Sampling(500, stop_ids=(tokens.RETURN,)))
OPEN_ANSWER = "<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("said", "asked", "sampled", "finish", "expected"),
    [
        (THOUGHT, WHOLE, True, None, None),
        (THOUGHT, WHOLE, True, Finish.STOP, End(Ending.STOP)),
        (THOUGHT, WHOLE, True, Finish.ABORT, End(Ending.ABORT)),
        ("<|channel|>commentary<|message|>Hm.<|return|>", WHOLE, True, None, None),
        (STRANGER, WHOLE, True, None, GiveFeedback()),
        (OPEN_ANSWER, WHOLE, True, None, Ask),
        (OPEN_ANSWER, WHOLE, False, Finish.STOP, End(Ending.STOP)),
        (LOOK, WHOLE, True, None, None),
        (LOOK, WHOLE, True, Finish.STOP, Ask),
        (LOOK, WHOLE, False, Finish.STOP, End(Ending.STOP)),
        (LOOK, PLAIN, True, Finish.STOP, End(Ending.STOP)),
        (LOOK + NEXT + LOOK, WHOLE, True, None, End(Ending.STOP)),
    ],
)
def test_what_comes_next_depends_on_the_machine_and_on_the_generation_under_way(
    said: str, asked: Generation, sampled: bool, finish: Finish | None, expected: object
) -> None:
    machine = began(Rules(TOOLS, parallel=2, answer=HELD), harmony(said))
    step = next_step(machine, WHOLE, Generated(asked, sampled, finish))

    assert step == expected or type(step) is expected


def test_a_call_ends_a_generation_unless_another_may_follow() -> None:
    alone, several = (
        next_generation(WHOLE, began(Rules(TOOLS, parallel=number))).sampling.stop_ids for number in (1, 5)
    )

    assert tokens.CALL in alone
    assert several == tuple(stop for stop in tokens.ENDS if stop != tokens.CALL)


# --- what is constrained ---


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("", HeaderState.NEXT),
        ("<|channel|>analysis<|message|>Hm", HeaderState.INSIDE),
        ("<|channel|>analysis<|message|>Hm.<|end|>", HeaderState.BETWEEN),
        (LOOK, HeaderState.CALLED),
    ],
)
def test_a_worker_that_takes_over_constrains_the_model_from_where_it_is(said: str, state: HeaderState) -> None:
    rules = Rules(TOOLS, choice="required", parallel=5)
    machine = began(rules)
    in_one_go(machine.replay(tokens.pack(harmony(said))))

    assert next_generation(WHOLE, machine).sampling.structural_tag == header_tag(rules, state)


@pytest.mark.parametrize("said", ["<|channel|>comm", "<|channel|>final", '<|channel|>final<|message|>{"n"'])
def test_amid_a_header_or_a_constrained_content_it_goes_on_without_a_constraint(said: str) -> None:
    machine = began(Rules(TOOLS, answer=HELD))
    in_one_go(machine.replay(tokens.pack(harmony(said))))
    sampling = next_generation(WHOLE, machine).sampling

    assert (sampling.structural_tag, sampling.stop_ids) == (None, tokens.ENDS)


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_call_that_nothing_holds_to_its_grammar_any_more_fails(taken_over: bool) -> None:
    machine = began(Rules((Callee("patch", "custom", content=grammar_content('root ::= "ab"')),)))
    opened = harmony("<|channel|>commentary to=functions.patch<|message|>a")
    if taken_over:
        in_one_go(machine.replay(tokens.pack(opened)))
    else:
        machine.feed(opened)
    machine.feed(harmony("b<|call|>"))

    assert (machine.fault is not None and "not enforced to the end" in machine.fault) is taken_over


# --- several calls ---


@pytest.mark.parametrize(
    "behind", [NEXT + FINAL, NEXT + THOUGHT + LOOK, "<|start|>functions.look to=assistant<|message|>42<|end|>"]
)
async def test_what_is_no_call_is_not_shown_behind_one(behind: str) -> None:
    machine, response, _ = await made(samples.machine(Rules(TOOLS, parallel=5)), WHOLE, LOOK + behind)

    assert (response.status, shown(machine)) == ("completed", [("function_call", "completed")])
    assert len(machine.messages) == 1


# --- undeclared tools ---


@pytest.mark.parametrize("ending", [Ending.ABORT, Ending.LENGTH])
def test_a_call_without_feedback_before_the_end_is_answered_in_the_history(ending: Ending) -> None:
    machine = began(Rules(TOOLS), harmony(STRANGER))
    machine.end(ending)

    assert [message.role for message in machine.messages] == ["assistant", "tool"]


async def test_a_model_that_had_to_call_a_tool_and_did_not_has_failed() -> None:
    machine, response, _ = await made(samples.machine(Rules(TOOLS, choice="required")), WHOLE, FINAL)

    assert (response.status, shown(machine)) == ("failed", [("message", "completed")])
    assert response.error is not None
    assert "called no tool" in response.error.message


RULES = st.sampled_from(
    [
        msgspec.structs.replace(
            samples.RULES, parallel=parallel, answer=answer, callees=(*samples.RULES.callees, *TOOLS)
        )
        for parallel in (1, 9)
        for answer in (None, HELD)
    ]
)


TOLD = [tokens.MESSAGE, tokens.encode("Error:")[0]]
"""How the word begins that a tool isn't there; no script has it."""


def going_on(first: list[int], then: list[int]) -> ScriptedEngine:
    """An engine that samples `first`, and `then` once it was told something, from wherever its prompt ends."""

    def script(generation: Generation) -> list[list[int]]:
        behind = list(generation.prompt)[len(PROMPT) :]
        place = next((at for at in range(len(behind)) if behind[at : at + 2] == TOLD), None)
        ids = first
        if place is not None:
            ids, behind = then, behind[behind.index(tokens.END, place) + 3 :]
        assert behind == [id for id in ids if 0 <= id <= tokens.LAST_LEGAL][: len(behind)]
        rest, known = list(ids), len(behind)
        while known:
            known -= 0 <= rest.pop(0) <= tokens.LAST_LEGAL
        return [[token] for token in rest]

    return playing(script)


@given(rules=RULES, deaths=st.lists(st.integers(0, 30), max_size=3), first=samples.rambling, then=samples.generations)
def test_what_comes_next_is_the_same_however_many_workers_it_takes(
    rules: Rules, deaths: list[int], first: list[int], then: list[int]
) -> None:
    one, other = (
        asyncio.run(survived(lambda: samples.machine(rules), going_on(first, then), WHOLE, each))
        for each in (deaths, list[int]())
    )

    assert one == other

"""Conversations that have outgrown their threshold: compacted first, then answered, in one response."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.tools.callee import Callee
from service.engine.port import Generation, ModelCard, Sampling
from service.grammar.tags import HeaderState, schema_content
from service.harmony import tokens
from service.harmony.render import PROMPT_END
from service.responses.output import compaction as compacted
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import ending_of, next_generation
from service.responses.output.reading import header_tag
from service.responses.output.rules import Rules
from service.responses.prompt.build import Prompt
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.engine.scripted import ScriptedEngine
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.requests import Json, prompt
from tests.support.responses.samples import NOW, as_json, harmony
from tests.support.responses.sampling import Sampler

USER: Json = {"role": "user", "content": "My boat is called Vesper."}
ANSWER: Json = {"role": "assistant", "content": "A fine heron of the sea."}
NEXT: Json = {"role": "user", "content": "Where does she lie?"}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "In the harbour."}
AT_ONCE = [{"type": "compaction", "compact_threshold": 1}]
SUMMARY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>A boat.<|return|>"
FINAL = "<|channel|>final<|message|>In the harbour.<|return|>"


def outgrown(*items: Json, chain: Sequence[StoredMessage] = (), **body: Any) -> Prompt:
    """The prompt of a request that compacts as soon as it can."""
    return prompt(chain, input=list(items), **{"context_management": AT_ONCE, **body})


def texts(messages: Sequence[StoredMessage]) -> list[str]:
    return [tokens.decode(tokens.unpack(message.tokens)).rpartition("<|message|>")[2] for message in messages]


# --- the two turns ---

SCHEMA = schema_content({"type": "object", "properties": {}, "additionalProperties": False})
MADE = outgrown(USER, ANSWER, NEXT)
ONWARD = MADE.rules.after_compaction
assert ONWARD is not None
OPENING = ONWARD.prefix_tokens
WHOLE = Generation("resp_1", MADE.tokens, Sampling(500, stop_ids=tokens.ENDS))


def new(rules: Rules) -> Machine:
    return Machine(samples.created(), rules, len(MADE.tokens), samples.sealed)


def began(rules: Rules) -> Machine:
    machine = new(rules)
    machine.begin()
    return machine


def run(machine: Machine, engine: ScriptedEngine, whole: Generation = WHOLE) -> tuple[Ending, list[Any]]:
    async def sampled() -> tuple[Ending, list[Any]]:
        sampling = Sampler(engine, whole, machine, seconds=60)
        told = [event async for step in sampling.steps() for event in step.events]
        return sampling.ending, told

    return asyncio.run(sampled())


def made(
    *script: str | list[int], rules: Rules = MADE.rules, budget: int = 500
) -> tuple[Machine, Any, list[Generation]]:
    """The machine, the response, and what the engine was asked."""
    scripts = [[ids if isinstance(ids, list) else harmony(ids)] for ids in script]
    engine = ScriptedEngine(ModelCard("scripted", NOW, 131_072), *scripts)
    machine = new(rules)
    events = machine.begin()
    sampling = msgspec.structs.replace(WHOLE.sampling, max_tokens=budget)
    ending, told = run(machine, engine, msgspec.structs.replace(WHOLE, sampling=sampling))
    events += told + machine.end(ending)
    response = machine.result(ending, now=NOW)
    check_stream([as_json(event) for event in events + machine.terminal(response)])
    return machine, response, engine.generations


def test_a_budget_spans_both_turns() -> None:
    _, response, generations = made(SUMMARY, FINAL, budget=len(harmony(SUMMARY)) + 4)

    assert generations[1].sampling.max_tokens == 4
    assert (response.status, len(response.output)) == ("incomplete", 2)
    assert made(SUMMARY, FINAL, budget=len(harmony(SUMMARY)))[1].status == "incomplete"


def test_a_summary_that_could_not_be_sealed_fails_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "MAX_SUMMARY_BYTES", 6)
    machine, response, _ = made(SUMMARY, FINAL)

    assert (response.status, machine.messages) == ("failed", [])
    assert "longer than 6 bytes" in response.error.message


@pytest.mark.parametrize(
    "said", ["<|channel|>analysis<|message|>Hm.<|return|>", "<|channel|>commentary to=functions.f<|message|>{}<|call|>"]
)
@pytest.mark.parametrize("rules", [MADE.rules, msgspec.structs.replace(MADE.rules.first, after_compaction=None)])
def test_without_a_summary_the_response_fails(said: str, rules: Rules) -> None:
    machine, response, generations = made(said, FINAL, rules=rules)

    assert (response.status, response.error.message) == ("failed", "The model wrote no summary of the conversation.")
    assert (response.output, machine.messages, len(generations)) == ([], [], 1)


def test_what_holds_for_the_answer_holds_for_the_answer_alone() -> None:
    rules = msgspec.structs.replace(
        MADE.rules, callees=(Callee("f", content=SCHEMA),), choice="required", answer=SCHEMA, stop=("A b",), parallel=1
    )
    call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    _, response, generations = made(SUMMARY, call, rules=rules)
    free = header_tag(rules.first, HeaderState.NEXT)

    assert [as_json(item)["type"] for item in response.output] == ["compaction", "function_call"]
    assert generations[0].sampling.structural_tag == free
    assert generations[1].sampling.structural_tag == header_tag(rules, HeaderState.NEXT)
    assert '"functions.f"' not in (free or "")


def by_prompt(first: list[int], then: list[int]) -> ScriptedEngine:
    """An engine that samples `first` behind the ask and `then` behind a compaction, from wherever its prompt ends."""

    def script(generation: Generation) -> list[list[int]]:
        given = list(generation.prompt)
        if given[: len(MADE.tokens)] == list(MADE.tokens):
            ids, behind = first, given[len(MADE.tokens) :]
        else:
            place = max(at for at in range(len(given)) if given[at : at + len(BEHIND)] == BEHIND) + len(BEHIND)
            ids, behind = then, given[place:]
        assert behind == ids[: len(behind)]
        return [[token] for token in ids[len(behind) :]]

    return ScriptedEngine(ModelCard("scripted", NOW, 131_072), script)


BEHIND = list(tokens.unpack(MADE.messages[2].tokens + PROMPT_END))


def sampled(rules: Rules, engine: ScriptedEngine, deaths: Sequence[int]) -> tuple[list[Any], Any]:
    """The events and the end of a response whose workers die after so many steps."""

    async def steps() -> tuple[list[Any], Any]:
        journal, events, ending = b"", new(rules).begin(), Ending.ERROR
        machine = began(rules)
        for count in [*deaths, None]:
            machine = began(rules)
            in_one_go(machine.replay(journal))
            over = ending_of(machine, WHOLE.sampling.max_tokens)
            if over is not None:
                ending = over
                break
            assert next_generation(WHOLE, machine).prompt[:OPENING] == WHOLE.prompt[:OPENING]
            sampling = Sampler(engine, WHOLE, machine, seconds=60)
            async with aclosing(sampling.steps()) as running:
                taken = 0
                while taken != count and (step := await anext(running, None)) is not None:
                    events += step.events
                    journal += tokens.pack(step.tokens)
                    taken += 1
            ending = sampling.ending
        events += machine.end(ending)
        return [as_json(event) for event in events], as_json(machine.result(ending, now=NOW))

    return asyncio.run(steps())


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    deaths=st.lists(st.integers(0, 25), max_size=4),
    first=st.just(harmony(SUMMARY)) | samples.rambling,
    then=samples.generations,
    parallel=st.sampled_from([1, 9]),
)
def test_it_is_the_same_however_many_workers_it_takes(
    deaths: list[int], first: list[int], then: list[int], parallel: int
) -> None:
    rules = msgspec.structs.replace(MADE.rules, callees=samples.RULES.callees, parallel=parallel, sealed=True)

    assert sampled(rules, by_prompt(first, then), deaths) == sampled(rules, by_prompt(first, then), [])

"""Conversations that have outgrown their threshold: compacted first, then answered, in one response."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.tools.callee import Callee
from service.engine.port import Generation, Sampling
from service.grammar.tags import HeaderState, schema_content
from service.harmony import tokens
from service.harmony.render import PROMPT_END
from service.responses.output import compaction as compacted
from service.responses.output.machine import Machine
from service.responses.output.reading import header_tag
from service.responses.output.rules import Rules
from service.responses.prompt.build import Prompt
from store.turn import StoredMessage
from tests.support.engine.scripted import ScriptedEngine
from tests.support.responses import samples
from tests.support.responses import sampling as sampling_of
from tests.support.responses.requests import Json, prompt
from tests.support.responses.samples import as_json, harmony

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


def made(*script: str, rules: Rules = MADE.rules, budget: int = 500) -> tuple[Machine, Any, list[Generation]]:
    sampling = msgspec.structs.replace(WHOLE.sampling, max_tokens=budget)
    return asyncio.run(sampling_of.made(new(rules), msgspec.structs.replace(WHOLE, sampling=sampling), *script))


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
        assert given[:OPENING] == list(WHOLE.prompt[:OPENING])
        if given[: len(MADE.tokens)] == list(MADE.tokens):
            ids, behind = first, given[len(MADE.tokens) :]
        else:
            place = max(at for at in range(len(given)) if given[at : at + len(BEHIND)] == BEHIND) + len(BEHIND)
            ids, behind = then, given[place:]
        assert behind == ids[: len(behind)]
        return [[token] for token in ids[len(behind) :]]

    return sampling_of.playing(script)


BEHIND = list(tokens.unpack(MADE.messages[2].tokens + PROMPT_END))


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

    one, other = (
        asyncio.run(sampling_of.survived(lambda: new(rules), by_prompt(first, then), WHOLE, each))
        for each in (deaths, list[int]())
    )

    assert one == other

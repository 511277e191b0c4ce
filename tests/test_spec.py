"""What a queued response is made of: it comes back as it went, and any worker asks the engine the same of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.port import Sampling
from service.harmony import tokens
from service.responses import plan as specs
from service.responses.output.machine import Ending
from service.responses.plan import JobSpec, decode, encode, generation_of, machine_of
from service.responses.rules import Rules
from store.errors import NewerFormat
from store.turn import StoredMessage
from tests.protocol import event_samples, samples
from tests.protocol.samples import NOW, harmony, run

PROMPT = [200006, 1, 2, 3]


def spec(max_tokens: int = 100, rules: Rules | None = samples.RULES, **members: Any) -> JobSpec:
    """A job of a response that has these members, and goes by these rules."""
    base = msgspec.structs.replace(samples.created(), background=True, **members)
    return JobSpec(
        id=base.id,
        parent=None,
        stored=True,
        prompt=tokens.pack(PROMPT),
        sampling=Sampling(max_tokens, temperature=0.5, stop_ids=tokens.STOPS),
        model="gpt-oss-demo",
        affinity="a",
        cache_salt="b",
        trace=(("traceparent", "00-1-2-03"),),
        functions=frozenset(),
        base=msgspec.json.encode(base),
        messages=(StoredMessage("user", tokens.pack([1, 2])),),
        items=b"[{}]",
        rules=rules,
    )


names = st.none() | event_samples.texts
messages = st.builds(StoredMessage, event_samples.texts, st.binary(), names, names, names, names, names)
job_specs = st.builds(
    JobSpec,
    id=event_samples.texts,
    parent=names,
    stored=st.booleans(),
    prompt=st.binary(),
    sampling=st.builds(Sampling, st.integers(1, 2**31), st.floats(0, 2), seed=st.none() | st.integers(0, 2**60)),
    model=event_samples.texts,
    affinity=event_samples.texts,
    cache_salt=names,
    trace=st.lists(st.tuples(event_samples.texts, event_samples.texts), max_size=2).map(tuple),
    functions=st.frozensets(event_samples.texts),
    base=event_samples.responses.map(msgspec.json.encode),
    messages=st.lists(messages, max_size=3).map(tuple),
    items=st.binary(),
    rules=st.none() | samples.all_rules,
    priority=st.integers(-5, 5),
)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(job_specs)
async def test_a_job_comes_back_as_it_went(job: JobSpec) -> None:
    assert await decode(await encode(job)) == job


@pytest.mark.parametrize("prompt", [tokens.pack(range(200_000)), tokens.pack([7] * 200_000)], ids=["noise", "small"])
async def test_a_job_of_any_length_comes_back_as_it_went(prompt: bytes) -> None:
    job = msgspec.structs.replace(spec(), prompt=prompt)

    assert await decode(await encode(job)) == job


async def test_a_long_prompt_is_stored_smaller() -> None:
    job = msgspec.structs.replace(spec(), prompt=tokens.pack(harmony("word after word " * 1000)))

    assert len(await encode(job)) < len(job.prompt) / 10


async def test_a_tool_may_have_numbers_of_any_size() -> None:
    tools = [{"type": "function", "name": "f", "parameters": {"maximum": 10**30}}]
    back = await decode(await encode(spec(tools=tools)))

    assert back.response.tools == tools


async def test_a_newer_job_is_refused_by_its_version() -> None:
    with pytest.raises(NewerFormat) as caught:
        await decode(bytes([specs.FORMAT + 1]) + b"whatever")
    assert caught.value.version == specs.FORMAT + 1


@pytest.mark.parametrize("blob", [b"", b"\0abc"])
async def test_bytes_that_no_release_wrote_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="was not written by this store"):
        await decode(blob)


def test_a_machine_of_a_job_counts_its_prompt_and_knows_its_functions() -> None:
    machine = machine_of(spec())
    run(machine, [harmony("<|channel|>functions.lookup<|message|>{}<|call|>")], background=True)
    response = machine.result(Ending.STOP, now=NOW)

    assert response.usage is not None
    assert response.usage.input_tokens == len(PROMPT)
    assert [item.id[:3] for item in response.output] == ["fc_"]
    assert response.background


def test_a_job_of_the_first_release_goes_by_the_functions_that_it_names() -> None:
    old = spec(rules=None, parallel_tool_calls=False)
    machine = machine_of(msgspec.structs.replace(old, functions=frozenset({"lookup"})))

    assert [callee.recipient for callee in machine.rules.callees] == ["functions.lookup"]
    assert machine.rules.parallel == 1


def test_the_engine_is_asked_what_the_job_says() -> None:
    job = spec(max_tokens=10)
    whole = generation_of(job)

    assert (list(whole.prompt), whole.sampling) == (PROMPT, job.sampling)
    assert (whole.id, whole.affinity, whole.cache_salt, whole.trace) == (job.id, "a", "b", job.trace)

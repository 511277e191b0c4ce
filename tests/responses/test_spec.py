"""What a queued response is made of: it comes back as it went, and any worker asks the engine the same of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import Generation, Sampling
from service.harmony import tokens
from service.responses import plan as specs
from service.responses.output.rules import Rules
from service.responses.plan import Plan, decode, encode
from store.errors import NewerFormat
from store.turn import StoredMessage
from tests.support.responses import event_samples, samples

PROMPT = [200006, 1, 2, 3]


def spec(max_tokens: int = 100, rules: Rules = samples.RULES, **members: Any) -> Plan:
    """The plan of a response that has these members, and goes by these rules."""
    base = msgspec.structs.replace(samples.created(), background=True, **members)
    sampling = Sampling(max_tokens, temperature=0.5, stop_ids=tokens.STOPS)
    return Plan(
        base=base,
        generation=Generation(
            id=base.id,
            prompt=tokens.unpack(tokens.pack(PROMPT)),
            sampling=sampling,
            model="gpt-oss-demo",
            affinity="a",
            cache_salt="b",
            trace=(("traceparent", "00-1-2-03"),),
            response=base.id,
        ),
        parent=None,
        stored=True,
        messages=(StoredMessage("user", tokens.pack([1, 2])),),
        items=b"[{}]",
        rules=rules,
    )


names = st.none() | event_samples.texts
messages = st.builds(StoredMessage, event_samples.texts, st.binary(), names, names, names, names, names)
generations = st.builds(
    Generation,
    id=event_samples.texts.filter(bool),
    prompt=st.lists(st.integers(0, 2**32 - 1), max_size=20).map(lambda ids: tokens.unpack(tokens.pack(ids))),
    sampling=st.builds(Sampling, st.integers(1, 2**31), st.floats(0, 2), seed=st.none() | st.integers(0, 2**60)),
    model=event_samples.texts,
    affinity=event_samples.texts,
    cache_salt=names,
    priority=st.integers(-5, 5),
    trace=st.lists(st.tuples(event_samples.texts, event_samples.texts), max_size=2).map(tuple),
)


def placed(plan: Plan) -> Plan:
    """The plan, whose generation knows which response it is of, and which one that continues."""
    generation = msgspec.structs.replace(plan.generation, response=plan.id, continues=plan.parent or "")
    return msgspec.structs.replace(plan, generation=generation)


plans = st.builds(
    Plan,
    base=event_samples.responses,
    generation=generations,
    parent=names,
    stored=st.booleans(),
    messages=st.lists(messages, max_size=3).map(tuple),
    items=st.binary(),
    rules=samples.all_rules,
    key=event_samples.texts,
).map(placed)


@given(plans)
async def test_a_job_comes_back_as_it_went(job: Plan) -> None:
    assert await decode(await encode(job)) == job


async def test_a_newer_job_is_refused_by_its_version() -> None:
    with pytest.raises(NewerFormat) as caught:
        await decode(bytes([specs.FORMAT + 1]) + b"whatever")
    assert caught.value.version == specs.FORMAT + 1

"""A queued response comes back as it went; one of a newer release is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import Generation, Sampling
from service.harmony import tokens
from service.responses import plan as specs
from service.responses.plan import Plan, decode, encode
from service.responses.readings import Readings
from store.errors import NewerFormat
from store.turn import StoredMessage
from tests.support.responses import event_samples, samples

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
    assert await decode(await encode(job), Readings().restore) == job


async def test_a_newer_job_is_refused_by_its_version() -> None:
    with pytest.raises(NewerFormat) as caught:
        await decode(bytes([specs.FORMAT + 1]) + b"whatever", Readings().restore)
    assert caught.value.version == specs.FORMAT + 1

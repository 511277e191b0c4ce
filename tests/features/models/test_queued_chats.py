"""A plan of a model with a chat template waits in the queue, and a worker of any process has it whole again."""

import msgspec
import pytest

from service.engine.port import Generation, Sampling
from service.features.models.templated import TemplatedChat, TemplatedReading, TemplatedReadings
from service.responses.output.reading import Reading, speaking_in
from service.responses.output.rules import Rules
from service.responses.plan import Plan, decode, encode
from service.responses.readings import Readings
from tests.support.responses import samples

WHOLE = Generation("resp_1", (1, 2, 3), Sampling(500))

CHAT = TemplatedChat(
    "qwen3", {"<think>": 5}, (7,), {"functions.f": "f"}, b"{}", b"[]", b"[]", b"[]", b"{}", turns=((1, 2),)
)


def planned(rules: Rules) -> Plan:
    return Plan(
        parent=None, stored=True, messages=(), items=b"[]", rules=rules, base=samples.created(), generation=WHOLE
    )


async def test_a_worker_reads_a_queued_response_as_it_was_planned() -> None:
    plan = planned(Rules(chat=CHAT))
    restored = await decode(await encode(plan), TemplatedReadings().restore)
    assert restored.rules == plan.rules
    assert isinstance(speaking_in(restored.rules).reading(3), TemplatedReading)


async def test_without_the_feature_such_a_plan_is_refused_and_others_are_harmonys() -> None:
    with pytest.raises(msgspec.ValidationError, match="doesn't use Harmony"):
        await decode(await encode(planned(Rules(chat=CHAT))), Readings().restore)
    restored = await decode(await encode(planned(Rules())), Readings().restore)
    assert type(speaking_in(restored.rules).reading(3)) is Reading

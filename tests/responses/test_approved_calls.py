"""Calls that somebody has approved, in the machine and the sampler: begun with, broken off, taken over."""

from collections.abc import Sequence

import msgspec
import pytest

from service.api.approval import Answer, Answers, ApprovalRequest
from service.api.outcome import Outcome
from service.api.response import Response
from service.api.tools.callee import Callee, Hosted
from service.engine.port import Generation, ModelCard, Sampling
from service.harmony import tokens
from service.harmony.render import message
from service.responses.output.journal import Batch, decode_sampled, encode_batch
from service.responses.output.machine import Machine
from service.responses.output.rules import Rules
from service.responses.plan import Plan, decode, encode
from service.responses.run import Taken
from service.steps import in_one_go
from store.history.approvals import Use
from store.turn import Messages
from tests.responses.test_hosted_calls import FINAL, OWN, PROMPT, THREE, WHOLE, Tools, kinds, made
from tests.support.engine.scripted import ScriptedEngine
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import NOW, as_json, harmony
from tests.support.responses.sampling import Sampler

PAY = Callee("pay", namespace="bank", hosted=Hosted("bank", "pay", approval=True))
READ = Callee("read", namespace="bank", hosted=Hosted("bank", "read", repeatable=True, approval=True))
RULES = Rules((PAY, READ, OWN), parallel=4, hosted_calls=64)
ID = f"mcpr_{'0' * 48}0003"
THANKS = message("Thanks.", "user")


def approved(tool: Callee = PAY, id: str = ID) -> Answer:
    """An answer that has a call made."""
    assert tool.hosted is not None
    request = ApprovalRequest(id, "bank", tool.name, '{"to":"Bob"}', "commentary")
    return Answer(request, tool.recipient, tool=tool.hosted)


def beginning(*given: Answer, behind: Messages = (THANKS,)) -> Rules:
    """The rules of a response that begins with these."""
    return msgspec.structs.replace(RULES, answers=Answers(given, behind))


async def new(request: ApprovalRequest) -> Use:
    """An approval that nobody has used."""
    return Use.NEW


async def run(
    rules: Rules, tools: Tools, *script: str, machine: Machine | None = None, use: Use = Use.NEW
) -> tuple[Response, list[Generation], list[Taken], Machine]:
    """A response to its end, checked, whose approvals are found so."""

    async def use_up(request: ApprovalRequest) -> Use:
        return use

    return await made(tools, *script, rules=rules, machine=machine, use_up=use_up)


def said(machine: Machine) -> list[str]:
    return [tokens.decode(tokens.unpack(each.tokens)) for each in machine.messages]


async def test_all_that_was_approved_is_called_whatever_the_bound_and_then_none() -> None:
    rules = msgspec.structs.replace(beginning(approved(), approved(READ)), hosted_calls=1)
    tools = Tools(THREE, THREE)
    response, _, _, machine = await run(rules, tools, FINAL)

    assert (len(tools.calls), response.status) == (2, "completed")
    first, second = said(machine)[:2]
    assert ("No more calls" in first, "No more calls" in second) == (False, True)


async def test_what_the_caller_said_is_kept_where_the_calls_are_broken_off() -> None:
    machine = samples.machine(beginning(approved(), approved(READ)))
    told = machine.begin()
    sampling: list[Sampler] = []
    tools = Tools(during=lambda: sampling[0].stop())
    engine = ScriptedEngine(ModelCard("scripted", NOW, 131_072), [harmony(FINAL)])
    sampling.append(Sampler(engine, WHOLE, machine, tools, use_up=new, seconds=60))
    told += [event async for step in sampling[0].steps() for event in step.events]
    told += machine.end(sampling[0].ending)
    told += machine.terminal(machine.result(sampling[0].ending, now=NOW))

    check_stream([as_json(event) for event in told])
    assert (len(tools.calls), tools.cancelled, engine.generations) == (1, 1, [])
    assert [each.role for each in machine.messages] == ["tool", "user"]
    assert machine.gone_on == [ID]


# --- workers that take over ---


def replayed(rules: Rules, steps: Sequence[Taken]) -> Machine:
    """A machine to which steps that went through a log are told."""
    packed, outcomes = b"", list[Outcome]()
    for step in steps:
        part = decode_sampled(encode_batch(Batch([], tokens.pack(step.tokens), None, (), _known(step))))
        packed, outcomes = packed + part.tokens, [*outcomes, *part.outcomes]
    machine = samples.machine(rules)
    machine.begin()
    in_one_go(machine.replay(packed, None, outcomes))
    return machine


def _known(step: Taken) -> tuple[Outcome, ...]:
    return () if step.outcome is None else (step.outcome,)


@pytest.mark.parametrize(
    ("tool", "use", "calls", "status"),
    [
        (PAY, Use.NEW, 1, "completed"),  # nobody can have made it
        (PAY, Use.AGAIN, 1, "completed"),  # this run alone has begun it
        (PAY, Use.BEGUN, 0, "failed"),
        (READ, Use.NEW, 1, "completed"),
        (READ, Use.BEGUN, 1, "completed"),
        (READ, Use.GONE, 0, "failed"),
    ],
)
async def test_of_a_call_that_was_begun_its_approval_says_whether_it_can_have_been_made(
    tool: Callee, use: Use, calls: int, status: str
) -> None:
    rules = beginning(approved(tool))
    tools = Tools(THREE)
    response, _, _, _ = await run(rules, tools, FINAL, machine=replayed(rules, []), use=use)

    assert (len(tools.calls), kinds(response)[0]) == (calls, f"mcp_call {status}")


async def test_a_plan_keeps_its_rules_whatever_they_approve() -> None:
    base = samples.machine(RULES).snapshot()
    generation = Generation(base.id, PROMPT, Sampling(10))
    for rules in (beginning(approved()), RULES, Rules((OWN,))):
        plan = Plan(base=base, generation=generation, parent=None, stored=True, messages=(), items=b"[]", rules=rules)
        assert (await decode(await encode(plan))).rules == rules

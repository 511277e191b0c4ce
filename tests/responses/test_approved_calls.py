"""Calls that somebody has to approve, in the machine and the sampler: asked for, begun with, broken off, taken over."""

from collections.abc import Sequence

import msgspec
import pytest

from service.api.approval import ANSWERED, ASKED, Answer, Answers, ApprovalRequest, waiting
from service.api.events import Event
from service.api.outcome import Outcome
from service.api.response import McpApprovalRequest, McpCall, Response
from service.api.tools.callee import Callee, Hosted
from service.engine.port import Generation, ModelCard, Sampling
from service.harmony import tokens
from service.harmony.render import message
from service.responses.output.journal import Batch, decode_sampled, encode_batch
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import Phase
from service.responses.output.rules import Rules
from service.responses.plan import Plan, decode, encode, turn_of
from service.responses.run import Taken
from service.steps import in_one_go
from store.errors import StoreUnavailable
from store.history.approvals import Use
from store.turn import Chain, Messages
from tests.responses.test_hosted_calls import CALL_OWN, FINAL, OWN, PROMPT, THREE, WHOLE, Tools, kinds
from tests.support.engine.scripted import ScriptedEngine
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import NOW, as_json, harmony
from tests.support.responses.sampling import Sampler

PAY = Callee("pay", namespace="bank", hosted=Hosted("bank", "pay", approval=True))
READ = Callee("read", namespace="bank", hosted=Hosted("bank", "read", repeatable=True, approval=True))
RULES = Rules((PAY, READ, OWN), parallel=4, hosted_calls=64)
CALL_PAY = '<|channel|>commentary to=bank.pay <|constrain|>json<|message|>{"to":"Bob"}<|call|>'
THEN = "<|start|>assistant"

ID = f"mcpr_{'0' * 48}0003"
THANKS = message("Thanks.", "user")


def approved(tool: Callee = PAY, id: str = ID) -> Answer:
    """An answer that has a call made."""
    assert tool.hosted is not None
    request = ApprovalRequest(id, "bank", tool.name, '{"to":"Bob"}', "commentary")
    return Answer(request, tool.recipient, tool=tool.hosted)


def denied() -> Answer:
    """An answer by which a call isn't made."""
    told = message("No.", "tool", name=PAY.recipient, channel="commentary", recipient="assistant")
    return msgspec.structs.replace(approved(), tool=None, told=told)


def beginning(*given: Answer, behind: Messages = (THANKS,)) -> Rules:
    """The rules of a response that begins with these."""
    return msgspec.structs.replace(RULES, answers=Answers(given, behind))


async def new(request: ApprovalRequest) -> Use:
    """An approval that nobody has used."""
    return Use.NEW


async def run(
    rules: Rules, tools: Tools, *script: str, machine: Machine | None = None, use: Use | None = Use.NEW
) -> tuple[Response, list[Generation], list[Taken], Machine]:
    """A response to its end, checked; without a `use` the store is away."""
    engine = ScriptedEngine(ModelCard("scripted", NOW, 131_072), *([harmony(text)] for text in script))
    told: list[Event] = []
    if machine is None:
        machine = samples.machine(rules)
        told = machine.begin()

    async def use_up(request: ApprovalRequest) -> Use:
        if use is None:
            raise StoreUnavailable("it is away")
        return use

    sampling = Sampler(engine, WHOLE, machine, tools, use_up=use_up, seconds=60)
    steps = [step async for step in sampling.steps()]
    told += [event for step in steps for event in step.events]
    told += machine.end(sampling.ending)
    response = machine.result(sampling.ending, now=NOW)
    told += machine.terminal(response)
    if told[0].sequence_number == 0:
        check_stream([as_json(event) for event in told])
    return response, engine.generations, steps, machine


def said(machine: Machine) -> list[str]:
    """What its messages say."""
    return [tokens.decode(tokens.unpack(each.tokens)) for each in machine.messages]


async def test_a_call_that_is_to_be_approved_is_asked_for_and_noted_beside_its_message() -> None:
    tools = Tools()
    response, _, _, machine = await run(RULES, tools, CALL_PAY + THEN + CALL_OWN + THEN + CALL_PAY + THEN + FINAL)

    assert kinds(response) == ["mcp_approval_request", "function_call completed", "mcp_approval_request"]
    asked = response.output[0]
    assert isinstance(asked, McpApprovalRequest)
    assert (asked.server_label, asked.name, asked.arguments) == ("bank", "pay", '{"to":"Bob"}')
    assert (response.status, tools.calls, len(machine.messages)) == ("completed", [], 3)
    assert machine.messages[0].tokens == tokens.pack(harmony(THEN + CALL_PAY))
    assert [note.role for note in machine.notes] == [ASKED, ASKED]
    chain = Chain(("resp_1",), ((*machine.messages, *machine.notes),))
    assert waiting(chain.notes()) == machine.asked
    assert waiting(chain.notes())[0].id == asked.id


@pytest.mark.parametrize("ending", [Ending.LENGTH, Ending.ABORT])
def test_a_call_that_was_not_ended_is_not_asked_for(ending: Ending) -> None:
    machine = samples.machine(RULES)
    machine.begin()
    machine.feed(harmony(CALL_PAY)[:-1])
    assert machine.snapshot().output == []
    machine.end(ending)

    assert (machine.output, machine.messages, machine.notes) == ([], [], [])


async def test_approved_calls_are_made_in_order_before_anything_is_sampled() -> None:
    other = Outcome("completed", "4", output="4")
    tools = Tools(THREE, other)
    rules = beginning(approved(), denied(), approved(READ, ID[:-1] + "5"))
    response, generations, _, machine = await run(rules, tools, FINAL)

    assert [call.tool.tool for call in tools.calls] == ["pay", "read"]
    assert kinds(response) == ["mcp_call completed", "mcp_call completed", "message completed"]
    shown = response.output[0]
    assert isinstance(shown, McpCall)
    assert (shown.approval_request_id, shown.arguments, shown.output) == (ID, '{"to":"Bob"}', "3")
    told = [
        *harmony("<|start|>bank.pay to=assistant<|channel|>commentary<|message|>3<|end|>"),
        *harmony("<|start|>bank.pay to=assistant<|channel|>commentary<|message|>No.<|end|>"),
        *harmony("<|start|>bank.read to=assistant<|channel|>commentary<|message|>4<|end|>"),
    ]
    behind = [*told, *harmony("<|start|>user<|message|>Thanks.<|end|><|start|>assistant")]
    assert [list(each.prompt) for each in generations] == [[*PROMPT, *behind]]
    assert response.usage is not None
    assert response.usage.input_tokens == samples.PROMPT_TOKENS + len(behind)
    assert response.usage.output_tokens_details.tool_output_tokens == len(told)
    assert [note.role for note in machine.notes] == [ANSWERED, ANSWERED]
    assert [each.role for each in machine.messages] == ["tool", "tool", "tool", "user", "assistant"]


async def test_all_that_was_approved_is_called_whatever_the_bound_and_then_none() -> None:
    rules = msgspec.structs.replace(beginning(approved(), approved(READ)), hosted_calls=1)
    tools = Tools(THREE, THREE)
    response, _, _, machine = await run(rules, tools, FINAL)

    assert (len(tools.calls), response.status) == (2, "completed")
    first, second = said(machine)[:2]
    assert ("No more calls" in first, "No more calls" in second) == (False, True)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (Use.GONE, "Another response has used this approval"),
        (Use.UNKNOWN, "Another response has used this approval"),
        (None, "could not be used up"),
    ],
)
async def test_without_its_approval_no_call_is_made(use: Use | None, told: str) -> None:
    tools = Tools()
    response, generations, _, _ = await run(beginning(approved()), tools, FINAL, use=use)

    assert (tools.calls, kinds(response)) == ([], ["mcp_call failed", "message completed"])
    assert told in tokens.decode(generations[0].prompt[4:])


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
    assert [note.name for note in machine.notes] == [ID]


def test_a_response_that_never_began_keeps_what_the_caller_said_and_the_approval() -> None:
    machine = samples.machine(beginning(approved()))
    machine.queued()
    machine.end(Ending.ABORT)

    assert (machine.messages, machine.notes, machine.output) == ([THANKS], [], [])


def test_calls_that_are_approved_are_no_answer_for_a_machine_that_samples_nothing() -> None:
    machine = samples.machine(beginning(approved()))
    machine.begin(samples=False)

    assert (machine.phase, machine.pending) == (Phase.SAMPLING, None)


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


async def test_whoever_takes_over_stands_where_the_one_before_did() -> None:
    rules = beginning(approved(), approved(READ))
    whole, _, steps, last = await run(rules, Tools(THREE, THREE), FINAL)

    ends = 0
    for died in range(len(steps) + 1):
        machine = replayed(rules, steps[:died])
        taken = sum(len(step.tokens) for step in steps[:died])
        left = tokens.decode([]) if taken else FINAL
        tools = Tools(THREE, THREE)
        if machine.phase is Phase.CALLING:
            assert machine.pending is not None
            assert machine.pending.begun
        if taken:
            continue
        response, _, _, again = await run(rules, tools, left, machine=machine)
        assert response.output == whole.output
        assert again.messages == last.messages
        ends += 1
    assert ends >= 5


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


async def test_a_turn_has_what_was_said_around_the_calls_in_order() -> None:
    before = message("Go.", "user")
    rules = beginning(approved())
    _, _, _, machine = await run(rules, Tools(THREE), FINAL)
    base = machine.snapshot()
    generation = Generation(base.id, PROMPT, Sampling(10))
    plan = Plan(
        base=base, generation=generation, parent=None, stored=True, messages=(before,), items=b"[]", rules=rules
    )
    turn = turn_of(plan, machine, machine.result(Ending.STOP, now=NOW))

    assert [each.role for each in turn.messages] == ["user", "tool", "user", "assistant", ANSWERED]

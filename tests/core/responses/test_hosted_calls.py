"""Tools that the service runs: the loop of a response, and what the model is told.

The engine goes by a script, and the tools answer at once with what was asked of them.
"""

import msgspec
import pytest

from service.api.approving import MayCall
from service.api.outcome import Answers, ApprovalOutcome, ApprovalRequest, HostedCall, Outcome
from service.api.response import Response
from service.api.tools.callee import Callee, Hosted
from service.engine.port import Generation, Sampling
from service.harmony import tokens
from service.harmony.render import message
from service.responses.output.rules import Rules
from service.responses.plan import Plan, decode, encode
from service.responses.readings import Readings
from service.steps import in_one_go
from tests.support.responses import samples
from tests.support.responses.samples import harmony
from tests.support.responses.sampling import made

PROMPT = [200006, 1, 2, 3]
WHOLE = Generation("resp_1", PROMPT, Sampling(500, stop_ids=tokens.ENDS))
ADD = Callee("add", namespace="maths", hosted=Hosted("maths", "add"))
OWN = Callee("own")
RULES = Rules((ADD, OWN), parallel=4, hosted_calls=64)
CALL = '<|channel|>commentary to=maths.add <|constrain|>json<|message|>{"a":1,"b":2}<|call|>'
FINAL = "<|channel|>final<|message|>It is 3.<|return|>"
THREE = Outcome("completed", "3", output="3")


class Tools:
    """Tools that answer in turn, and what they were asked."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.calls: list[HostedCall] = []
        self._outcomes = list(outcomes)

    async def call(self, call: HostedCall) -> Outcome:
        self.calls.append(call)
        return self._outcomes.pop(0)

    async def aclose(self) -> None:
        """There is nothing to let go of."""


def kinds(response: Response) -> list[str]:
    """The kinds of its items, and how each ended."""
    return [f"{item.__struct_config__.tag} {getattr(item, 'status', '')}".strip() for item in response.output]


async def test_what_tools_say_takes_nothing_of_the_tokens_that_the_response_may_have() -> None:
    budget = len(harmony(CALL)) + len(harmony(FINAL))
    whole = msgspec.structs.replace(WHOLE, sampling=Sampling(budget, stop_ids=tokens.ENDS))
    _, response, generations = await made(
        samples.machine(RULES), whole, CALL, FINAL, tools=Tools(Outcome("completed", "x " * 500))
    )

    assert (response.status, generations[1].sampling.max_tokens) == ("completed", len(harmony(FINAL)))
    assert response.usage is not None
    assert response.usage.output_tokens == budget
    assert response.usage.output_tokens_details.tool_output_tokens > 500


async def test_what_tools_say_fills_the_context() -> None:
    rules = msgspec.structs.replace(RULES, context_tokens=samples.PROMPT_TOKENS + 300)
    _, response, generations = await made(
        samples.machine(rules), WHOLE, CALL, FINAL, tools=Tools(Outcome("completed", "x " * 500))
    )

    assert (response.status, len(generations)) == ("incomplete", 1)


async def test_behind_the_last_call_the_model_must_answer() -> None:
    tools = Tools(THREE, THREE)
    rules = msgspec.structs.replace(RULES, hosted_calls=2)
    _, response, generations = await made(samples.machine(rules), WHOLE, CALL, CALL, FINAL, tools=tools)

    assert kinds(response) == ["mcp_call completed", "mcp_call completed", "message completed"]
    assert "No more calls are possible" not in tokens.decode(generations[1].prompt[4:])
    assert "No more calls are possible" in tokens.decode(generations[2].prompt[4:])
    assert "to=maths" not in (generations[2].sampling.structural_tag or "")


async def test_a_model_that_calls_on_beyond_the_bound_fails() -> None:
    rules = msgspec.structs.replace(RULES, hosted_calls=1)
    _, response, _ = await made(samples.machine(rules), WHOLE, CALL, CALL, CALL, tools=Tools(THREE))

    assert kinds(response) == ["mcp_call completed", "mcp_call failed", "mcp_call failed"]
    assert response.status == "failed"


async def test_a_required_call_is_made_once() -> None:
    rules = msgspec.structs.replace(RULES, choice="required")
    _, response, generations = await made(samples.machine(rules), WHOLE, CALL, FINAL, tools=Tools(THREE))

    assert response.status == "completed"
    assert "final" not in (generations[0].sampling.structural_tag or "")
    assert generations[1].sampling.structural_tag is None


# --- calls that somebody has approved ---


def approved(repeatable: bool) -> Rules:
    """The rules of a response that begins with a call that somebody has approved."""
    tool = Hosted("bank", "pay", repeatable=repeatable, approval=True)
    request = ApprovalRequest(f"mcpr_{'0' * 48}0003", "bank", "pay", '{"to":"Bob"}', "commentary")
    callee = Callee("pay", namespace="bank", hosted=tool)
    answers = Answers((ApprovalOutcome(request, callee.recipient, tool=tool),), (message("Thanks.", "user"),))
    return Rules((callee, OWN), parallel=4, hosted_calls=64, answers=answers)


@pytest.mark.parametrize(
    ("repeatable", "use", "calls", "status"),
    [
        (False, MayCall.YES, 1, "completed"),  # nobody can have made it
        (False, MayCall.BEGUN, 0, "failed"),
        (True, MayCall.YES, 1, "completed"),
        (True, MayCall.BEGUN, 1, "completed"),
        (True, MayCall.NO, 0, "failed"),
    ],
)
async def test_of_a_call_that_was_begun_its_approval_says_whether_it_can_have_been_made(
    repeatable: bool, use: MayCall, calls: int, status: str
) -> None:
    async def use_up(request: ApprovalRequest) -> MayCall:
        return use

    rules, tools = approved(repeatable), Tools(THREE)
    machine = samples.machine(rules)
    machine.begin()
    in_one_go(machine.replay(b"", None, []))
    _, response, _ = await made(machine, WHOLE, FINAL, tools=tools, use_up=use_up)

    assert (len(tools.calls), kinds(response)[0]) == (calls, f"mcp_call {status}")


async def test_a_plan_keeps_its_rules_whatever_they_approve() -> None:
    base = samples.machine(RULES).snapshot()
    generation = Generation(base.id, PROMPT, Sampling(10))
    for rules in (approved(False), RULES, Rules((OWN,))):
        plan = Plan(base=base, generation=generation, parent=None, stored=True, messages=(), items=b"[]", rules=rules)
        assert (await decode(await encode(plan), Readings().restore)).rules == rules

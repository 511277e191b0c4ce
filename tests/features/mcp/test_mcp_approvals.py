"""Calls that somebody has to approve: asked for, approved, denied or passed over, and made once at most."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.api.approving import Approvals
from service.api.outcome import ApprovalRequest
from service.errors import InvalidRequest
from service.features.mcp.approvals import AnsweredApprovals
from service.process import Settings
from service.responses.parent import Parent
from service.settings.core import parse_api_keys
from store.errors import StoreUnavailable
from store.history.approvals import StoredApprovals
from store.turn import Chain
from tests.core.api.test_replay import SAID, USER, shown
from tests.features.mcp.test_mcp_responses import ADD, allowing, call, kinds, server
from tests.support.service.background import ended
from tests.support.service.inside import Inside, ScriptedEngine, answer, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import made, prompts, streamed
from tests.support.tools.server import McpServer

CALL = " to=maths.add<|channel|>commentary <|constrain|>json<|message|>"
TOLD = "<|start|>maths.add to=assistant<|channel|>commentary<|message|>"
KEYS = ("one-key-of-a-tenant-0123", "another-key-of-one-4567")
DENIED = "The call was not approved."


def asking(fixture: McpServer, **members: Any) -> Any:
    """The declaration of a server whose tools somebody has to approve."""
    return server(fixture, **({"require_approval": None} | members))


def says(request: Any, approve: bool = True, **members: Any) -> Any:
    """What somebody says to a request for approval."""
    id = request["id"] if isinstance(request, dict) else request.id
    return {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve, **members}


async def asked(client: AsyncOpenAI, fixture: McpServer, **members: Any) -> Any:
    """A response that asks for approval of its last call."""
    wanted: Any = {"model": MODEL, "input": "2 + 40?", "tools": [asking(fixture)], "parallel_tool_calls": False}
    response = await client.responses.create(**(wanted | members))
    assert response.status == "completed"
    assert response.output[-1].type == "mcp_approval_request"
    return response


@asynccontextmanager
async def waiting(
    settings: Settings, fixture: McpServer, said: str
) -> AsyncIterator[tuple[Inside, AsyncOpenAI, ScriptedEngine, Any]]:
    """A service whose first response waits for an approval of `add`; behind that the model says this."""
    engine = scripted([call("add", ADD)], [answer(said)])
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client:
        yield inside, client, engine, await asked(client, fixture)


async def ask(client: AsyncOpenAI, fixture: McpServer, **members: Any) -> Any:
    """A response that may use the server."""
    return await client.responses.create(**({"model": MODEL, "tools": [asking(fixture)]} | members))


async def goes_on(client: AsyncOpenAI, before: Any, fixture: McpServer, **members: Any) -> Any:
    """The response behind one, by default to an approval of its last call."""
    said = {"input": [says(before.output[-1])]}
    return await ask(client, fixture, previous_response_id=before.id, **(said | members))


async def refused(doing: Any) -> Any:
    """The error of a request that is refused."""
    with pytest.raises(openai.BadRequestError) as error:
        await doing
    return error.value.body


async def test_a_call_that_is_to_be_approved_ends_the_response_and_is_made_in_the_next(
    settings: Settings, fixture: McpServer
) -> None:
    engine = scripted([[*thought("I add."), *then(call("add", ADD))]], [answer("It is 42.")])
    before = fixture.began("add")
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client:
        events = await streamed(inside, input="2 + 40?", tools=[asking(fixture)], parallel_tool_calls=False)
        first = events[-1]["response"]
        request = first["output"][-1]
        began = fixture.began("add")
        second = await made(
            inside, previous_response_id=first["id"], tools=[asking(fixture)], input=[says(request, reason="Fine.")]
        )
        items = await client.responses.input_items.list(second["id"])
        third = await client.responses.create(
            model=MODEL, input="Sure?", tools=[asking(fixture)], previous_response_id=second["id"]
        )

    assert (first["status"], kinds(first)) == ("completed", ["mcp_list_tools", "reasoning", "mcp_approval_request"])
    assert request == {
        "id": request["id"],
        "type": "mcp_approval_request",
        "server_label": "maths",
        "name": "add",
        "arguments": ADD,
    }
    assert request["id"].startswith("mcpr_")
    shown = [event for event in events if "item" in event and event["item"]["id"] == request["id"]]
    assert [event["type"] for event in shown] == ["response.output_item.added", "response.output_item.done"]
    assert began == before
    assert (second["status"], kinds(second)) == ("completed", ["mcp_call", "message"])
    made_call = second["output"][0]
    assert (made_call["approval_request_id"], made_call["arguments"]) == (request["id"], ADD)
    assert (made_call["status"], made_call["output"], made_call["error"]) == ("completed", "42", None)
    assert fixture.began("add") == before + 1
    (listed,) = [item for item in items.data if item.type == "mcp_approval_response"]
    assert listed.to_dict()["approval_request_id"] == request["id"]
    assert listed.to_dict()["reason"] == "Fine."
    one, two, three = prompts(engine)[-3:]
    assert two.startswith(one)
    assert two.endswith(f"{ADD}<|call|>{TOLD}42<|end|><|start|>assistant")
    assert f"{ADD}<|call|>{TOLD}42<|end|>" in three
    assert third.output_text == "It is 42."


@pytest.mark.parametrize(("reason", "told"), [(None, DENIED), ("Too risky.", f"{DENIED} Too risky.")])
async def test_a_call_that_is_denied_is_told_to_the_model(
    settings: Settings, fixture: McpServer, reason: str | None, told: str
) -> None:
    before = fixture.began("add")
    async with waiting(settings, fixture, "Then not.") as (inside, client, engine, first):
        said = says(first.output[-1], approve=False, reason=reason)
        second = await made(inside, previous_response_id=first.id, tools=[asking(fixture)], input=[said])
        again = client.responses.create(
            model=MODEL, previous_response_id=second["id"], tools=[asking(fixture)], input=[says(first.output[-1])]
        )
        error = await refused(again)

    assert kinds(second) == ["message"]
    assert prompts(engine)[-1].endswith(f"{ADD}<|call|>{TOLD}{told}<|end|><|start|>assistant")
    assert fixture.began("add") == before
    assert error["param"] == "input"


@pytest.mark.parametrize("erase", [True, False])
@pytest.mark.parametrize("where", ["waiting", "behind an approved one", "sent"])
async def test_the_reason_of_a_denial_goes_with_its_item(
    settings: Settings, fixture: McpServer, where: str, *, erase: bool
) -> None:
    engine = scripted([[*call("add", ADD), *then(call("fail", "{}"))]], [answer("Then not.")])
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client, inside.http() as http:
        first = await asked(client, fixture, parallel_tool_calls=True)
        one, two = first.output[-2:]
        sent: list[Any] = [
            says(one, approve=where == "behind an approved one"),
            says(two, approve=False, reason="Ada."),
        ]
        if where == "sent":
            sent = [one.to_dict(), two.to_dict(), *sent]
            conversation = (await client.conversations.create()).id
        else:
            conversation = (await client.conversations.create(extra_body={"harmonium": {"fork_of": first.id}})).id
        await ask(client, fixture, conversation=conversation, input=sent)
        assert "Ada." in prompts(engine)[-1]
        (item,) = [
            each.to_dict()
            async for each in client.conversations.items.list(conversation)
            if each.to_dict().get("reason") == "Ada."
        ]
        path = f"/v1/conversations/{conversation}/items/{item['id']}"
        assert (await http.delete(path, params={"erase": erase})).status_code == 200
        await ask(client, fixture, conversation=conversation, input="Sure?")
    assert "Ada." not in prompts(engine)[-1]
    assert prompts(engine)[-1].endswith("<|start|>user<|message|>Sure?<|end|><|start|>assistant")


async def test_a_conversation_that_goes_on_without_an_answer_goes_without_the_call(
    settings: Settings, fixture: McpServer
) -> None:
    before = fixture.began("add")
    async with waiting(settings, fixture, "Fine.") as (_, client, engine, first):
        second = await client.responses.create(model=MODEL, previous_response_id=first.id, input="Never mind.")
        again = goes_on(client, second, fixture, input=[says(first.output[-1])])
        error = await refused(again)

    assert prompts(engine)[-1].endswith(
        f"{TOLD}{DENIED}<|end|><|start|>user<|message|>Never mind.<|end|><|start|>assistant"
    )
    assert fixture.began("add") == before
    assert (error["param"], "waits for an answer" in error["message"]) == ("input", True)


async def test_several_calls_are_asked_for_at_once_and_made_in_order(settings: Settings, fixture: McpServer) -> None:
    calls = [*call("add", ADD), *then(call("fail", "{}")), *then(call("add", '{"a":1,"b":1}'))]
    engine = scripted([calls], [answer("So.")])
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client:
        first = await asked(client, fixture, parallel_tool_calls=True)
        one, two, three = first.output[-3:]
        second = await made(
            inside,
            previous_response_id=first.id,
            tools=[asking(fixture)],
            input=[{"role": "user", "content": "Two of them."}, *(says(three), says(two, approve=False), says(one))],
        )

    assert [item.type for item in first.output] == ["mcp_list_tools", *(["mcp_approval_request"] * 3)]
    assert kinds(second) == ["mcp_call", "mcp_call", "message"]
    assert [item["output"] for item in second["output"][:2]] == ["42", "2"]
    last = prompts(engine)[-1]
    denied = TOLD.replace("add", "fail") + DENIED
    answers = [f"{TOLD}42<|end|>", denied, f"{TOLD}2<|end|>"]
    places = [last.index(each) for each in (*answers, "Two of them.")]
    assert places == sorted(places)


# --- once ---


async def test_an_approval_is_good_for_one_call(settings: Settings, fixture: McpServer) -> None:
    before = fixture.began("add")
    async with waiting(settings, fixture, "42.") as (_, client, _, first):
        second = await goes_on(client, first, fixture)
        said = [says(first.output[-1])]
        errors = [await refused(goes_on(client, each, fixture, input=said)) for each in (first, second)]

    assert fixture.began("add") == before + 1
    assert [error["param"] for error in errors] == ["input", "input"]
    assert "has been used" in errors[0]["message"]
    assert "waits for an answer" in errors[1]["message"]


@pytest.mark.parametrize("background", [False, True])
async def test_of_forks_that_race_for_an_approval_one_makes_the_call(
    settings: Settings, fixture: McpServer, background: bool
) -> None:
    engine = scripted([call("add", ADD)], [answer("So.")])
    before = fixture.began("add")

    async def fork(client: AsyncOpenAI, first: Any) -> Any:
        try:
            response = await goes_on(client, first, fixture, background=background)
        except openai.BadRequestError as error:
            return error
        return await ended(client, response.id)

    async with (
        serving(allowing(settings, fixture), engine) as one,
        serving(allowing(settings, fixture), engine) as other,
        one.client() as here,
        other.client() as there,
    ):
        first = await asked(here, fixture)
        forks = await asyncio.gather(*(fork(client, first) for client in (here, there, here, there)))

    assert fixture.began("add") == before + 1
    ends = [fork if isinstance(fork, Exception) else fork.output[0].to_dict() for fork in forks]
    calls = [end for end in ends if isinstance(end, dict)]
    assert sorted(each["status"] for each in calls) == ["completed", *(["failed"] * (len(calls) - 1))]
    assert all("Another response has used" in str(each["error"]) for each in calls if each["status"] == "failed")


@pytest.mark.parametrize(
    "forge",
    [
        lambda item: says({"id": item["id"][:-1] + "f"}),
        lambda item: says({"id": "mcpr_1"}),
        lambda item: says({"id": f"mcpr_{'0' * 52}"}),
        lambda item: says({"id": f"mcpr_ff{'0' * 50}"}),
        lambda item: says({"id": item["id"].replace("mcpr_", "mcp_")}),
    ],
)
async def test_an_answer_to_nothing_is_refused(
    settings: Settings, fixture: McpServer, forge: Callable[[Any], Any]
) -> None:
    async with waiting(settings, fixture, "So.") as (_, client, _, first):
        error = await refused(goes_on(client, first, fixture, input=[forge(first.output[-1].to_dict())]))
        await goes_on(client, first, fixture)

    assert (error["param"], error["type"]) == ("input", "invalid_request_error")
    assert "No approval request" in error["message"]


async def test_a_request_is_answered_once_and_not_sent_beside_its_turn(settings: Settings, fixture: McpServer) -> None:
    async with waiting(settings, fixture, "So.") as (_, client, _, first):
        request = first.output[-1]
        both = [says(request), says(request, approve=False)]
        twice = await refused(goes_on(client, first, fixture, input=both))
        beside = await refused(goes_on(client, first, fixture, input=[request.to_dict(), says(request)]))

    assert (twice["param"], "Two items" in twice["message"]) == ("input", True)
    assert (beside["code"], beside["param"], beside["type"]) == (None, "input", "invalid_request_error")
    assert beside["message"].startswith(f"Duplicate item found with id {request.id}.")


@pytest.mark.parametrize("tools", ["none", "filtered"])
async def test_an_approval_of_a_tool_not_offered_is_refused(settings: Settings, fixture: McpServer, tools: str) -> None:
    async with waiting(settings, fixture, "42.") as (_, client, _, first):
        offered = [] if tools == "none" else [asking(fixture, allowed_tools=["fail"])]
        error = await refused(goes_on(client, first, fixture, tools=offered))
        second = await goes_on(client, first, fixture)

    assert (error["param"], "'add'" in error["message"]) == ("tools", True)
    assert kinds(second) == ["mcp_call", "message"]


@pytest.mark.parametrize("by_items", [False, True])
async def test_an_approval_is_for_the_server_that_was_shown_and_no_other_with_its_label(
    settings: Settings, fixture: McpServer, by_items: bool
) -> None:
    before = fixture.began("add")
    elsewhere = asking(fixture, server_url=f"{fixture.url}?another")
    async with waiting(settings, fixture, "42.") as (_, client, _, first):
        items: Any = resent(first) if by_items else []
        parent = None if by_items else first.id
        wanted: Any = {"model": MODEL, "previous_response_id": parent, "input": [*items, says(first.output[-1])]}
        error = await refused(client.responses.create(**wanted, tools=[elsewhere]))
        began = fixture.began("add")
        signed = asking(fixture, headers={"Authorization": "Bearer newer"})
        second = await client.responses.create(**wanted, tools=[signed])

    assert (error["param"], "server" in error["message"]) == ("input" if by_items else "tools", True)
    assert began == before
    assert next(item for item in second.output if item.type == "mcp_call").to_dict()["output"] == "42"


# --- clients that keep their history themselves ---


def resent(response: Any) -> list[Any]:
    """The items of a response, sent back as they came."""
    return [item.to_dict() for item in response.output]


@pytest.mark.parametrize("store", [True, False])
async def test_a_client_may_send_its_whole_history_with_an_approval_once(
    settings: Settings, fixture: McpServer, store: bool
) -> None:
    thinks = [*thought("I add."), *then(call("add", ADD))]
    engine = scripted([thinks], [answer("42.")], [answer("Yes.")])
    before = fixture.began("add")
    user: Any = {"role": "user", "content": "2 + 40?"}
    sealed: Any = {"store": store, "include": ["reasoning.encrypted_content"]}
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client:
        first = await client.responses.create(
            model=MODEL, input=[user], tools=[asking(fixture)], parallel_tool_calls=False, **sealed
        )
        history = [user, *resent(first), says(first.output[-1])]
        second = await client.responses.create(model=MODEL, input=history, tools=[asking(fixture)], **sealed)
        error = await refused(ask(client, fixture, input=history))
        later = [*history, *resent(second), {"role": "user", "content": "Sure?"}]
        await ask(client, fixture, input=later)

    assert kinds(second) == ["mcp_call", "message"]
    assert second.output[0].to_dict()["approval_request_id"] == first.output[-1].id
    assert fixture.began("add") == before + 1
    assert "has been used" in error["message"]
    one, two, three = prompts(engine)[-3:]
    assert two.startswith(one)
    assert two.endswith(f"I add.<|end|><|start|>assistant{CALL}{ADD}<|call|>{TOLD}42<|end|><|start|>assistant")
    assert three.count("to=maths.add") == 1
    answered = f"{TOLD}42<|end|><|start|>assistant<|channel|>final<|message|>42.<|end|>"
    assert three.endswith(f"{answered}<|start|>user<|message|>Sure?<|end|><|start|>assistant")


async def test_a_history_whose_call_is_another_one_by_now_is_refused(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([call("add", ADD)], [answer("42.")])
    before = fixture.began("add")
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client:
        first = await asked(client, fixture, store=False)
        request = first.output[-1].to_dict()
        for forged in (request | {"arguments": '{"a":1,"b":1}'}, request | {"name": "fail"}):
            wanted = [{"role": "user", "content": "Go."}, forged, says(request)]
            error = await refused(ask(client, fixture, input=wanted))
            assert "No approval request" in error["message"]
        alone = [request, says(request)]
        second = await ask(client, fixture, input=alone, store=False)

    assert second.output[-2].to_dict()["output"] == "42"
    assert fixture.began("add") == before + 1


async def test_another_tenant_can_approve_nothing(settings: Settings, fixture: McpServer) -> None:
    keys = parse_api_keys(f"one:{KEYS[0]},two:{KEYS[1]}")
    keyed = settings.model_copy(update={"api_keys": keys})
    engine = scripted([call("add", ADD)], [answer("42.")])
    async with (
        serving(allowing(keyed, fixture), engine) as inside,
        inside.client(KEYS[0]) as owner,
        inside.client(KEYS[1]) as stranger,
    ):
        first = await asked(owner, fixture)
        wanted: Any = {"model": MODEL, "input": [*resent(first), says(first.output[-1])], "tools": [asking(fixture)]}
        error = await refused(stranger.responses.create(**wanted))
        second = await owner.responses.create(**wanted)

    assert "No approval request" in error["message"]
    assert second.output[0].to_dict()["output"] == "42"


async def test_a_store_that_is_away_makes_no_call(
    settings: Settings, fixture: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    engine = scripted([call("add", ADD)], [answer("So.")])
    before = fixture.began("add")
    patient = allowing(settings, fixture, store_patience_seconds=0.1)
    async with serving(patient, engine) as inside, inside.client() as client:
        first = await asked(client, fixture)
        monkeypatch.setattr(StoredApprovals, "use_up", away)
        second = await goes_on(client, first, fixture)
    failed_call = second.output[0].to_dict()
    assert (failed_call["status"], "could not be used up" in str(failed_call["error"])) == ("failed", True)
    assert fixture.began("add") == before


@pytest.mark.parametrize("store", [True, False])
async def test_a_request_that_could_not_be_noted_fails_its_response(
    settings: Settings, fixture: McpServer, monkeypatch: pytest.MonkeyPatch, store: bool
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(StoredApprovals, "ask", away)
    patient = allowing(settings, fixture, store_patience_seconds=0.1)
    async with serving(patient, scripted([call("add", ADD)])) as inside:
        first = await made(inside, input="Go.", tools=[asking(fixture)], store=store)

    assert (first["status"], first["error"]["code"]) == ("failed", "server_error")


@pytest.mark.parametrize("goes_on", [False, True])
def test_whoever_is_known_by_words_alone_answers_no_request_and_neither_does_who_goes_on_from_there(
    goes_on: bool,
) -> None:
    requests = [ApprovalRequest(f"mcpr_{number}", "maths", "add", ADD) for number in range(2)]
    asking = [*(request.note for request in requests), requests[0].answer_note]
    parent = Parent(Chain(("resp_1",), (asking,)))
    assert parent.waiting == requests[1:]
    parent.disarm(())
    if goes_on:
        parent = Parent(Chain(("resp_1", "resp_2"), (asking, parent.disarming)))
    assert parent.waiting == []


class UnstoredApprovals(Approvals):
    """Approvals of which only items tell."""

    read = AnsweredApprovals


def test_approvals_of_which_nothing_came_are_left_out_behind_the_models_next_words() -> None:
    approvals = UnstoredApprovals()
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "t", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert shown(USER, request, answer, SAID, USER, approvals=approvals)[1] == [
        "mcp_approval_request",
        "mcp_approval_response",
    ]
    assert shown(USER, answer, SAID, USER, approvals=approvals)[1] == ["mcp_approval_response"]
    with pytest.raises(InvalidRequest, match="waits for an answer"):
        shown(USER, SAID, answer, approvals=approvals)

"""Trajectories over HTTP: every prompt is the one that the engine got, and every answer what it sampled."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, MESSAGE, encode
from service.process import Settings, load_settings
from tests.features.tenants.admin.test_admin import administered, new_key
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.inside import Inside, answer, scripted, serving, then, thought
from tests.support.service.process import MODEL

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
AFTER = "x-harmonium-after"


@pytest.fixture
def noting(settings: Settings) -> Settings:
    return load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, trajectories=True)


def call(arguments: str) -> list[int]:
    header = [CHANNEL, *encode("commentary to=functions.weather "), CONSTRAIN, *encode("json")]
    return [*header, MESSAGE, *encode(arguments), CALL]


async def lines(service: Inside, **query: str) -> list[dict[str, Any]]:
    return (await page(service, **query))[0]


async def page(service: Inside, **query: str) -> tuple[list[dict[str, Any]], str]:
    async with service.http() as http:
        answered = await http.get("/v1/trajectories", params=query)
        assert answered.status_code == 200, answered.text
        return [json.loads(line) for line in answered.text.splitlines()], answered.headers.get(AFTER, "")


def metrics(trajectory: dict[str, Any]) -> list[dict[str, Any]]:
    return [step["metrics"] for step in trajectory["steps"] if step["source"] == "agent"]


def check(trajectory: dict[str, Any]) -> None:
    """Each prompt goes on from the one before, or says how much of that it has."""
    before: list[int] = []
    for made in metrics(trajectory):
        prompt, cut = made["prompt_token_ids"], made.get("extra", {}).get("cut")
        if cut is None:
            assert prompt[: len(before)] == before
        else:
            at, of = cut["at"], cut["of"]
            assert (len(before), prompt[:at], prompt[at]) == (of, before[:at], prompt[at])
            assert at == of or prompt[at] != before[at]
        before = prompt + made["completion_token_ids"]


def engine_of(*scripts: Sequence[Sequence[int]]) -> ScriptedEngine:
    return scripted(*scripts)


async def test_every_prompt_is_what_the_engine_got_and_every_answer_what_it_sampled(noting: Settings) -> None:
    said = [
        [thought("They want weather."), then(call("{}"))],
        [thought("It rains."), then(answer("Rain."))],
        [answer("You are welcome.")],
    ]
    engine = engine_of(*said)
    async with serving(noting, engine) as service, service.client() as client:
        ask = client.responses.create
        first = await ask(model=MODEL, input="How is the weather?", instructions="Be brief.", tools=[TOOL])  # type: ignore[list-item]
        made = next(item for item in first.output if item.type == "function_call")
        told: Any = [{"type": "function_call_output", "call_id": made.call_id, "output": "Rain, 9 °C"}]
        second = await ask(
            model=MODEL, input=told, previous_response_id=first.id, instructions="Be brief.", tools=[TOOL]
        )  # type: ignore[call-overload]
        third = await ask(model=MODEL, input="Thanks!", previous_response_id=second.id)
        (found,) = await lines(service, id=third.id)
    assert (found["schema_version"], found["trajectory_id"]) == ("ATIF-v1.7", third.id)
    assert found["extra"]["turns"] == [first.id, second.id, third.id]
    generated = metrics(found)
    assert [each["prompt_token_ids"] for each in generated] == [list(each.prompt) for each in engine.generations]
    assert [each["completion_token_ids"] for each in generated] == [
        [id for message in each for id in message] for each in said
    ]
    assert [len(each["logprobs"]) for each in generated] == [len(each["completion_token_ids"]) for each in generated]
    assert set(generated[0]["logprobs"]) == {-0.25}
    check(found)
    cuts = [each.get("extra", {}).get("cut", {}).get("why") for each in generated]
    assert cuts == [None, None, "template"], "the reasoning before an answer is left out behind it"
    steps = found["steps"]
    assert [step["source"] for step in steps] == ["user", "agent", "agent", "user", "agent"]
    assert steps[1]["tool_calls"][0] | {"tool_call_id": ""} == {
        "tool_call_id": "",
        "function_name": "weather",
        "arguments": {},
    }
    assert steps[1]["observation"]["results"] == [{"source_call_id": made.call_id, "content": "Rain, 9 °C"}]
    assert (steps[2]["reasoning_content"], steps[2]["message"]) == ("It rains.", "Rain.")


async def test_no_client_sees_log_probabilities_that_it_did_not_ask_for(noting: Settings) -> None:
    async with serving(noting, engine_of([answer("Hello.")])) as service, service.client() as client:
        made = await client.responses.create(model=MODEL, input="Hi")
        assert made.output[0].to_dict()["content"][0]["logprobs"] == []  # type: ignore[index]
        asked = await client.responses.create(
            model=MODEL, input="Hi", include=["message.output_text.logprobs"], top_logprobs=1
        )
        assert len(asked.output[0].to_dict()["content"][0]["logprobs"]) == 2  # type: ignore[index, arg-type]
        for id in (made.id, asked.id):
            (found,) = await lines(service, id=id)
            assert len(metrics(found)[0]["logprobs"]) == len(answer("Hello."))


async def test_without_the_setting_ids_are_null_and_the_words_are_there(settings: Settings) -> None:
    engine = engine_of([answer("Hello.")])
    async with serving(settings, engine) as service, service.client() as client:
        made = await client.responses.create(model=MODEL, input="Hi")
        (found,) = await lines(service, id=made.id)
        (rollout,) = await lines(service, id=made.id, format="gym")
    assert engine.generations[0].sampling.logprobs is None
    (told,) = metrics(found)
    assert told["extra"]["cut"]["why"] == "not noted"
    assert told["completion_tokens"] == len(answer("Hello."))
    assert "prompt_token_ids" not in told
    (item,) = rollout["response"]["output"]
    assert item["prompt_token_ids"] is item["generation_token_ids"] is item["generation_log_probs"] is None
    assert item["content"][0]["text"] == "Hello."


def sent_call(id: str, city: str) -> list[Any]:
    """A call with its outcome, as clients send them again."""
    made = {"type": "function_call", "call_id": id, "name": "weather", "arguments": json.dumps({"city": city})}
    return [made, {"type": "function_call_output", "call_id": id, "output": f"Rain in {city}"}]


async def test_of_a_history_that_came_at_once_each_outcome_is_of_the_call_before_it(settings: Settings) -> None:
    asked: list[Any] = [{"role": "user", "content": "Hi"}, *sent_call("c1", "Rome"), *sent_call("c1", "Bonn")]
    async with serving(settings, engine_of([answer("Wet.")])) as service, service.client() as client:
        made = await client.responses.create(model=MODEL, input=asked)
        (found,) = await lines(service, id=made.id)
    told = [(step["source"], step.get("observation", {}).get("results")) for step in found["steps"]]
    rains = [[{"source_call_id": "c1", "content": f"Rain in {city}"}] for city in ("Rome", "Bonn")]
    assert told == [("user", None), ("agent", rains[0]), ("agent", rains[1]), ("agent", None)]


async def test_calls_and_outcomes_of_every_kind_say_what_was_done_and_what_came_of_it(settings: Settings) -> None:
    patch = {"type": "delete_file", "path": "a"}
    ended = {"stdout": "a.txt", "stderr": "slow", "outcome": {"type": "exit", "exit_code": 0}}
    picture = {"type": "computer_screenshot", "image_url": "data:image/png;base64,"}
    python = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "status": "completed"}
    asked: list[Any] = [
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c1", "output": [ended]},
        {"type": "apply_patch_call", "call_id": "c2", "status": "completed", "operation": patch},
        {"type": "apply_patch_call_output", "call_id": "c2", "status": "completed", "output": "gone"},
        {"type": "computer_call_output", "call_id": "c3", "output": picture},
        python | {"code": "f()", "outputs": [{"type": "logs", "logs": "one"}]},
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"], "results": []},
    ]
    async with serving(settings, engine_of([answer("Yes.")])) as service, service.client() as client:
        made = await client.responses.create(model=MODEL, input=asked)
        (found,) = await lines(service, id=made.id)
    calls = [call["arguments"] for step in found["steps"] for call in step.get("tool_calls", ())]
    assert calls[0]["commands"] == ["ls"]
    assert calls[1:] == [patch, {"input": "f()"}, {"input": ["q"]}]
    observed = [step["observation"]["results"] for step in found["steps"] if "observation" in step]
    assert [each["content"] for results in observed for each in results] == ["a.txt\nslow", "gone", "", "one"]


@pytest.mark.parametrize("form", ["atif", "gym"])
async def test_a_trajectory_is_one_line_whatever_is_said(settings: Settings, form: str) -> None:
    said = "one\u2028two\u2029three\x85four\x0bfive\\"
    async with serving(settings, engine_of([answer(said)])) as service, service.client() as client:
        made = await client.responses.create(model=MODEL, input=said, metadata={"said": said})
        (found,) = await lines(service, id=made.id, format=form)
    assert json.dumps(found).count(json.dumps(said)) >= 2


async def test_a_rollout_has_the_ids_at_the_last_item_of_each_generation(noting: Settings) -> None:
    engine = engine_of([thought("Hm."), then(answer("One."))], [answer("Two.")])
    async with serving(noting, engine) as service, service.client() as client:
        first = await client.responses.create(model=MODEL, input="1?", instructions="Count.")
        second = await client.responses.create(model=MODEL, input="2?", previous_response_id=first.id)
        (found,) = await lines(service, id=second.id, format="gym")
    asked = found["responses_create_params"]
    assert (asked["instructions"], [item["content"][0]["text"] for item in asked["input"]]) == ("Count.", ["1?"])
    output = found["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "message", "message"]
    assert ["prompt_token_ids" in item for item in output] == [False, True, False, True]
    assert [output[at]["prompt_token_ids"] for at in (1, 3)] == [list(each.prompt) for each in engine.generations]
    assert output[3]["generation_token_ids"] == answer("Two.")
    assert found["response"]["id"] == found["harmonium"]["id"] == second.id


async def test_each_leaf_is_a_trajectory_and_forks_say_what_they_share(noting: Settings) -> None:
    async with serving(noting, engine_of([answer("Hello.")])) as service, service.client() as client:
        ask = client.responses.create
        root = await ask(model=MODEL, input="Hi")
        one = await ask(model=MODEL, input="1", previous_response_id=root.id)
        other = await ask(model=MODEL, input="2", previous_response_id=root.id)
        both = await lines(service, id=root.id)
        (alone,) = await lines(service, id=other.id)
        conversation = await client.conversations.create(extra_body={"harmonium": {"fork_of": one.id}})
        third = await ask(model=MODEL, input="3", conversation=conversation.id)
        (named,) = await lines(service, id=conversation.id)
    assert [each["trajectory_id"] for each in both] == [one.id, other.id]
    assert [each["extra"]["shared"] for each in both] == [
        {"trajectory": None, "turns": 0},
        {"trajectory": one.id, "turns": 1},
    ]
    assert [step.get("is_copied_context", False) for step in both[1]["steps"]] == [True, True, False, False]
    assert alone == both[1]
    assert (named["trajectory_id"], named["session_id"]) == (third.id, root.id)
    assert [step["message"] for step in named["steps"] if step["source"] == "user"] == ["Hi", "1", "3"]


async def test_pages_go_on_behind_a_cursor_and_have_what_was_used_since(noting: Settings) -> None:
    async with serving(noting, engine_of([answer("Hello.")])) as service, service.client() as client:
        made = [(await client.responses.create(model=MODEL, input=str(number))).id for number in range(5)]
        found, after = list[str](), "0"
        for _ in range(3):
            some, after = await page(service, after=after, limit="2", format="gym")
            found += [each["harmonium"]["id"] for each in some]
        assert found == made
        assert await page(service, after=after) == ([], after)
        later = await client.responses.create(model=MODEL, input="more", previous_response_id=made[1])
        some, _ = await page(service, after=after)
        assert [each["trajectory_id"] for each in some] == [later.id]


async def test_a_page_has_the_older_leaves_of_a_tree_that_no_page_had_before(noting: Settings) -> None:
    async with serving(noting, engine_of([answer("Hello.")])) as service, service.client() as client:
        ask = client.responses.create
        root = await ask(model=MODEL, input="Hi")
        one = await ask(model=MODEL, input="1", previous_response_id=root.id)
        other = await ask(model=MODEL, input="another tree")
        fork = await ask(model=MODEL, input="2", previous_response_id=root.id)
        first, after = await page(service, after="0", limit="1")
        second, _ = await page(service, after=after, limit="1")
    assert [each["trajectory_id"] for each in first] == [other.id]
    assert [each["trajectory_id"] for each in second] == [one.id, fork.id]


@pytest.mark.parametrize("query", [{"after": "x"}, {"limit": "0"}, {"limit": "101"}, {"format": "csv"}, {"until": "1"}])
async def test_what_is_no_query_is_refused(settings: Settings, query: dict[str, str]) -> None:
    async with serving(settings, engine_of([answer("Hello.")])) as service, service.http() as http:
        refused = await http.get("/v1/trajectories", params=query)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, next(iter(query)))
        missing = await http.get("/v1/trajectories", params={"id": "resp_" + "0" * 48})
        assert missing.status_code == 404


async def test_nobody_reads_what_is_anothers(settings: Settings) -> None:
    two = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="a:key-a,b:key-b")
    async with serving(two, engine_of([answer("Hello.")])) as service, service.client("key-a") as client:
        made = await client.responses.create(model=MODEL, input="Hi")
        async with httpx.AsyncClient(base_url=service.url, headers={"authorization": "Bearer key-b"}) as http:
            assert (await http.get("/v1/trajectories", params={"id": made.id})).status_code == 404
            assert (await http.get("/v1/trajectories")).text == ""


async def test_an_erased_turn_has_no_ids_and_none_later_knows_its_prompt(noting: Settings) -> None:
    async with serving(noting, engine_of([answer("Hello.")])) as service, service.client() as client:
        first = await client.responses.create(model=MODEL, input="Hi")
        second = await client.responses.create(model=MODEL, input="1", previous_response_id=first.id)
        async with service.http() as http:
            assert (await http.delete(f"/v1/responses/{first.id}", params={"erase": "true"})).status_code == 200
        (found,) = await lines(service, id=second.id)
        (told,) = metrics(found)
        assert (told["extra"]["cut"]["why"], "prompt_token_ids" in told) == ("erased", False)
        assert told["completion_token_ids"] == answer("Hello.")


async def test_a_reward_is_put_on_a_turn_later_and_changes_no_turn(noting: Settings) -> None:
    async with serving(noting, engine_of([answer("Hello.")])) as service, service.client() as client:
        first = await client.responses.create(model=MODEL, input="Hi")
        second = await client.responses.create(model=MODEL, input="1", previous_response_id=first.id)
        noted = await client.conversations.create(
            metadata={"reward": "0.5", "label": "good"}, extra_body={"harmonium": {"fork_of": second.id}}
        )
        (rollout,) = await lines(service, id=second.id, format="gym")
        assert (rollout["harmonium"]["id"], rollout["reward"]) == (second.id, 0.5)
        assert rollout["harmonium"]["notes"] == {second.id: [{"reward": "0.5", "label": "good"}]}
        await client.conversations.update(noted.id, metadata={"reward": "1"})
        (rollout,) = await lines(service, id=second.id, format="gym")
        assert rollout["reward"] == 1.0
        (found,) = await lines(service, id=first.id)
        assert found["extra"]["notes"] == {second.id: [{"reward": "1"}]}
        assert (await client.responses.retrieve(second.id)).metadata == {}
        for odd in ("good", "", "nan", "1e999"):
            await client.conversations.create(
                metadata={"reward": odd}, extra_body={"harmonium": {"fork_of": second.id}}
            )
        (rollout,) = await lines(service, id=second.id, format="gym")
        assert rollout["reward"] == 1.0, "the others are no numbers"


async def test_a_project_says_itself_whether_its_turns_note_ids(settings: Settings) -> None:
    known = list[bool]()
    async with administered(settings) as (service, client):
        projects = client.admin.organization.projects
        project = await projects.create(name="agents", extra_body={"trajectories": True})
        _, value = await new_key(client, project.id)
        for wished in (True, False, None):
            changed = await projects.update(project.id, extra_body={"trajectories": wished})
            assert changed.to_dict()["trajectories"] is wished
            async with service.client(value) as user:
                made = await user.responses.create(model=MODEL, input="Hi")
            async with httpx.AsyncClient(base_url=service.url, headers={"authorization": f"Bearer {value}"}) as http:
                found = json.loads((await http.get("/v1/trajectories", params={"id": made.id})).text)
            known.append("prompt_token_ids" in metrics(found)[0])
    assert known == [True, False, False]

"""Tools that the client runs and that have items of their own, over HTTP: what the model sees, what a client gets and
sends back, and what is kept of that in a conversation.
"""

from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from service.process import Settings
from service.settings.core import DEFAULT_TENANT
from tests.support.responses.samples import harmony
from tests.support.service.inside import Inside, answer, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import ask, made, prompts, streamed

SHELL: Any = {"type": "shell", "environment": {"type": "local"}}
LOCAL: Any = {"type": "local_shell"}
PATCH: Any = {"type": "apply_patch"}
GOAL: Any = {
    "type": "object",
    "properties": {"goal": {"type": "string"}},
    "required": ["goal"],
    "additionalProperties": False,
}
SEARCH: Any = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": GOAL}
WEATHER: Any = {"type": "function", "name": "get_weather", "defer_loading": True, "parameters": {"type": "object"}}
EVENTS: Any = {
    "type": "namespace",
    "name": "mcp__calendar",
    "description": "Plan events.",
    "tools": [{"type": "function", "name": "_create", "strict": False, "defer_loading": True, "parameters": GOAL}],
}
DIFF = "@@ def f():\n-    return 1\n+    return 2\n"


def calls(recipient: str, content: str, *, json: bool = True) -> list[int]:
    """A call as gpt-oss writes it."""
    kind = " <|constrain|>json" if json else ""
    return harmony(f"<|channel|>commentary to={recipient}{kind}<|message|>{content}<|call|>")


def envelope(heading: str, body: str = "") -> str:
    """A patch as gpt-oss writes it."""
    return f"*** Begin Patch\n*** {heading}\n{body}*** End Patch\n"


RUN = calls("container.exec", '{"cmd":["bash","-lc","ls | wc -l"],"timeout":5000}')
RUN_LOCALLY = calls("container.exec", '{"cmd":["ls","-a"],"workdir":"/tmp","env":{"A":"b"}}')
CHANGE = calls("functions.apply_patch", envelope("Update File: a.py", DIFF), json=False)
LOOK = calls("functions.tool_search", '{"goal":"weather"}')


def outcome(code: int = 0, stdout: str = "", stderr: str = "") -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}}


def found(call: Any, *loaded: Any) -> dict[str, Any]:
    return {
        "type": "tool_search_output",
        "call_id": call["call_id"],
        "execution": "client",
        "status": "completed",
        "tools": [*loaded],
    }


async def alone(inside: Inside, **body: Any) -> Any:
    """The response with at most one call."""
    return await made(inside, parallel_tool_calls=False, **body)


async def go_on(client: AsyncOpenAI, after: str, *items: Any, tools: Any) -> Response:
    return await ask(client, previous_response_id=after, input=[*items], tools=tools, parallel_tool_calls=False)


# --- calls: what the model writes, and what an item says of it ---

ITEMS: dict[str, tuple[Any, list[int], dict[str, Any]]] = {
    "a shell": (
        SHELL,
        RUN,
        {"type": "shell_call", "action": {"commands": ["ls | wc -l"], "timeout_ms": 5000, "max_output_length": None}},
    ),
    "a local shell": (
        LOCAL,
        RUN_LOCALLY,
        {
            "type": "local_shell_call",
            "action": {"type": "exec", "command": ["ls", "-a"], "env": {"A": "b"}, "working_directory": "/tmp"},
        },
    ),
    "a file that is changed": (
        PATCH,
        CHANGE,
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.py", "diff": DIFF}},
    ),
    "a file that is made": (
        PATCH,
        calls("functions.apply_patch", envelope("Add File: b.md", "+# B\n+\n+Text.\n"), json=False),
        {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "b.md", "diff": "+# B\n+\n+Text.\n"}},
    ),
    "a file that goes": (
        PATCH,
        calls("functions.apply_patch", envelope("Delete File: b.md"), json=False),
        {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "b.md"}},
    ),
    "a search": (SEARCH, LOOK, {"type": "tool_search_call", "arguments": {"goal": "weather"}, "execution": "client"}),
}


@pytest.mark.parametrize(("tool", "call", "said"), ITEMS.values(), ids=ITEMS)
async def test_a_call_is_an_item_of_its_own(settings: Settings, tool: Any, call: list[int], said: Any) -> None:
    engine = scripted([[*thought("So."), *then(call)]])
    async with serving(settings, engine) as inside, inside.http() as http:
        found = await made(inside, input="Go.", tools=[tool])
        body = {"model": MODEL, "input": "Go.", "tools": [tool]}
        whole = await http.post("/v1/responses", json=body)

    item = found["output"][1]
    known = {"id": item["id"], "call_id": item["call_id"], "status": "completed"}
    assert item == {**said, **known}
    assert (found["status"], found["tools"]) == ("completed", [tool])
    assert {**whole.json()["output"][1], **known} == item
    assert "x-harmonium-tools-left-out" not in whole.headers


async def test_a_shell_s_command_is_told_as_openai_tells_it(settings: Settings) -> None:
    async with serving(settings, scripted([RUN])) as inside:
        events = await streamed(inside, input="Go.", tools=[SHELL], parallel_tool_calls=False)

    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[2:-1] == [
        "output_item.added",
        "shell_call_command.added",
        "shell_call_command.delta",
        "shell_call_command.done",
        "output_item.done",
    ]
    assert events[2]["item"]["action"]["commands"] == []
    assert (events[4]["delta"], events[5]["command"]) == ("ls | wc -l", "ls | wc -l")


@pytest.mark.parametrize("tool", [SHELL, LOCAL, PATCH, SEARCH], ids=lambda tool: tool["type"])
async def test_a_call_that_is_cut_short_says_nothing_that_could_be_carried_out(settings: Settings, tool: Any) -> None:
    call = {"shell": RUN, "local_shell": RUN_LOCALLY, "apply_patch": CHANGE, "tool_search": LOOK}[tool["type"]]
    async with serving(settings, scripted([call])) as inside, inside.client() as client:
        cut = await made(inside, input="Go.", tools=[tool], max_output_tokens=len(call) - 2)
        again: Any = [{"role": "user", "content": "Go."}, *cut["output"], {"role": "user", "content": "Again."}]
        whole = await ask(client, input=again, tools=[tool])

    (item,) = cut["output"]
    assert (cut["status"], item["status"]) == ("incomplete", "incomplete")
    said = item.get("action") or item.get("operation") or item.get("arguments")
    assert not said or not (said.get("commands") or said.get("command") or said.get("path"))
    assert whole.output[0].status == "completed"


async def test_what_is_no_call_of_the_tool_fails_the_response(settings: Settings) -> None:
    wrong = [
        (SHELL, calls("container.exec", '{"cmd":"ls"}')),
        (LOCAL, calls("container.exec", "ls")),
        (PATCH, calls("functions.apply_patch", envelope("Update File: a", DIFF + "*** Add File: b\n+x\n"), json=False)),
        (PATCH, calls("functions.apply_patch", "*** Begin Patch\n*** End Patch", json=False)),
        (SEARCH, calls("functions.tool_search", '["weather"]')),
    ]
    async with serving(settings, scripted(*([call] for _, call in wrong))) as inside:
        for tool, _ in wrong:
            failed = await made(inside, input="Go.", tools=[tool])
            assert (failed["status"], failed["output"][-1]["status"]) == ("failed", "incomplete")
            assert "does not match the format" in failed["error"]["message"]


async def test_the_model_knows_the_tools_by_the_names_of_its_training(settings: Settings) -> None:
    skill = {"name": "pdf", "description": "Fills in forms.", "path": "/skills/pdf"}
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        await made(inside, input="Hi", tools=[{"type": "shell", "environment": {"type": "local", "skills": [skill]}}])
        await made(inside, input="Hi", tools=[LOCAL, PATCH, SEARCH])
        await made(inside, input="Hi", tools=[{"type": "shell"}])

    shell, others, bare = prompts(engine)
    assert "namespace container {" in shell
    assert "type exec = (_: {" in shell
    assert "- pdf: Fills in forms. (/skills/pdf)" in shell
    assert "type apply_patch = (_: string) => any;" in others
    assert "// Finds tools.\ntype tool_search = (_: {\ngoal: string,\n}) => any;" in others
    assert "Skills" not in bare
    assert "Calls to these tools must go to the commentary channel: 'container'" in bare


# --- what clients send back ---


async def test_calls_and_outputs_of_openai_s_own_shell_are_read_too(settings: Settings) -> None:
    """A history that was begun at OpenAI goes on here, where nothing of it is declared."""
    place = {"type": "container_reference", "container_id": "cntr_1"}
    run = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls", "pwd"]}, "environment": place}
    ran = {"type": "shell_call_output", "call_id": "c", "output": [outcome(0, "a\n"), {"stdout": "", "stderr": ""}]}
    stopped = {**ran, "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "timeout"}}]}
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        await made(inside, input=[run, ran, {"role": "user", "content": "So?"}])
        await made(inside, input=[run, stopped, {"role": "user", "content": "So?"}])

    assert '{"cmd":["bash","-lc","ls\\npwd"]}<|call|>' in prompts(engine)[0]
    assert "<|message|>a\n[Exit code 0.]<|end|>" in prompts(engine)[0]
    assert "<|message|>a\n[It was stopped: it took too long.]<|end|>" in prompts(engine)[1]


# --- tools that are loaded ---


async def test_a_tool_that_is_deferred_can_be_called_once_it_was_loaded(settings: Settings) -> None:
    engine = scripted([LOOK], [calls("functions.get_weather", "{}")], [answer("Rain.")])
    tools = [WEATHER, SEARCH]
    loaded = {
        "type": "function",
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {"type": "object"},
    }
    async with serving(settings, engine) as inside, inside.client() as client:
        first = await alone(inside, input="Weather?", tools=tools)
        second = await go_on(client, first["id"], found(first["output"][0], loaded), tools=tools)
        (call,) = second.output
        given = {"type": "function_call_output", "call_id": call.to_dict()["call_id"], "output": "Rain."}
        last = await go_on(client, second.id, given, tools=tools)

    asked = prompts(engine)
    hidden, still = asked[0], asked[-1]
    shown = next(prompt for prompt in asked if "Loaded: " in prompt)
    assert "get_weather" not in hidden
    assert "// The weather.\ntype get_weather = " in shown
    assert (
        "functions.tool_search to=assistant<|channel|>commentary<|message|>Loaded: functions.get_weather.<|end|>"
        in (shown)
    )
    assert call.type == "function_call"
    assert "type get_weather = " in still
    assert last.output_text == "Rain."
    assert first["tools"][0]["defer_loading"] is True


async def test_what_a_conversation_has_loaded_stays_loaded_and_goes_with_its_item(settings: Settings) -> None:
    engine = scripted([LOOK], [answer("Ready.")], [answer("Fine.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        conversation = await client.conversations.create()
        first = await alone(inside, input="Lunch?", tools=[SEARCH], conversation=conversation.id)
        output = found(first["output"][0], EVENTS)
        second = await ask(client, input=[output], tools=[SEARCH], conversation=conversation.id)
        await alone(inside, input="And?", tools=[SEARCH], conversation=conversation.id)
        listed = await anext(aiter(client.responses.input_items.list(second.id)))
        await client.conversations.items.delete(listed.id or "", conversation_id=conversation.id)
        await alone(inside, input="And now?", tools=[SEARCH], conversation=conversation.id)

    shown = ["namespace mcp__calendar {" in prompt for prompt in prompts(engine)]
    assert shown == [False, False, True, True, False]


async def test_without_room_the_oldest_loaded_tool_goes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.responses.prompt.read.MAX_TOOLS", 3)
    engine = scripted([LOOK], [LOOK], [answer("Ready.")])
    many = [{"type": "function", "name": f"f{number}"} for number in range(4)]
    async with serving(settings, engine) as inside, inside.client() as client:
        first = await alone(inside, input="Go.", tools=[SEARCH])
        second = await go_on(client, first["id"], found(first["output"][0], *many[:2]), tools=[SEARCH])
        await go_on(client, second.id, found(second.output[0].to_dict(), *many[1:3]), tools=[SEARCH])
        await go_on(client, second.id, found(second.output[0].to_dict(), many[3]), tools=[SEARCH])

    shown = [[name for name in ("f0", "f1", "f2", "f3") if f"type {name} = " in prompt] for prompt in prompts(engine)]
    assert shown[-2:] == [["f1", "f2"], ["f1", "f3"]]


async def test_without_a_search_nothing_is_held_back(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside, inside.http() as http:
        await alone(inside, input="Hi", tools=[WEATHER])
        body = {"model": MODEL, "input": "Hi", "tools": [WEATHER, {"type": "tool_search"}]}
        given = await http.post("/v1/responses", json=body)

    assert ["type get_weather = " in prompt for prompt in prompts(engine)] == [True, True]
    assert given.headers["x-harmonium-tools-left-out"] == "tool_search"


async def test_a_found_tool_s_secrets_are_kept_nowhere(settings: Settings) -> None:
    engine = scripted([LOOK], [answer("Fine.")])
    server = {"type": "mcp", "server_label": "docs", "server_url": "https://x/s3cret", "authorization": "s3cret"}
    async with serving(settings, engine) as inside, inside.client() as client:
        first = await alone(inside, input="Go.", tools=[SEARCH])
        last = await go_on(client, first["id"], found(first["output"][0], server), tools=[SEARCH])
        listed = [item.to_dict() async for item in client.responses.input_items.list(last.id)]
        chain = await inside.store.chain(DEFAULT_TENANT, last.id)

    assert "s3cret" not in str(listed)
    assert "s3cret" not in str(chain.notes()["loaded_tools"])

"""Responses that call tools of MCP servers, over HTTP: what the client gets, what the model reads, what is refused."""

import logging
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from redis import Redis

from service.harmony import tokens
from service.process import Settings
from store.codec import unsqueeze
from tests.support.service.inside import answer, called, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import addressed, prompts, tags
from tests.support.service.sockets import socket
from tests.support.tools.server import McpServer
from tests.support.waiting import until

ADD = '{"a":2,"b":40}'


def call(name: str, arguments: str = "{}") -> list[int]:
    """A whole call of a tool of the server `maths`."""
    head = tokens.encode(f" to=functions.{name}")
    return [*tokens.encode(f" to=maths.{name}"), *called(name, arguments)[len(head) :]]


def server(fixture: McpServer, **members: Any) -> Any:
    return {"type": "mcp", "server_label": "maths", "server_url": fixture.url, "require_approval": "never", **members}


def allowing(settings: Settings, fixture: McpServer, **changes: Any) -> Settings:
    """Settings under which requests may name the server."""
    return settings.model_copy(update={"mcp_allow": (fixture.url,), **changes})


async def ask(client: AsyncOpenAI, fixture: McpServer, **members: Any) -> Response:
    """A response that may use the server."""
    return await client.responses.create(**({"model": MODEL, "tools": [server(fixture)]} | members))


def kinds(response: Any) -> list[str]:
    items = response["output"] if isinstance(response, dict) else response.output
    return [item["type"] if isinstance(item, dict) else item.type for item in items]


async def test_a_tool_is_listed_called_and_its_answer_read(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([[*thought("I add."), *then(call("add", ADD))]], [answer("It is 42.")])
    async with serving(allowing(settings, fixture), engine) as service, service.client() as client:
        response = await ask(client, fixture, input="2 + 40?")

    listed, _, called_, message = response.output
    assert [item.type for item in response.output] == ["mcp_list_tools", "reasoning", "mcp_call", "message"]
    assert listed.type == "mcp_list_tools"
    assert [tool.name for tool in listed.tools] == ["add", "send_mail", "look_up", "fail", "picture", "long", "noise"]
    assert listed.tools[0].annotations == {"read_only": True}
    assert called_.type == "mcp_call"
    assert (called_.server_label, called_.name, called_.arguments) == ("maths", "add", ADD)
    assert (called_.status, called_.output, called_.error, called_.approval_request_id) == (
        "completed",
        "42",
        None,
        None,
    )
    assert message.type == "message"
    assert response.output_text == "It is 42."
    first, *_, second = prompts(engine)
    assert "namespace maths {" in first
    assert "// Adds two numbers." in first
    assert second.endswith("<|start|>maths.add to=assistant<|channel|>commentary<|message|>42<|end|><|start|>assistant")


async def test_a_conversation_goes_on_and_lists_the_tools_once(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([call("add", ADD)], [answer("42.")], [answer("Still 42.")])
    async with serving(allowing(settings, fixture), engine) as service, service.client() as client:
        first = await ask(client, fixture, input="2 + 40?")
        second = await ask(client, fixture, input="Sure?", previous_response_id=first.id)
        stored = await client.responses.retrieve(first.id)

    assert kinds(first) == ["mcp_list_tools", "mcp_call", "message"]
    assert kinds(second) == ["message"]
    assert stored.output == first.output
    *_, before, last = prompts(engine)
    assert last.removesuffix("<|start|>assistant").startswith(before)
    assert "maths.add to=assistant" in last


async def test_what_signs_in_to_a_server_is_stored_and_told_nowhere(
    settings: Settings, fixture: McpServer, caplog: pytest.LogCaptureFixture
) -> None:
    engine = scripted([call("look_up", '{"word":"a"}')], [answer("So.")])
    fixture.hold()
    before = fixture.began("look_up")
    caplog.set_level(logging.DEBUG)
    url = f"{fixture.url}?key=s3cret"
    tool = server(fixture, server_url=url, authorization="s3cret", headers={"x-key": "s3cret"})
    async with serving(allowing(settings, fixture), engine) as service, service.client() as client:
        queued = await ask(client, fixture, input="Go.", tools=[tool], background=True)
        await until(lambda: fixture.began("look_up") > before)
        kept = stored(settings.redis_url)
        shown = await client.responses.retrieve(queued.id)
        await client.responses.cancel(queued.id)

    assert len(kept) > 1_000
    assert b"look_up" in kept
    assert b"hs_" in kept  # sealed
    assert b"s3cret" not in kept
    assert "s3cret" not in shown.to_json()
    assert "s3cret" not in caplog.text


def stored(url: str) -> bytes:
    """All values of a store, unpacked where they are."""
    found: list[bytes] = []
    with Redis.from_url(url) as opened:
        redis: Any = opened
        for key in redis.scan_iter():
            kind = redis.type(key)
            if kind == b"hash":
                found += redis.hgetall(key).values()
            elif kind == b"string":
                found.append(redis.get(key) or b"")
            elif kind == b"stream":
                found += [value for _, entry in redis.xrange(key) for value in entry.values()]
    return b"".join([*found, *map(unpacked, found)])


def unpacked(value: bytes) -> bytes:
    """A value without its packing; nothing of what has none."""
    try:
        return unsqueeze(value[1:])
    except Exception:
        return b""


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "told"),
    [
        ("fail", "{}", "failed", "Error executing tool fail"),
        ("picture", "{}", "completed", "here\n[image/png, 12 bytes]"),
        ("long", '{"n":50000}', "completed", "characters left out"),
    ],
)
async def test_what_tools_answer_is_text(
    settings: Settings, fixture: McpServer, tool: str, arguments: str, status: str, told: str
) -> None:
    engine = scripted([call(tool, arguments)], [answer("So.")])
    async with serving(allowing(settings, fixture), engine) as service, service.client() as client:
        response = await ask(client, fixture, input="Go.")

    item = response.output[1]
    assert item.type == "mcp_call"
    assert item.status == status
    assert told in prompts(engine)[-1]
    assert len(prompts(engine)[-1]) < 45_000
    if status == "completed":
        assert told in (item.output or "")
    else:
        assert item.error is not None
        assert item.to_dict()["error"] == {
            "type": "mcp_tool_execution_error",
            "content": [{"type": "text", "text": told}],
        }


# --- what is allowed, and what is refused ---


async def test_only_the_tools_that_are_allowed_are_shown(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([answer("So.")])
    async with serving(allowing(settings, fixture), engine) as service, service.client() as client:
        for allowed in (["add"], {"tool_names": ["add", "fail"], "read_only": True}):
            response = await ask(client, fixture, input="Go.", tools=[server(fixture, allowed_tools=allowed)])
            listed = response.output[0]
            assert listed.type == "mcp_list_tools"
            assert [tool.name for tool in listed.tools] == ["add"]
            assert "type fail =" not in prompts(engine)[-1]


async def test_a_tool_may_be_chosen(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([call("add", ADD)], [answer("42.")])
    chosen: Any = {"type": "mcp", "server_label": "maths", "name": "add"}
    async with serving(allowing(settings, fixture), engine) as service, service.client() as client:
        response = await ask(client, fixture, input="Go.", tool_choice=chosen)

    assert addressed(tags(engine)[0]) == {"maths.add"}
    assert addressed(tags(engine)[-1]) == {"maths.add", "final"}
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]


async def test_a_server_without_a_list_is_a_424(settings: Settings, fixture: McpServer) -> None:
    url = fixture.url.removesuffix("/mcp")
    opened = settings.model_copy(update={"mcp_allow": (url, "http://127.0.0.1:9")})
    async with serving(opened, scripted([answer("So.")])) as service, service.http() as http:
        for address, reason in ((f"{url}/nowhere", "HTTP 404"), ("http://127.0.0.1:9/mcp", "connection")):
            body = {"model": MODEL, "input": "Go.", "tools": [server(fixture, server_url=address)], "stream": True}
            given = await http.post("/v1/responses", json=body)
            error = given.json()["error"]
            assert (given.status_code, error["type"], error["code"]) == (424, "external_connector_error", "http_error")
            assert error["message"].startswith("Error retrieving tool list from MCP server: 'maths'.")
            assert reason in error["message"]


async def test_any_public_server_is_no_private_one(settings: Settings, fixture: McpServer) -> None:
    opened = settings.model_copy(update={"mcp_allow": ("*",)})
    async with serving(opened, scripted([answer("So.")])) as service, service.client() as client:
        with pytest.raises(openai.APIStatusError, match="no public address"):
            await ask(client, fixture, input="Go.")


async def test_an_operators_server_is_named_by_label(settings: Settings, fixture: McpServer, tmp_path: Path) -> None:
    path = tmp_path / "mcp.toml"
    path.write_text(
        f"""
        [maths]
        url = "{fixture.url}"
        description = "Sums and mails."
        allowed_tools = ["add", "fail"]
        require_approval = "never"
        """
    )
    named = settings.model_copy(update={"mcp_servers": str(path)})
    engine = scripted([call("add", ADD)], [answer("42.")])
    tool: Any = {"type": "mcp", "server_label": "maths"}
    async with serving(named, engine) as service, service.client() as client:
        response = await ask(client, fixture, input="Go.", tools=[tool], background=True)
        await until(lambda: client.responses.retrieve(response.id), wanted=lambda each: each.status == "completed")
        done = await client.responses.retrieve(response.id)
        with pytest.raises(openai.BadRequestError, match="Its own are: maths"):
            await ask(client, fixture, input="Go.", tools=[tool | {"server_label": "other"}])
        stricter = await ask(
            client, fixture, input="Go.", tools=[tool | {"require_approval": "always"}], tool_choice="required"
        )

    assert kinds(done) == ["mcp_list_tools", "mcp_call", "message"]
    listed = done.output[0]
    assert listed.type == "mcp_list_tools"
    assert [each.name for each in listed.tools] == ["add", "fail"]
    assert "// Sums and mails." in prompts(engine)[0]
    assert stricter.status == "failed"


# --- beside all else ---


async def test_what_is_said_amid_a_call_is_heard_behind_it(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([call("look_up", '{"word":"tide"}')], [answer("So.")])
    fixture.hold()
    before = fixture.began("look_up")
    async with serving(allowing(settings, fixture), engine) as inside, socket(inside.url) as ws:
        await ws.ask("Look it up.", tools=[server(fixture)])
        created = await ws.next()
        await until(lambda: fixture.began("look_up") > before)
        await ws.send("response.steer", previous_response_id=created["response"]["id"], input="Be brief.")
        while (await ws.next())["type"] != "response.steer.accepted":
            pass
        fixture.let_go()
        target = (await ws.rest())[-1]["response"]
        successor = (await ws.rest())[-1]["response"]

    assert (target["status"], target["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert [item.get("output") for item in target["output"]][-1] == "look_up done"
    assert (successor["previous_response_id"], kinds(successor)) == (target["id"], ["message"])
    assert "look_up done" in prompts(engine)[-1].partition("Be brief.")[0]

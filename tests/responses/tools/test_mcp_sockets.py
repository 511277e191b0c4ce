"""Tools of MCP servers over WebSockets."""

from service.settings.settings import Settings
from tests.responses.tools.test_mcp_responses import allowing, call, kinds, server
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.seen import prompts
from tests.support.service.sockets import socket
from tests.support.tools.server import McpServer
from tests.support.waiting import until


async def test_a_warm_up_shows_no_tools_so_that_the_next_response_does(settings: Settings, fixture: McpServer) -> None:
    tools = [server(fixture)]
    async with serving(allowing(settings, fixture), scripted([answer("Fine.")])) as inside, socket(inside.url) as ws:
        for store in (True, False):
            await ws.ask("Hello.", tools=tools, generate=False, store=store)
            warm = (await ws.rest())[-1]["response"]
            then = await ws.answer("And?", tools=tools, store=store, previous_response_id=warm["id"])
            assert warm["output"] == []
            assert kinds(then) == ["mcp_list_tools", "message"]


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

"""The Open Responses dialect over HTTP: another base URL, other words, and the very same responses."""

from typing import Any

import httpx

from service.engine.port import EngineError
from service.process import Settings
from service.web.auth import CONSOLE, HEALTH
from tests.core.responses.test_input_tokens import WEATHER
from tests.support.documents import read, rows, section
from tests.support.engine.scripted import Die
from tests.support.oracles.open_responses import check_stream
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.routes import served
from tests.support.service.streams import parsed, sent

Json = dict[str, Any]
OPEN = "/open-responses/v1"
NAMES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}


def streamed(service: ServiceProcess, prefix: str = OPEN, **body: object) -> list[Json]:
    given = service.http().post(f"{prefix}/responses", json={"model": MODEL, "stream": True, **body})
    assert given.status_code == 200, given.text
    return sent(given.text)


def test_each_event_is_one_event_of_the_other_dialect_by_the_same_number(service: ServiceProcess) -> None:
    begun = streamed(service, input="Count to 5.", background=True)
    check_stream(begun)
    follow = f"responses/{begun[0]['response']['id']}?stream=true&include_obfuscation=false"
    plain = parsed(service.http().get(f"/v1/{follow}").text)
    open_ones = sent(service.http().get(f"{OPEN}/{follow}").text)
    assert [NAMES.get(event["type"], event["type"]) for event in plain] == [event["type"] for event in open_ones]
    tail = sent(service.http().get(f"{OPEN}/{follow}&starting_after=4").text)
    assert tail == open_ones[5:]


async def test_an_error_in_a_stream_stands_inside_its_member(settings: Settings) -> None:
    engine = scripted([opened("Ahoy"), Die(EngineError("it is gone"))])
    async with serving(settings, engine) as inside, inside.http() as http:
        given = await http.post(f"{OPEN}/responses", json={"model": MODEL, "input": "hi", "stream": True})
    events = sent(given.text)
    assert check_stream(events)["status"] == "failed"
    assert events[-2]["error"].keys() == {"type", "code", "message", "param"}


async def test_hosted_tools_are_named_in_every_kind_of_answer(settings: Settings) -> None:
    hosted = [{"type": "web_search"}, WEATHER, {"type": "code_interpreter", "container": {"type": "auto"}}]
    body = {"model": MODEL, "input": "hi", "tools": hosted}
    async with serving(settings, scripted([answer("Ahoy.")])) as inside, inside.http() as http:
        for options in ({}, {"stream": True}, {"background": True}):
            assert left_out(await http.post("/v1/responses", json={**body, **options})) == {
                "web_search",
                "code_interpreter",
            }
        assert left_out(await http.post("/v1/responses/input_tokens", json=body)) == {"web_search", "code_interpreter"}
        assert not left_out(await http.post("/v1/responses", json={**body, "tools": [WEATHER]}))


def left_out(given: httpx.Response) -> set[str]:
    """The tools that an answer says were left out."""
    assert given.status_code == 200, given.text
    names = given.headers.get("x-harmonium-tools-left-out", "")
    return set(names.split(", ")) if names else set()


def test_every_route_has_its_row_in_the_document(service: ServiceProcess) -> None:
    paths: Json = service.http().get("/openapi.json").json()["paths"]
    described = {f"`{verb.upper()} {path}`" for path, on in paths.items() for verb in on}
    of_console = {f"`{method} {path}`" for method, path in served() if path.startswith(CONSOLE) and path != HEALTH}
    described |= of_console | {"`GET /console`"}  # which stand in no description of the API
    assert {route for row in rows(section(read("docs/api.md"), "Routes")) for route in routes_in(row[0])} == described


def routes_in(cell: str) -> list[str]:
    """The routes of a row, of which the first names the verb of all: `POST /a`, `/b`."""
    first, *more = cell.split(", ")
    return [first, *(f"{first.partition(' ')[0]} {path[1:]}" for path in more)]


def test_it_is_named_beside_the_api_of_openai_and_refuses_what_that_refuses(service: ServiceProcess) -> None:
    assert service.http().get("/").json()["base_urls"] == {"openai": "/v1", "open_responses": OPEN}
    refused = service.http().post(f"{OPEN}/responses", json={"model": MODEL})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")

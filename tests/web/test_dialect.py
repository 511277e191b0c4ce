"""The Open Responses dialect over HTTP: another base URL, other words, and the very same responses."""

import json
from typing import Any

import httpx

from service.app import all_routes
from service.engine.port import EngineError
from service.settings.settings import Settings
from service.web.auth import CONSOLE, HEALTH
from tests.responses.test_continue import WEATHER
from tests.support.documents import read, rows, section
from tests.support.engine.scripted import Die
from tests.support.oracles.open_responses import check_response, check_stream
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.service.streams import parsed, sent

Json = dict[str, Any]
OPEN = "/open-responses/v1"
NAMES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}


def post(service: ServiceProcess, prefix: str = OPEN, **body: object) -> Json:
    given = service.http().post(f"{prefix}/responses", json={"model": MODEL, **body})
    assert given.status_code == 200, given.text
    return given.json()


def streamed(service: ServiceProcess, prefix: str = OPEN, **body: object) -> list[Json]:
    given = service.http().post(f"{prefix}/responses", json={"model": MODEL, "stream": True, **body})
    assert given.status_code == 200, given.text
    return sent(given.text)


def test_a_plain_answer_has_the_specification_s_keys(service: ServiceProcess) -> None:
    given = post(service, input="Count to 3.")
    check_response(given)
    assert given["status"] == "completed"
    assert [item["type"] for item in given["output"]] == ["reasoning", "message"]


def test_a_stream_has_the_specification_s_events(service: ServiceProcess) -> None:
    events = streamed(service, input="Count to 5.")
    assert check_stream(events)["status"] == "completed"
    assert "response.reasoning.delta" in {event["type"] for event in events}


def test_a_function_is_called_and_answered(service: ServiceProcess) -> None:
    events = streamed(service, input="What is the weather in Paris?", tools=[WEATHER])
    first = check_stream(events)
    call = first["output"][-1]
    assert json.loads(call["arguments"]) == {"city": "Paris"}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    given = post(service, input=[result], tools=[WEATHER], previous_response_id=first["id"])
    check_response(given)
    assert given["output"][-1]["type"] == "message"


def test_a_response_of_one_dialect_is_read_and_continued_in_the_other(service: ServiceProcess) -> None:
    http = service.http()
    first = post(service, "/v1", input="My name is Ada.")
    read_again = http.get(f"{OPEN}/responses/{first['id']}").json()
    check_response(read_again)
    assert read_again["output"][-1] == first["output"][-1]
    second = post(service, OPEN, input="What is my name?", previous_response_id=first["id"])
    assert "Ada" in second["output"][-1]["content"][0]["text"]
    assert http.get(f"/v1/responses/{second['id']}").json()["output"][0]["status"] == "completed"
    assert http.delete(f"{OPEN}/responses/{second['id']}").json()["deleted"] is True


def test_each_event_is_one_event_of_the_other_dialect_by_the_same_number(service: ServiceProcess) -> None:
    begun = streamed(service, input="Count to 5.", background=True)
    check_stream(begun)
    follow = f"responses/{begun[0]['response']['id']}?stream=true&include_obfuscation=false"
    plain = parsed(service.http().get(f"/v1/{follow}").text)
    open_ones = sent(service.http().get(f"{OPEN}/{follow}").text)
    assert [NAMES.get(event["type"], event["type"]) for event in plain] == [event["type"] for event in open_ones]
    tail = sent(service.http().get(f"{OPEN}/{follow}&starting_after=4").text)
    assert tail == open_ones[5:]


def test_a_background_response_is_accepted_and_cancelled_in_this_dialect(service: ServiceProcess) -> None:
    accepted = post(service, input="Count to 2000.", background=True)
    check_response(accepted)
    cancelled = service.http().post(f"{OPEN}/responses/{accepted['id']}/cancel").json()
    check_response(cancelled)
    assert cancelled["status"] == "cancelled"


def test_a_refusal_is_the_same_envelope(service: ServiceProcess) -> None:
    body = {"model": "gpt-9", "input": "hi"}
    given = service.http().post(f"{OPEN}/responses", json=body)
    assert given.status_code == 404
    assert given.json() == service.http().post("/v1/responses", json=body).json()


def test_the_models_are_the_same(service: ServiceProcess) -> None:
    assert service.http().get(f"{OPEN}/models").json() == service.http().get("/v1/models").json()


def test_a_request_counts_for_the_dialect_it_came_in(service: ServiceProcess) -> None:
    post(service, input="hi")
    counted = scraped(service.http()).value(
        "harmonium_requests_total", endpoint=f"{OPEN}/responses", method="POST", status="200"
    )
    assert counted >= 1


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


async def test_items_without_a_text_for_the_model_are_named(settings: Settings) -> None:
    ran = [
        {"type": "web_search_call", "status": "completed"},
        {"type": "program_output", "call_id": "c", "result": "5"},
        {"type": "tool_search_call", "execution": "server", "arguments": {}},
    ]
    async with serving(settings, scripted([answer("Fine.")])) as inside, inside.http() as http:
        told = await http.post(
            "/v1/responses", json={"model": MODEL, "input": [*ran, {"role": "user", "content": "Hi"}]}
        )
        untold = await http.post("/v1/responses", json={"model": MODEL, "input": "Hi"})
    assert (told.status_code, told.headers["x-harmonium-items-left-out"]) == (200, "web_search_call, tool_search_call")
    assert "x-harmonium-items-left-out" not in untold.headers


def left_out(given: httpx.Response) -> set[str]:
    """The tools that an answer says were left out."""
    assert given.status_code == 200, given.text
    names = given.headers.get("x-harmonium-tools-left-out", "")
    return set(names.split(", ")) if names else set()


def test_every_route_has_its_row_in_the_document(service: ServiceProcess) -> None:
    paths: Json = service.http().get("/openapi.json").json()["paths"]
    served = {f"`{verb.upper()} {path}`" for path, on in paths.items() for verb in on}
    of_console = {
        f"`{each.method} {each.path}`" for each in all_routes() if each.path.startswith(CONSOLE) and each.path != HEALTH
    }
    served |= of_console | {"`GET /console`"}  # which stand in no description of the API
    assert {route for row in rows(section(read("docs/api.md"), "Routes")) for route in routes_in(row[0])} == served


def routes_in(cell: str) -> list[str]:
    """The routes of a row, of which the first names the verb of all: `POST /a`, `/b`."""
    first, *more = cell.split(", ")
    return [first, *(f"{first.partition(' ')[0]} {path[1:]}" for path in more)]

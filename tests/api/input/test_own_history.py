"""Clients that keep the conversation themselves, and items that name stored ones."""

from typing import Any

from tests.support.service.process import MODEL, ServiceProcess

Json = dict[str, Any]


def created(service: ServiceProcess, **body: Any) -> Json:
    answer = service.http().post("/v1/responses", json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def counted(service: ServiceProcess, **body: Any) -> int:
    answer = service.http().post("/v1/responses/input_tokens", json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["input_tokens"]


def test_a_history_that_the_client_keeps_costs_and_says_what_a_stored_one_does(service: ServiceProcess) -> None:
    first = created(service, input="My name is Ada.", enable_response_messages=True)
    history = [*first["input_messages"], *first["output_messages"]]
    stored = created(service, input="What is my name?", previous_response_id=first["id"])
    kept = created(service, input="What is my name?", previous_input_messages=history, store=False)

    assert kept["usage"]["input_tokens"] == stored["usage"]["input_tokens"]
    assert kept["output"][-1]["content"][0]["text"] == stored["output"][-1]["content"][0]["text"]


def test_items_of_a_stored_response_may_be_sent_by_their_ids(service: ServiceProcess) -> None:
    first = created(service, input="My name is Ada.")
    items = service.http().get(f"/v1/responses/{first['id']}/input_items").json()["data"]
    names = [{"id": item["id"]} for item in (*items, *first["output"])]

    assert counted(service, input=[*names, {"role": "user", "content": "Who am I?"}]) == counted(
        service, input="Who am I?", previous_response_id=first["id"]
    )


def test_sealed_reasoning_makes_the_prompt_that_the_store_makes(service: ServiceProcess) -> None:
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
    asked = {"role": "user", "content": "What is the weather? Call get_weather."}
    include = ["reasoning.encrypted_content"]
    first = created(service, input=[asked], tools=[tool], include=include)
    call = first["output"][-1]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    replayed = [{**item, "content": None} if item["type"] == "reasoning" else item for item in first["output"]]

    assert call["type"] == "function_call"
    assert counted(service, input=[asked, *replayed, answer], tools=[tool]) == counted(
        service, input=[answer], tools=[tool], previous_response_id=first["id"]
    )

"""Answers of a form: what the model is told of it, that it is held, and what the SDK makes of it."""

import json
from typing import Any

from pydantic import BaseModel

from service.harmony.tokens import MESSAGE
from service.process import Settings
from tests.support.service.inside import answer, called, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import addressed, made, prompts, tags


class Boat(BaseModel):
    """A boat."""

    name: str
    masts: int


WHOLE = '{"name":"Vesper","masts":2}'
SAID = [*thought("A boat."), *then(answer(WHOLE))]
SCHEMA: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def formed(schema: Any = SCHEMA, **options: Any) -> Any:
    """The `text` of a request that wants JSON of a schema."""
    return {"format": {"type": "json_schema", "name": "count", "schema": schema, **options}}


async def test_the_sdk_parses_what_it_asked_for(settings: Settings) -> None:
    engine = scripted([SAID])
    async with serving(settings, engine) as inside, inside.client() as client:
        plain = await client.responses.parse(model=MODEL, input="A boat, please.", text_format=Boat)
        async with client.responses.stream(model=MODEL, input="A boat, please.", text_format=Boat) as stream:
            done = [event.parsed async for event in stream if event.type == "response.output_text.done"]
            streamed = await stream.get_final_response()

    assert plain.output_parsed == streamed.output_parsed == done[0] == Boat(name="Vesper", masts=2)
    assert plain.text is not None
    assert plain.text == streamed.text
    assert plain.text.format is not None
    assert plain.text.format.type == "json_schema"


async def test_the_final_answer_alone_is_held_and_the_prompt_tells_its_form(settings: Settings) -> None:
    engine = scripted([SAID])
    async with serving(settings, engine) as inside, inside.client() as client:
        await client.responses.parse(model=MODEL, input="A boat, please.", text_format=Boat)

    head, content = tags(engine)
    assert addressed(head) == {"final"}
    assert "json_schema" not in json.dumps(head)
    assert content["type"] == "json_schema"
    assert content["json_schema"]["required"] == ["name", "masts"]
    first, second = engine.generations
    assert second.prompt[-1] == MESSAGE
    assert "<|channel|>analysis<|message|>A boat.<|end|>" in prompts(engine)[1]
    assert second.sampling.max_tokens == first.sampling.max_tokens - (len(second.prompt) - len(first.prompt))
    _, _, section = prompts(engine)[0].partition("# Response Formats\n\n## Boat\n\n")
    assert json.loads(section.partition("<|end|>")[0])["required"] == ["name", "masts"]


async def test_a_function_may_be_called_instead_and_its_arguments_have_their_own_form(settings: Settings) -> None:
    tool = {"type": "function", "name": "look", "parameters": {**SCHEMA, "additionalProperties": False}}
    engine = scripted([called("look", '{"n":1}')], [])
    async with serving(settings, engine) as inside:
        found = await made(inside, input="Count.", text=formed(), tools=[{**tool, "strict": True}])

    assert [item["type"] for item in found["output"]] == ["function_call"]
    assert addressed(tags(engine)[0]) == {"final", "functions.look"}


CHECKED: Any = {"type": "object", "properties": {"n": {"type": "array", "items": {}, "uniqueItems": True}}}


async def test_what_no_engine_follows_fails_a_response_that_does_not_match(settings: Settings) -> None:
    engine = scripted(*[[answer(f'{{"n":[{said}]}}')] for said in ("1,2", "1,1", "1,1")])
    async with serving(settings, engine) as inside:
        good, bad = [await made(inside, input="Go.", text=formed(CHECKED, strict=True)) for _ in range(2)]
        lenient = await made(inside, input="Go.", text=formed(CHECKED))

    assert good["status"] == lenient["status"] == "completed"
    assert (bad["status"], bad["output"][0]["status"]) == ("failed", "incomplete")
    assert "does not match the schema" in bad["error"]["message"]


async def test_verbosity_is_told_to_the_model_and_echoed(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        found = [await made(inside, input="Hi", text={"verbosity": each}) for each in ("low", "medium", "high")]

    assert [response["text"]["verbosity"] for response in found] == ["low", "medium", "high"]
    assert ["# Verbosity" in prompt for prompt in prompts(engine)] == [True, False, True]
    assert len(set(prompts(engine))) == 3

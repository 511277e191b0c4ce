"""The duties of every markup: one suite that runs for each that is read here.

A markup's test class subclasses MarkupConformance and names a family that writes it; the hooks (hooks.py) know the
rest. What a markup can't do stands in `lacks`, with the reason, and shows as a skip with that reason. Never weaken a
test here for the sake of one markup. Here are the tests over HTTP, with an engine whose model writes the markup; those
of what reads it are in conformance_reading.py.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI

from service.background.timing import Timing
from service.backoff import Backoff
from service.process import Settings
from tests.support.markup.conformance_reading import ReadingConformance
from tests.support.markup.hooks import MarkupHooks
from tests.support.markup.speaker import Speaker
from tests.support.markup.writing import Turn
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import serving

QUICK = Timing(poll_seconds=0.02, engine_away=Backoff(0.001, 0.002), batch_seconds=0.002)

PLACE: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "get_weather", "description": "The weather", "parameters": PLACE}
IN_FORM: Any = {"format": {"type": "json_schema", "name": "place", "schema": PLACE, "strict": True}}

GREETING = Turn("They greet me.", "Hello, friend \U0001f600!", [])
LOOKING = Turn("", "I look.", [("get_weather", {"city": city, "days": 3}) for city in ("Paris", "Rome")])
FORMED = Turn("Where?", '{"city": "Paris", "days": 3}', [])

BROKEN: dict[str, tuple[list[Turn], dict[str, Any]]] = {
    "reasoning": ([GREETING], {}),
    "arguments": ([LOOKING._replace(reasoning="I need both.")], {"tools": [WEATHER]}),
    "feedback": ([Turn("", "", [("rob_bank", {"which": "all"})]), GREETING], {"tools": [WEATHER]}),
    "structured output": ([FORMED], {"text": IN_FORM}),
}
EVERY = 6
"""After so many ids the engine breaks."""


class MarkupConformance(ReadingConformance):
    """The suite. Subclasses are named Test…, and name their family."""

    async def test_what_is_said_is_a_stream_of_items(self, settings: Settings) -> None:
        turn = self.able(GREETING)
        async with self.asked(settings, turn) as (client, _):
            events = await streamed(client, "Hello!", include=["message.output_text.logprobs"], top_logprobs=1)
        response = check_stream(events)
        assert texts(response) == [*([("reasoning", turn.reasoning)] if turn.reasoning else []), ("message", turn.text)]
        shown = response["output"][-1]["content"][0]["logprobs"]
        assert b"".join(bytes(each["bytes"]) for each in shown) == turn.text.encode()
        assert all(each["top_logprobs"] for each in shown)
        usage = response["usage"]
        assert usage["output_tokens"] == len(self.speaker(str).encoded(self.written(turn)))
        reasoned = usage["output_tokens_details"]["reasoning_tokens"]
        assert 0 < reasoned < usage["output_tokens"] if turn.reasoning else reasoned == 0

    async def test_calls_and_their_outputs_go_round_and_the_prompt_goes_on(self, settings: Settings) -> None:
        self.need("calls")
        looking, told = self.able(LOOKING), Turn("", "It is warm in both.", [])
        kinds = [*(["message"] if looking.text else []), "function_call", "function_call"]
        async with self.asked(settings, looking, told) as (client, speaker):
            asked = await ask(client, "Tell me both.", tools=[WEATHER])
            calls = asked["output"][-2:]
            assert [item["type"] for item in asked["output"]] == kinds
            assert [json.loads(call["arguments"]) for call in calls] == [value for _, value in LOOKING.calls]
            outputs = [
                {"type": "function_call_output", "call_id": call["call_id"], "output": str(place)}
                for place, call in enumerate(calls)
            ]
            after = await ask(client, outputs, tools=[WEATHER], previous_response_id=asked["id"])
            assert texts(after) == [("message", told.text)]
            one = await ask(client, "Tell me both.", tools=[WEATHER], parallel_tool_calls=False)
        assert [item["type"] for item in one["output"]] == kinds[:-1]
        first, *_ = speaker.generations
        said = speaker.encoded(self.written(looking))
        last = next(each for each in speaker.generations if len(each.prompt) > len(first.prompt) + len(said))
        assert list(last.prompt)[: len(first.prompt) + len(said)] == [*first.prompt, *said]

    async def test_text_behind_calls_is_an_answer_of_its_own(self, settings: Settings) -> None:
        self.need("calls")
        said, told = self.able(LOOKING._replace(behind="They come.")), Turn("", "It is warm in both.", [])
        expected = [*(["message"] if said.text else []), "function_call", "function_call", "message"]
        async with self.asked(settings, said, told, said) as (client, speaker):
            asked = await ask(client, "Tell me both.", tools=[WEATHER])
            assert [item["type"] for item in asked["output"]] == expected
            assert texts({"output": asked["output"][-1:]}) == [("message", said.behind)]
            outputs = [
                {"type": "function_call_output", "call_id": call["call_id"], "output": "warm"}
                for call in asked["output"][-3:-1]
            ]
            after = await ask(client, outputs, tools=[WEATHER], previous_response_id=asked["id"])
            assert texts(after) == [("message", told.text)]
            events = await streamed(client, "And again.", tools=[WEATHER], background=True)
        assert [plain(item) for item in check_stream(events)["output"]] == [plain(item) for item in asked["output"]]
        first, second, *_ = speaker.generations
        begun = [*first.prompt, *speaker.encoded(self.written(said))]
        assert list(second.prompt)[: len(begun)] == begun

    async def test_what_is_asked_of_calls_is_enforced_from_the_beginning(self, settings: Settings) -> None:
        self.need("constraints")
        tools = [{**WEATHER, "strict": True}]
        async with self.asked(settings, LOOKING._replace(text=""), GREETING) as (client, speaker):
            asked = await ask(client, "Tell me both.", tools=tools, tool_choice="required")
            assert [item["type"] for item in asked["output"]] == ["function_call", "function_call"]
            await ask(client, "Hello!")
        held, *_, free = (each.sampling.structural_tag for each in speaker.generations)
        assert held is not None
        assert "get_weather" in held
        assert free is None

    async def test_an_answer_is_held_to_its_format(self, settings: Settings) -> None:
        wrong = FORMED._replace(text='{"city": "Paris", "days": "soon"}')
        async with self.asked(settings, self.able(FORMED), self.able(wrong)) as (client, speaker):
            held = await ask(client, "Where?", text=IN_FORM)
            assert texts(held)[-1] == ("message", FORMED.text)
            failed = await ask(client, "And when?", text=IN_FORM)
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        assert "does not match the format" in failed["error"]["message"]
        if "formats" in self.lacks:
            return  # the check at the end is all
        assert any('"days"' in (each.sampling.structural_tag or "") for each in speaker.generations)

    @pytest.mark.parametrize("amid", BROKEN)
    async def test_wherever_its_engine_breaks_all_is_said_and_nothing_twice(
        self, settings: Settings, amid: str
    ) -> None:
        turns, options = BROKEN[amid]
        if "tools" in options:
            self.need("calls")
        turns = list(map(self.able, turns))
        async with self.asked(settings, *turns) as (client, _):
            expected = await ask(client, "Well?", **options)
        changed = settings.model_copy(update={"max_attempts": 100})
        async with self.asked(changed, *turns) as (client, speaker):
            speaker.breaks_behind = [EVERY] * 100
            response = check_stream(await streamed(client, "Well?", background=True, **options))
        assert (response["status"], expected["status"]) == ("completed", "completed")
        assert [plain(item) for item in response["output"]] == [plain(item) for item in expected["output"]]
        assert response["usage"]["output_tokens"] == expected["usage"]["output_tokens"]
        assert response["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
        assert len(speaker.generations) >= 3

    @asynccontextmanager
    async def asked(self, settings: Settings, *turns: Turn) -> AsyncIterator[tuple[AsyncOpenAI, Speaker]]:
        """A client of a service whose model says these turns, each behind another prompt."""
        speaker = self.speaker(Said(self, *turns))
        async with serving(settings, speaker, QUICK) as service, service.client() as client:
            yield client, speaker


class Said:
    """What a model says: the next turn behind each prompt that it has not read before."""

    def __init__(self, hooks: MarkupHooks, *turns: Turn) -> None:
        self._left = [hooks.written(turn) for turn in turns]
        self._said: dict[str, str] = {}

    def __call__(self, prompt: str) -> str:
        if prompt not in self._said:
            self._said[prompt] = self._left.pop(0)
        return self._said[prompt]


async def ask(client: AsyncOpenAI, words: Any, **options: Any) -> dict[str, Any]:
    return (await client.responses.create(model="speaker", input=words, **options)).to_dict()


async def streamed(client: AsyncOpenAI, words: str, **options: Any) -> list[dict[str, Any]]:
    """The events of a response, as JSON."""
    stream = await client.responses.create(model="speaker", input=words, stream=True, **options)
    return [event.to_dict() async for event in stream]


def texts(response: dict[str, Any]) -> list[tuple[str, str]]:
    """The kind of each item, and what it says."""
    return [(item["type"], item["content"][0]["text"]) for item in response["output"]]


def plain(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what each response has of its own."""
    return {key: value for key, value in item.items() if key not in ("id", "call_id")}

"""Long conversations that compact themselves: a summary and an answer in one response, however it is asked."""

from typing import Any

import httpx
import pytest

from service.harmony import tokens
from service.responses.prompt.compaction import INSTRUCTION
from service.settings.settings import Settings
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.background import ended, streamed
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.streams import parsed

Json = dict[str, Any]
AT_ONCE: Any = [{"type": "compaction", "compact_threshold": 1}]
FIRST: Json = {"role": "user", "content": "My boat is called Vesper."}
SECOND: Json = {"role": "user", "content": "Where does she lie?"}
SUMMARY, HARBOUR = "The boat was praised.", "In the harbour."


def engine(*more: list[Any]) -> ScriptedEngine:
    """An engine that answers, summarizes, and answers behind that."""
    summary = [*thought("Hm."), *then(answer(SUMMARY))]
    return scripted([answer("A fine heron.")], [summary], [[*thought("So."), *then(answer(HARBOUR))]], *more)


async def created(http: httpx.AsyncClient, **body: object) -> Json:
    given = await http.post("/v1/responses", json={"model": MODEL, **body})
    assert given.status_code == 200, given.text
    return given.json()


def kinds(response: Json) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("background", [False, True])
async def test_a_stored_conversation_is_compacted_and_goes_on_from_there(settings: Settings, background: bool) -> None:
    played = engine([answer("Still there.")])
    async with serving(settings, played) as inside, inside.http() as http, inside.client() as client:
        first = await created(http, input=[FIRST])
        asked = {"input": [SECOND], "previous_response_id": first["id"], "context_management": AT_ONCE}
        second = await created(http, **asked, background=background)
        second = (await ended(client, second["id"])).to_dict()
        await created(http, input="And now?", previous_response_id=second["id"])
    assert kinds(second) == ["compaction", "reasoning", "message"]
    assert second["status"] == "completed"
    asking, answering, going_on = (list(each.prompt) for each in played.generations[1:])
    assert tokens.decode(asking).index("heron") < tokens.decode(asking).index(INSTRUCTION)
    text = tokens.decode(answering)
    assert "heron" not in text
    assert text.index("Vesper") < text.index(SUMMARY) < text.index("Where does she lie?")
    assert going_on[: len(answering)] == answering
    usage: Any = second["usage"]
    assert usage["input_tokens"] == len(asking) + len(answering)


async def test_who_keeps_the_history_may_drop_what_stands_before_the_item(settings: Settings) -> None:
    played = engine([answer("Still there.")])
    history: list[Json] = [FIRST]
    async with serving(settings, played) as inside, inside.http() as http:
        for asked in (SECOND, {"role": "user", "content": "And now?"}):
            history += [*(await created(http, input=history, store=False))["output"], asked]
            if asked is SECOND:
                made = await created(http, input=history, store=False, context_management=AT_ONCE)
                history += made["output"]
                pruned = history[[item.get("type") for item in history].index("compaction") :]
        again: Json = {"role": "user", "content": "And then?"}
        await created(http, input=[*history, again], store=False)
        await created(http, input=[*pruned, *history[len(history) - 2 :], again], store=False)
    whole, short = (list(each.prompt) for each in played.generations[-2:])
    assert whole == short
    assert "Where does she lie?" in tokens.decode(short)


async def test_its_events_are_those_of_an_item_and_an_answer(settings: Settings) -> None:
    async with serving(settings, engine()) as inside, inside.http() as http:
        first = await created(http, input=[FIRST])
        body = {"model": MODEL, "input": [SECOND], "previous_response_id": first["id"], "context_management": AT_ONCE}
        plain = parsed((await http.post("/v1/responses", json={**body, "stream": True})).text)
    async with serving(settings, engine()) as inside, inside.http() as http:
        first = await created(http, input=[FIRST])
        body["previous_response_id"] = first["id"]
        queued = await http.post("/v1/responses", json={**body, "stream": True, "background": True})
        begun = parsed(queued.text)
        followed = await streamed(inside, begun[0]["response"]["id"])
    for events in (plain, begun, followed):
        items = [each["item"] for each in events if each["type"] == "response.output_item.done"]
        assert [item["type"] for item in items] == ["compaction", "reasoning", "message"]
        assert items == events[-1]["response"]["output"]
        assert SUMMARY not in str(events)
        added = next(each["item"] for each in events if each["type"] == "response.output_item.added")
        assert added == {"type": "compaction", "id": items[0]["id"], "encrypted_content": ""}

"""Reasoning over HTTP: how much, in which form it is shown, and how it comes back into later prompts.

Seals by themselves, foreign and forged ones among them, are in test_sealed_content.py.
"""

from typing import Any

from service.process import Settings
from tests.support.service.inside import answer, called, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import made, prompts, streamed

LOOK: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    "strict": False,
}
USER: Any = {"role": "user", "content": "Look around."}
LOOKED = [*thought("I look."), *then(called("look", "{}"))]
SEALED: Any = ["reasoning.encrypted_content"]


async def test_effort_is_told_to_the_model_clamped_and_echoed_as_it_was_applied(settings: Settings) -> None:
    efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        found = [await made(inside, input="Hi", reasoning={"effort": each}) for each in efforts]

    told = [prompt.partition("Reasoning: ")[2].partition("\n")[0] for prompt in prompts(engine)]
    assert told == ["low", "low", "low", "medium", "high", "high", "high"]
    assert [response["reasoning"]["effort"] for response in found] == told


async def test_a_summary_is_told_as_the_reasoning_comes_and_kept_beside_it(settings: Settings) -> None:
    engine = scripted([[*thought("I look around."), *then(answer("Fine."))]])
    async with serving(settings, engine) as inside, inside.client() as client:
        events = await streamed(inside, input="Hi", reasoning={"summary": "auto"})
        again = await client.responses.retrieve(events[-1]["response"]["id"])

    reasoning = events[-1]["response"]["output"][0]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "I look around."}]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "I look around."}]
    deltas = [event["delta"] for event in events if event["type"] == "response.reasoning_summary_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == "I look around."
    assert again.output[0].to_dict() == reasoning
    assert events[-1]["response"]["reasoning"]["summary"] == "auto"


async def test_a_stateless_client_s_prompt_is_the_store_s_token_for_token(settings: Settings) -> None:
    """The client keeps the items, its reasoning sealed; what is shown of the reasoning it may well drop."""
    engine = scripted([LOOKED], [[*thought("Trees."), *then(answer("Trees."))]], [LOOKED], [answer("Trees.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        asked: Any = {"model": MODEL, "tools": [LOOK], "include": SEALED}
        first = await client.responses.create(input=[USER], **asked)
        said: Any = [item.to_dict() for item in first.output]
        output: Any = {"type": "function_call_output", "call_id": said[-1]["call_id"], "output": "trees"}
        await client.responses.create(previous_response_id=first.id, input=[output], **asked)
        bare: Any = [{**item, "content": None} if item["type"] == "reasoning" else item for item in said]
        for items in (said, bare):
            replayed: Any = [USER, *items, output]
            await client.responses.create(input=replayed, store=False, **asked)

    _, stored, *stateless = [list(generation.prompt) for generation in engine.generations]
    assert "<|channel|>analysis<|message|>I look.<|end|>" in prompts(engine)[1]
    assert stateless == [stored, stored]


async def test_analysis_stays_while_tools_are_called_and_goes_with_the_final_answer(settings: Settings) -> None:
    engine = scripted([LOOKED], [[*thought("Trees it is."), *then(answer("Trees."))]], [answer("Yes.")])
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Look.", tools=[LOOK])
        output = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "trees"}
        second = await made(inside, input=[output], tools=[LOOK], previous_response_id=first["id"])
        last = {"input": "Sure?", "tools": [LOOK], "previous_response_id": second["id"]}
        contexts = [
            (await made(inside, **last, reasoning={"context": context}))["reasoning"]["context"]
            for context in ("auto", "all_turns")
        ]

    assert contexts == ["current_turn", "all_turns"]
    _, amid, after, everything = prompts(engine)
    assert "I look." in amid
    assert "I look." not in after
    assert "Trees it is." not in after
    assert after.count("to=functions.look") == amid.count("to=functions.look") == 1
    assert everything.index("I look.") < everything.index("Trees it is.") < everything.index("Sure?")

"""code_interpreter from a request to its answer: real code in a real sandbox, and the official client."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from service.features.python.feature import run_in
from service.features.sandbox.local import LocalSandbox
from service.harmony.tokens import decode
from service.process import Settings, load_settings
from tests.support.responses.samples import harmony
from tests.support.sandbox.sandboxes import bare
from tests.support.service.background import changed
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.seen import asking

AUTO: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
OUTPUTS: Any = ["code_interpreter_call.outputs"]
ask = asking(tools=[AUTO])


def code(text: str) -> list[int]:
    """A call of Python as the model writes it."""
    return harmony(f"<|channel|>analysis to=python code<|message|>{text}<|call|>")


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    with bare() as made:
        yield made


def prompts(engine: Any) -> list[str]:
    return [decode(list(asked.prompt)[1:]) for asked in engine.generations]


def ran(response: Any) -> list[Any]:
    """The calls of Python in a response."""
    return [item for item in response.output if item.type == "code_interpreter_call"]


async def test_code_runs_and_the_answer_knows_what_it_printed(settings: Settings, sandbox: LocalSandbox) -> None:
    engine = scripted([[*thought("I compute."), *then(code("6 * 7"))]], [answer("It is 42.")])
    async with serving(settings, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
        made = await client.responses.with_raw_response.create(
            model=MODEL, input="6 * 7?", tools=[AUTO], include=OUTPUTS
        )
        response = made.parse()

    (call,) = ran(response)
    assert (call.status, call.code, response.output_text) == ("completed", "6 * 7", "It is 42.")
    assert [output.to_dict() for output in call.outputs] == [{"type": "logs", "logs": "42\n"}]
    assert call.container_id.startswith("cntr_")
    assert "x-harmonium-tools-left-out" not in made.headers
    first, second = prompts(engine)
    assert "\n\n## python\n\nUse this tool" in first
    assert second.endswith("python to=assistantanalysis42\nassistant")


async def test_outputs_are_shown_later_only_if_they_were_asked_for(settings: Settings, sandbox: LocalSandbox) -> None:
    engine = scripted([code("6 * 7")], [answer("42")], [code("6 * 7")], [answer("42")])
    async with serving(settings, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
        without = await ask(client, input="6 * 7?")
        made = await ask(client, input="6 * 7?", include=OUTPUTS)
        plain = await client.responses.create(model=MODEL, input="Hi")
        with pytest.raises(BadRequestError, match="created without"):
            await client.responses.retrieve(without.id, include=OUTPUTS)
        found = [await client.responses.retrieve(each.id, include=OUTPUTS) for each in (made, plain)]
        shown = await client.responses.retrieve(without.id)

    assert ran(found[0])[0].outputs[0].logs == "42\n"
    assert (found[1].output_text, ran(shown)[0].outputs) == ("42", None)


async def test_variables_outlive_a_response_of_one_conversation(settings: Settings, sandbox: LocalSandbox) -> None:
    engine = scripted([code("x = 20")], [answer("Kept.")], [code("x + 1")], [code("x + 2")], [answer("21 and 22.")])
    async with serving(settings, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
        first = await ask(client, input="Keep 20.")
        second = await ask(client, input="Add.", previous_response_id=first.id, include=OUTPUTS)

    assert {call.container_id for call in (*ran(first), *ran(second))} == {ran(first)[0].container_id}
    assert [call.outputs[0].logs for call in ran(second)] == ["21\n", "22\n"]


@pytest.mark.parametrize("has_id", [False, True])
async def test_words_alone_open_no_container(settings: Settings, sandbox: LocalSandbox, has_id: bool) -> None:
    scripts = [code("x = 20")], [answer("Kept.")], [answer("Yes.")], [code("x")], [answer("So it is.")]
    engine = scripted(*scripts)
    remembered = changed(settings, chats="remember")
    async with serving(remembered, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
        first = await ask(client, input="Keep 20.")
        history: Any = [{"role": "user", "content": "Keep 20."}, {"role": "assistant", "content": "Kept."}]
        if has_id:  # as the Agents SDK sends it back
            history.insert(1, ran(first)[0].to_dict())
        known = await ask(client, input=[*history, {"role": "user", "content": "Do you know it?"}])
        second = await ask(client, input="Say it.", previous_response_id=known.id, include=OUTPUTS)

    assert (known.previous_response_id, second.output_text) == (first.id, "So it is.")
    assert ("NameError" in ran(second)[0].outputs[0].logs) == (not has_id)
    assert (ran(second)[0].container_id == ran(first)[0].container_id) == has_id


async def test_a_container_may_be_named_without_a_stored_history(settings: Settings, sandbox: LocalSandbox) -> None:
    engine = scripted([code("x = 20")], [answer("Kept.")], [code("x")], [answer("20")], [code("x")], [answer("20")])
    async with serving(settings, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
        first = await ask(client, input="Keep 20.", include=OUTPUTS, store=False)
        id = ran(first)[0].container_id
        named: Any = {"type": "code_interpreter", "container": id}
        second = await ask(client, input="x?", tools=[named], include=OUTPUTS)
        history: Any = [{"role": "user", "content": "Keep 20."}, *first.output, {"role": "user", "content": "x?"}]
        third = await ask(client, input=history, include=OUTPUTS)

    assert [ran(each)[0].outputs[0].logs for each in (second, third)] == ["20\n", "20\n"]
    assert {ran(each)[0].container_id for each in (second, third)} == {id}


async def test_the_file_that_code_wrote_is_cited_in_the_stream(settings: Settings, sandbox: LocalSandbox) -> None:
    write = "open('/mnt/data/notes.txt', 'w').write('hello') and None"
    engine = scripted([code(write)], [answer("See [it](sandbox:/mnt/data/notes.txt).")])
    async with (
        serving(settings, engine, compose=partial(run_in, sandbox)) as service,
        service.client() as client,
        client.responses.stream(model=MODEL, input="Write.", tools=[AUTO]) as stream,
    ):
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()

    (call,), text = ran(response), response.output_text
    message: Any = response.output[-1]
    (note,) = message.content[0].annotations
    assert text[note.start_index : note.end_index] == "sandbox:/mnt/data/notes.txt"
    assert (note.type, note.container_id, note.filename) == ("container_file_citation", call.container_id, "notes.txt")
    assert kinds.count("response.output_text.annotation.added") == 1
    running = [kind for kind in kinds if kind.startswith("response.code_interpreter_call")]
    assert running[:1] + running[-3:] == [
        "response.code_interpreter_call.in_progress",
        "response.code_interpreter_call_code.done",
        "response.code_interpreter_call.interpreting",
        "response.code_interpreter_call.completed",
    ]


async def test_another_tenants_container_looks_as_if_it_were_none(settings: Settings, sandbox: LocalSandbox) -> None:
    keys = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="ada:sk-ada,bob:sk-bob"
    )
    engine = scripted([code("1")], [answer("1")])
    async with (
        serving(keys, engine, compose=partial(run_in, sandbox)) as service,
        service.client("sk-ada") as ada,
        service.client("sk-bob") as bob,
    ):
        made = await ask(ada, input="Run.")
        named: Any = {"type": "code_interpreter", "container": ran(made)[0].container_id}
        with pytest.raises(NotFoundError):
            await ask(bob, input="Run.", tools=[named])


async def test_without_a_sandbox_it_is_left_out_as_before(settings: Settings) -> None:
    async with serving(settings, scripted([answer("No.")])) as service, service.client() as client:
        made = await client.responses.with_raw_response.create(model=MODEL, input="Run.", tools=[AUTO])
        with pytest.raises(BadRequestError):
            await ask(client, input="Run.", tool_choice={"type": "code_interpreter"})

    assert made.headers["x-harmonium-tools-left-out"] == "code_interpreter"

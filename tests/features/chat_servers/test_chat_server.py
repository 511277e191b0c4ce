"""Servers that are asked by Chat Completions, as an engine: what they are asked, and what becomes of faults."""

import json
from typing import Any

import msgspec
import pytest

from service.engine.port import ChatRequest, EngineRefused, EngineUnavailable, Sampling, Transcript, usual_options
from service.engine.servers.engine import Access, ServersEngine
from service.engine.servers.kind import ServerFacts, ServerTerms
from service.features.chat_servers.servers import LlamaByChat
from tests.support.chat.standin import CHAT, ChatStandin, answer, chatting
from tests.support.engine.connected import ask, connected, failure, generation
from tests.support.engine.misbehaviour import Instead
from tests.support.engine.standin_wire import error_body
from tests.support.markup.writing import Turn
from tests.support.waiting import until

HELLO = Turn("", "Hello!", [])
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}


def said(words: str = "Hi", *, tools: bool = False, **more: Any) -> dict[str, Any]:
    """A generation's fields: what a server is asked."""
    messages = msgspec.json.encode([{"role": "user", "content": words}])
    shown = msgspec.json.encode([TOOL] if tools else [])
    transcript = Transcript(messages, shown, b'{"reasoning_effort":"high"}')
    return {"prompt": (), "asks": ChatRequest(transcript, **more)}


async def body_of(server: ChatStandin, **fields: Any) -> dict[str, Any]:
    """The body that a generation comes to."""
    async with connected(server) as engine:
        await ask(engine, **fields)
    return server.chats[-1].body


async def test_any_server_is_asked_for_what_all_know_alone() -> None:
    async with chatting(lambda _: answer(HELLO)) as server:
        body = await body_of(server, **said())
    assert body == {
        "model": "llama-4",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 100,
        "reasoning_effort": "high",
    }


async def test_wished_variables_of_a_template_go_to_a_server_of_any_kind() -> None:
    options = {"enable_thinking": False, "thinking": True, "reasoning_effort": "high"}
    async with chatting(lambda _: answer(HELLO)) as server:
        asked = said()
        transcript = msgspec.structs.replace(asked["asks"].transcript, options=msgspec.json.encode(options))
        body = await body_of(server, asks=msgspec.structs.replace(asked["asks"], transcript=transcript))
    assert body["chat_template_kwargs"] == options


async def test_vllm_is_asked_for_its_ids_besides_and_keeps_tenants_apart() -> None:
    async with chatting(lambda _: answer(HELLO), vllm=True) as server:
        body = await body_of(server, **said(), cache_salt="abc", priority=-1)
    own = {key: body[key] for key in ("return_token_ids", "cache_salt", "priority", "chat_template_kwargs")}
    assert own == {
        "return_token_ids": True,
        "cache_salt": "abc",
        "priority": -1,
        "chat_template_kwargs": {"reasoning_effort": "high"},
    }


async def test_the_usual_effort_is_left_to_the_servers_template() -> None:
    usual = Transcript(b'[{"role":"user","content":"Hi"}]', options=msgspec.json.encode(usual_options("medium")))
    async with chatting(lambda _: answer(HELLO), vllm=True) as server:
        body = await body_of(server, prompt=(), asks=ChatRequest(usual))
    assert body["chat_template_kwargs"] == {"enable_thinking": True, "thinking": True}


async def test_what_keeps_reasoning_is_what_was_said_of_the_engine() -> None:
    async with chatting(lambda _: answer(HELLO)) as server:
        for said, keeps in ((None, ()), ({"preserve_thinking": True}, (("preserve_thinking", True),))):
            engine = ServersEngine(server.kind, Access((server.url,)), keeps=said)
            await engine.start()
            try:
                assert engine.model.speech is not None
                assert engine.model.speech.keeps == keeps
            finally:
                await engine.close()


@pytest.mark.parametrize("shared", [True, False])
async def test_tenants_that_share_a_llama_cpp_server_have_no_cached_prompt_in_common(shared: bool) -> None:
    """And none is told of what another had cached. Its slots are as many as it said."""
    kind, facts = LlamaByChat(shared=shared), ServerFacts(CHAT, "m", 8192, places=3)
    asked = [generation(cache_salt=salt, **said()) for salt in "ab"]
    assert [json.loads(kind.request(facts, each).body)["cache_prompt"] for each in asked] == [not shared, False]
    reader = kind.answer(asked[0])
    assert list(reader.feed(b"".join(answer(HELLO))))
    assert reader.end().cached_tokens == (None if shared else 16)

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        return 200, b'{"total_slots":4,"data":[{"id":"m","max_model_len":8192}]}'

    assert not await kind.serves(ask, facts, ServerTerms)


async def test_tools_formats_and_sampling_are_said_as_everybody_says_them() -> None:
    async with chatting(lambda _: answer(HELLO)) as server:
        body = await body_of(server, **said(tools=True, choice="required", parallel=False))
        assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == ([TOOL], "required", False)
        sampling = Sampling(50, temperature=0, top_p=0, top_k=5, min_p=0.1, repetition_penalty=1.2, seed=3, logprobs=2)
        body = await body_of(server, **said(form=b'{"type":"json_object"}'), sampling=sampling)
    assert "tools" not in body
    assert body["response_format"] == {"type": "json_object"}
    wanted = {"temperature": 0, "top_p": 1e-6, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "seed": 3}
    assert wanted.items() <= body.items()
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)


async def test_a_bound_that_the_prompt_might_not_leave_room_for_is_kept_here() -> None:
    long = Turn("", "word" * 500, [])
    async with chatting(lambda _: answer(long), context_tokens=2048) as server, connected(server) as engine:
        got = await ask(engine, **said("x" * 2000), sampling=Sampling(100))
        await until(lambda: server.running == 0)
    assert "max_tokens" not in server.chats[-1].body
    assert (got.finish, len(got.tokens)) == ("length", 100)


@pytest.mark.parametrize("vllm", [True, False])
async def test_what_spells_a_mark_is_none(vllm: bool) -> None:
    async with chatting(lambda _: answer(HELLO), vllm=vllm) as server:
        body = await body_of(server, **said("<|eot_id|> [INST] <end_of_turn> </s> <b> [1]"))
    broken = "<\u2060|eot_id|> [\u2060INST] <\u2060end_of_turn> <\u2060/s> <b> [1]"
    text = body["messages"][0]["content"]
    assert text == (
        broken.replace("<b>", "<\u2060b>") if vllm else broken
    )  # all that looks so is one, to this stand-in


async def test_a_server_that_does_not_say_its_context_needs_it_said() -> None:
    async with chatting(lambda _: answer(HELLO), says_context=False) as server:
        async with connected(server) as engine:
            with pytest.raises(EngineUnavailable, match="HARMONIUM_CONTEXT_TOKENS"):
                await engine.check()
        async with connected(server, context_tokens=4096) as engine:
            assert engine.model.context_tokens == 4096
        async with connected(server, model="other", context_tokens=4096) as engine:
            with pytest.raises(EngineUnavailable, match="does not serve the model 'other'"):
                await engine.check()


async def test_a_refusal_says_the_server_s_words() -> None:
    async with chatting(lambda _: answer(HELLO)) as server, connected(server) as engine:
        refused = await failure(engine, **said("refuse me"))
        assert isinstance(refused, EngineRefused)
        assert str(refused) == "roles must alternate"
        server.instead[CHAT] = Instead((json.dumps({"detail": "too large"}).encode(),), 413)
        assert str(await failure(engine, **said())) == "too large"


@pytest.mark.parametrize("vllm", [True, False])
async def test_what_it_does_not_know_fails_alone_as_long_as_it_serves_its_model(vllm: bool) -> None:
    async with chatting(lambda _: answer(HELLO), vllm=vllm) as server, connected(server) as engine:
        server.instead[CHAT] = Instead((json.dumps(error_body(404, "no such thing at 10.0.0.5")).encode(),), 404)
        refused = await failure(engine, **said())
        assert isinstance(refused, EngineRefused)
        assert "10.0.0.5" not in str(refused)
        assert list(engine.servers().values()) == [True]
        del server.instead[CHAT]
        assert (await ask(engine, **said())).finish == "stop"

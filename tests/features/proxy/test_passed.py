"""What is read of requests that are passed on, and what is refused of them."""

import json
import re
from typing import Any

import pytest

from service.errors import InvalidRequest
from service.features.proxy.passed import (
    MAX_ANSWERS,
    MAX_NESTED,
    Endpoint,
    ReadPassed,
    members_of_form,
    read_passed,
)
from service.steps import in_one_go

HI = {"role": "user", "content": "hi"}


def read(endpoint: Endpoint = Endpoint.CHAT, **members: Any) -> ReadPassed:
    """A request, right but for these members."""
    own = {"chat": {"messages": [HI]}, "completions": {"prompt": "hi"}, "embeddings": {"input": "hi"}}
    return raw(json.dumps({"model": "m", **own[endpoint.name.lower()], **members}).encode(), endpoint)


def raw(body: bytes, endpoint: Endpoint = Endpoint.CHAT) -> ReadPassed:
    return in_one_go(read_passed(body, endpoint))


def image(url: str, **more: Any) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **more}}]}]


CHAT_REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "too many messages": ({"messages": [HI] * 4097}, "messages", "4096"),
    "an image elsewhere": ({"messages": image("http://10.0.0.1/")}, "messages[0].content[0].image_url", "data:"),
    "a video": (
        {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "http://a"}}]}]},
        "messages[0].content[0].video_url",
        "Unknown",
    ),
    "content that is no text": ({"messages": [HI | {"content": {}}]}, "messages[0].content", "Send a text"),
    "no model": ({"model": None}, "model", "Missing"),
    "what is stored": ({"store": True}, "store", "/v1/responses"),
    "too many answers": ({"n": MAX_ANSWERS + 1}, "n", "<= 64"),
    "all alternatives": ({"top_logprobs": 201_088}, "top_logprobs", "<= 20"),
    "a template": ({"chat_template": "{{ x }}"}, "chat_template", "server has its own"),
    "a template among its variables": ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs", "var"),
    "tools that are too large": ({"tools": ["x" * 1_048_576]}, "tools", "1048576 bytes"),
    "a misspelt parameter": ({"temprature": 1}, "temprature", "Did you mean 'temperature'?"),
    "somebody else's cache": ({"kv_transfer_params": {}}, "kv_transfer_params", "another server's memory"),
}


def test_what_reaches_further_than_its_request_is_refused() -> None:
    for case, (members, param, words) in CHAT_REFUSED.items():
        with pytest.raises(InvalidRequest, match=re.escape(words)) as refused:
            read(**members)
        assert refused.value.param == param, case


U = "http://10.0.0.1/x"
URL = {"type": "image", "source": {"type": "url", "url": U}}
SLOW = {"type": "string", "pattern": "(a{1,1000}){1,1000}(b{1,1000}){1,1000}"}


def says(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} | more]}


def answers_in(kind: str, **members: Any) -> dict[str, Any]:
    return says("hi") | {"response_format": {"type": kind, **members}}


BELOW_REFUSED: list[tuple[Endpoint, dict[str, Any], str]] = [
    (Endpoint.CHAT, says("hi", images=[U]), "messages[0].images"),
    (Endpoint.CHAT, says("hi", audio={"id": "x"}), "messages[0].audio"),
    (
        Endpoint.CHAT,
        says("hi", tool_calls=[{"function": {"name": "f", "url": U}}]),
        "messages[0].tool_calls[0].function",
    ),
    (
        Endpoint.CHAT,
        says([{"type": "input_audio", "input_audio": {"data": "", "url": U}}]),
        "messages[0].content[0].input_audio",
    ),
    (Endpoint.CHAT, answers_in("structural_tag", structures=[], triggers=[]), "response_format"),
    (Endpoint.CHAT, answers_in("grammar", grammar="root ::= root root"), "response_format"),
    (Endpoint.CHAT, answers_in("json_object", schema=SLOW), "response_format"),
    (Endpoint.CHAT, answers_in("json_schema"), "response_format.json_schema"),
    (
        Endpoint.CHAT,
        answers_in("json_schema", json_schema={"name": "x", "schema": SLOW}),
        "response_format.json_schema",
    ),
    (Endpoint.COMPLETIONS, {"prompt": "x", "response_format": {"type": "grammar", "grammar": "x"}}, "response_format"),
    (Endpoint.MESSAGES, says("hi") | {"output_config": {"format": {"schema": SLOW}}}, "output_config.format"),
    (Endpoint.MESSAGES, says("hi") | {"output_config": {"regex": "x"}}, "output_config.regex"),
    (Endpoint.MESSAGES, says("hi", image_url=U), "messages[0].image_url"),
    (Endpoint.MESSAGES, says(URL), "messages[0].content"),
    (Endpoint.MESSAGES, says([URL]), "messages[0].content[0].source.url"),
    (Endpoint.MESSAGES, says([{"type": "image", "source": [URL["source"]]}]), "messages[0].content[0].source"),
    (Endpoint.MESSAGES, says([{"type": "image", "Source": URL["source"]}]), "messages[0].content[0].Source"),
    (Endpoint.MESSAGES, says([{"type": "x", "video_url": {"url": U}}]), "messages[0].content[0].video_url"),
    (Endpoint.MESSAGES, says([{"type": "tool_result", "content": URL}]), "messages[0].content[0].content"),
    (Endpoint.MESSAGES, says("hi") | {"system": URL}, "system"),
    (Endpoint.DECISIONS, {"input": {"content": [URL]}, "questions": []}, "input"),
    (Endpoint.DECISIONS, {"input": [{"parts": [{"image_url": U}]}], "questions": []}, "input[0].parts[0].image_url"),
    (Endpoint.DECISIONS, {"input": "x", "questions": [{"about": {"image_url": U}}]}, "questions[0].about"),
    (Endpoint.DECISIONS, {"input": [{"content": [{"file_url": U}]}], "questions": []}, "input[0].content[0].file_url"),
]


@pytest.mark.parametrize(("endpoint", "members", "param"), BELOW_REFUSED)
def test_each_level_is_a_closed_list(endpoint: Endpoint, members: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        raw(json.dumps({"model": "m", **members}).encode(), endpoint)
    assert (refused.value.param or "").startswith(param)


CALL: dict[str, Any] = {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
ANSWERED = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": [CALL],
    "reasoning": "so",
    "reasoning_content": None,
}
DUMPED = {  # by openai's parse, by LiteLLM and by OpenRouter's clients
    "role": "assistant",
    "content": "{}",
    "parsed": {"a": 1},
    "tool_calls": [CALL | {"function": CALL["function"] | {"parsed_arguments": {}}, "provider_specific_fields": None}],
    "annotations": [{"type": "url_citation", "url_citation": {"url": U}}],
    "images": [],
    "thinking_blocks": [{"type": "thinking", "thinking": "so"}],
    "reasoning_details": [{"type": "reasoning.text", "text": "so"}],
    "provider_specific_fields": {"refusal": None},
}
SAID_BACK = [
    {"type": "thinking", "thinking": "so", "signature": "s"},
    {"type": "tool_use", "id": "t", "name": "f", "input": {"image_url": U}, "caller": {"type": "direct"}},
]
DATA = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
GIVEN = [
    {"type": "tool_result", "tool_use_id": "t", "is_error": False, "content": [{"type": "image", "source": DATA}]},
    {"type": "document", "source": {"type": "content", "content": "x"}, "title": "x", "citations": {"enabled": True}},
    {"type": "search_result", "source": "http://a.example", "title": "x", "content": [{"type": "text", "text": "x"}]},
    {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
PASSED: list[tuple[Endpoint, dict[str, Any]]] = [
    (Endpoint.CHAT, {"messages": [HI, ANSWERED, {"role": "tool", "tool_call_id": "c", "content": "1"}]}),
    (Endpoint.CHAT, {"messages": [HI, DUMPED, {"role": "tool", "tool_call_id": "c", "content": "1"}]}),
    (Endpoint.CHAT, says("hi", name="Ada") | {"response_format": None}),
    (Endpoint.CHAT, answers_in("json_schema", json_schema={"name": "x", "schema": SCHEMA, "strict": False})),
    (Endpoint.CHAT, answers_in("json_object")),
    (Endpoint.MESSAGES, {"messages": [HI, {"role": "assistant", "content": SAID_BACK}, HI | {"content": GIVEN}]}),
    (
        Endpoint.MESSAGES,
        says("hi") | {"system": GIVEN[-1:], "output_config": {"effort": "low", "task_budget": {"tokens": 9}}},
    ),
    (Endpoint.MESSAGES, says("hi") | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    (
        Endpoint.DECISIONS,
        {"input": [HI], "questions": [{"type": "choice", "options": ["a", "b"], "instructions": "x"}]},
    ),
]


@pytest.mark.parametrize(("endpoint", "members"), PASSED)
def test_what_clients_send_and_send_back_goes_on(endpoint: Endpoint, members: dict[str, Any]) -> None:
    passed = raw(json.dumps({"model": "m", **members}).encode(), endpoint).members
    assert {name: json.loads(bytes(value)) for name, value in passed.items()} == members


def test_what_has_a_file_or_more_deep_within_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(MAX_NESTED):
        nested = [{"type": "tool_result", "content": nested}]
    for endpoint, members, words in (
        (Endpoint.MESSAGES, {"messages": [HI | {"content": nested}]}, "up to 3 deep"),
        (Endpoint.RERANK, {"query": "q", "documents": ["a", {"image": "http://10.0.0.1/"}]}, "'documents[1]'"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(words)):
            raw(json.dumps({"model": "m", **members}).encode(), endpoint)


def test_all_else_goes_on_as_it_came() -> None:
    body = b'{"model":"m", "messages":[{"role":"user","content":"\\u00e4 \xc3\xa4"}],"temperature":0.10,"tools":[]}'
    messages = b'[{"role":"user","content":"\\u00e4 \xc3\xa4"}]'
    members = {name: bytes(value) for name, value in raw(body).members.items()}
    assert members == {"messages": messages, "temperature": b"0.10", "tools": b"[]"}


def test_a_body_that_is_no_object_is_refused() -> None:
    for body in (b"", b"[]", b"{", b'{"model":1}', b"[" * 100_000):
        with pytest.raises(InvalidRequest):
            raw(body)


def test_what_is_ours_stays_here() -> None:
    asked = read(
        cache_salt="s", priority=3, service_tier="flex", prompt_cache_key="k", metadata={"a": "b"}, store=False
    )
    assert asked.members.keys() == {"messages"}
    assert (asked.cache_salt, asked.priority, asked.tier, asked.cache_key) == ("s", 3, 1, "k")


def test_answers_are_prompts_times_choices() -> None:
    assert read(Endpoint.COMPLETIONS, prompt=["a", "b"], n=3).answers == 6
    assert read(Endpoint.COMPLETIONS, prompt=[[1, 2], [3]], best_of=5, n=2).answers == 10
    for members, param in (
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": [{"prompt_string": "x", "multimodal_data": []}]}, "prompt[0]"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"] * 33, "n": 2}, "n"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            read(Endpoint.COMPLETIONS, **members)
        assert refused.value.param == param


def test_fields_of_a_form_are_members_of_the_kinds_that_are_read() -> None:
    fields = [("model", "m"), ("stream", "True"), ("temperature", "1"), ("max_completion_tokens", "9")]
    asked = raw(members_of_form([*fields, ("include[]", "a"), ("include[]", "b")]), Endpoint.TRANSCRIBE)
    assert asked.stream
    within = {name: bytes(value) for name, value in asked.within(5).items()}
    given = {"stream": b"true", "temperature": b'"1"', "max_completion_tokens": b"5", "include[]": b'["a","b"]'}
    assert within == given
    with pytest.raises(InvalidRequest, match="more than once"):
        members_of_form([("model", "m")] * 2)


def test_embeddings_are_of_many_texts_and_of_no_messages() -> None:
    assert read(Endpoint.EMBEDDINGS, input=["x"] * 2048).answers == 1
    with pytest.raises(InvalidRequest, match="at most 2048"):
        read(Endpoint.EMBEDDINGS, input=["x"] * 2049)
    with pytest.raises(InvalidRequest, match="messages"):
        read(Endpoint.EMBEDDINGS, messages=[HI])


def test_nobody_asks_for_more_tokens_than_a_context_has_or_the_operator_allows() -> None:
    within = read(max_tokens=5000, max_completion_tokens=100).within(4096)
    assert (bytes(within["max_tokens"]), bytes(within["max_completion_tokens"])) == (b"4096", b"100")
    assert bytes(read(max_tokens=None).within(4096)["max_tokens"]) == b"null"
    each_over: list[dict[str, Any]] = [{}, {"max_tokens": None}, {"max_tokens": -1}, {"max_tokens": 600}]
    for named in each_over:
        assert bytes(read(**named).within(4096, 500)["max_tokens"]) == b"500"
    for open_ended in (None, -1):  # a server may heed either of the two
        for one, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            asked: dict[str, Any] = {one: 600, other: open_ended}
            within = read(**asked).within(4096, 500)
            assert (bytes(within[one]), other in within) == (b"500", False)
    assert "max_tokens" not in read(Endpoint.EMBEDDINGS).within(4096, 500)


def test_conversations_begin_with_what_was_said_first() -> None:
    system, more = {"role": "system", "content": "s"}, {"role": "assistant", "content": "yes"}
    first = read(messages=[system, HI]).beginning
    assert read(messages=[system, HI, more]).beginning == first
    assert read(messages=[system, {"role": "user", "content": "ho"}]).beginning != first

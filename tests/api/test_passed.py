"""What is read of requests that are passed on, and what is refused of them."""

import json
import re
from typing import Any

import pytest

from service.api.passed import MAX_ANSWERS, MAX_NESTED, Endpoint, PassedLimits, Read, members_of_form, read_passed
from service.errors import InvalidRequest
from service.steps import in_one_go

LIMITS = PassedLimits(messages=3, tools=2, tools_bytes=200)
HI = {"role": "user", "content": "hi"}


def read(endpoint: Endpoint = Endpoint.CHAT, **members: Any) -> Read:
    """A request, right but for these members."""
    own = {"chat": {"messages": [HI]}, "completions": {"prompt": "hi"}, "embeddings": {"input": "hi"}}
    return raw(json.dumps({"model": "m", **own[endpoint.name.lower()], **members}).encode(), endpoint)


def raw(body: bytes, endpoint: Endpoint = Endpoint.CHAT) -> Read:
    return in_one_go(read_passed(body, endpoint, LIMITS))


def image(url: str, **more: Any) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **more}}]}]


CHAT_REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "too many messages": ({"messages": [HI] * 4}, "messages", "at most 3"),
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
    "tools that are too large": ({"tools": ["x" * 200]}, "tools", "200 bytes"),
    "a misspelt parameter": ({"temprature": 1}, "temprature", "Did you mean 'temperature'?"),
    "somebody else's cache": ({"kv_transfer_params": {}}, "kv_transfer_params", "another one's memory"),
}


def test_what_reaches_further_than_its_request_is_refused() -> None:
    for case, (members, param, words) in CHAT_REFUSED.items():
        with pytest.raises(InvalidRequest, match=re.escape(words)) as refused:
            read(**members)
        assert refused.value.param == param, case


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
    fields = [(b"model", b"m"), (b"stream", b"True"), (b"temperature", b"1"), (b"max_completion_tokens", b"9")]
    asked = raw(members_of_form([*fields, (b"include[]", b"a"), (b"include[]", b"b")]), Endpoint.TRANSCRIBE)
    assert asked.stream
    within = {name: bytes(value) for name, value in asked.within(5).items()}
    given = {"stream": b"true", "temperature": b'"1"', "max_completion_tokens": b"5", "include[]": b'["a","b"]'}
    assert within == given
    with pytest.raises(InvalidRequest, match="more than once"):
        members_of_form([(b"model", b"m")] * 2)


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
    for named in ({}, {"max_tokens": None}, {"max_tokens": -1}, {"max_tokens": 600}):
        assert bytes(read(**named).within(4096, 500)["max_tokens"]) == b"500"
    assert "max_tokens" not in read(Endpoint.EMBEDDINGS).within(4096, 500)


def test_conversations_begin_with_what_was_said_first() -> None:
    system, more = {"role": "system", "content": "s"}, {"role": "assistant", "content": "yes"}
    first = read(messages=[system, HI]).beginning
    assert read(messages=[system, HI, more]).beginning == first
    assert read(messages=[system, {"role": "user", "content": "ho"}]).beginning != first

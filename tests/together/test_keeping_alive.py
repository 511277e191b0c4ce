"""Streams of other APIs in silence: each is kept alive as its clients expect it."""

from collections.abc import Callable

import pytest

from tests.support.service.process import MODEL, Served


@pytest.mark.parametrize(
    ("path", "alive"),
    [
        ("/open-responses/v1/responses", ": keep-alive\n\n"),
        ("/v1/chat/completions", ": keep-alive\n\n"),
        ("/v1/messages", 'event: ping\ndata: {"type":"ping"}\n\n'),
    ],
)
def test_another_api_is_kept_alive_by_its_own_means(beside: Callable[..., Served], path: str, alive: str) -> None:
    slow = beside(demo_tokens_per_second=10, keepalive_seconds=0.03, chats="remember")
    said = {"input": "hi"} if path.endswith("responses") else {"messages": [{"role": "user", "content": "hi"}]}
    limit = "max_output_tokens" if path.endswith("responses") else "max_tokens"
    text = slow.http().post(path, json={"model": MODEL, "stream": True, limit: 16, **said}).text
    assert text.count(alive) > 5
    assert "keepalive" not in text

"""Lines and the card for a person: what they say, what they leave out, and that nothing breaks out of them."""

import logging
from typing import Any

import pytest
from rich.console import Console

from service.commands.terminal import TerminalFormatter, card
from service.process import load_settings


def line(message: str, **fields: Any) -> str:
    """How an event is shown, from behind its time."""
    record = logging.LogRecord("harmonium.test", logging.INFO, __file__, 1, "%s", (message,), None)
    record.__dict__["fields"] = fields
    return TerminalFormatter(Console(color_system=None)).format(record)[9:]


@pytest.mark.parametrize("evil", ["\x1b[2J", "\n00:00:00 forged", "\u202e"])
def test_nothing_breaks_out_of_a_line_or_reaches_the_terminal(evil: str) -> None:
    names = ("method", "path", "tenant", "code", "param", "client", "response_status", "response_id")
    of_request: Any = {"status": 200, "ms": 7.4, **dict.fromkeys(names, evil)}
    written = [line(evil, reason=evil, **{evil: "x"}), line("request", **of_request)]
    assert all(text.replace("…", "").isascii() and text.isprintable() for text in written)


def test_the_card_of_a_real_engine_with_keys_shows_no_secret() -> None:
    settings = load_settings(
        engine="vllm",
        engine_url="http://gpu:8000",
        host="0.0.0.0",
        api_keys="acme:sk-secret-one,globex:sk-secret-two",
        redis_url="redis://:sk-secret@redis:6379/0",
    )
    text = card(settings, "http://127.0.0.1:8000", None, None).plain
    assert "sk-secret" not in text
    assert "vLLM at http://gpu:8000\n" in text
    assert "in redis://:****@redis:6379/0, which doesn't answer now\n" in text


def test_the_card_shows_the_warnings_of_the_start_below_each_other() -> None:
    warnings = ["the Redis, persistence: nothing is written to disk", "the Redis, memory: no limit"]
    text = card(load_settings(), "http://127.0.0.1:8000", 0, None, warnings=warnings).plain
    shown = [line.strip() for line in text.splitlines() if "the Redis" in line]
    assert shown == [f"warning        {warnings[0]}", warnings[1]]
    assert "warning" not in card(load_settings(), "http://127.0.0.1:8000", 0, None).plain

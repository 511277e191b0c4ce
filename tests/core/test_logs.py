"""Logs: one line an event, nothing that breaks out of its line, no caller that waits for a slow reader."""

import io
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from service import logs

logger = logging.getLogger("harmonium.test")


@contextmanager
def captured(form: logs.Format = "text", level: str = "info") -> Generator[Callable[[], list[str]]]:
    """Logs that go to memory; the value gives the lines, once all of them are written."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    close = logs.configure(level, form, stream)

    def lines() -> list[str]:
        close()
        return stream.getvalue().splitlines()

    try:
        yield lines
    finally:
        close()
        root.handlers[:] = handlers
        root.setLevel(before)


def test_an_event_is_a_time_a_level_a_message_and_fields_with_quotes_where_a_value_needs_them() -> None:
    with captured() as lines:
        logs.event(logger, logging.INFO, "got", id="resp_1", ms=12.34567, cached=None, spaced='a "b" c', empty="")
    (line,) = lines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    got ", line)
    assert line.endswith(r' got id=resp_1 ms=12.346 spaced="a \"b\" c" empty=""')


def test_an_event_in_json_is_an_object_whose_own_keys_win() -> None:
    with captured("json") as lines:
        logs.event(logger, logging.WARNING, "slow", ms=12, level="high")
        logger.warning("x" * 20_000)
        logging.getLogger("uvicorn.access").warning("GET /words-of-a-user")
    line, long = map(json.loads, lines())
    assert len(long["message"]) == logs.MAX_VALUE_CHARS
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "harmonium.test", "message": "slow", "ms": 12}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("evil", ["a\n2026-11-20T00:00:00.000Z INFO  forged", "\x1b[2J\u2028\x7f\x00\r\ud800"])
def test_a_value_can_not_forge_a_line_or_reach_the_terminal(form: logs.Format, evil: str) -> None:
    with captured(form) as lines:
        logs.event(logger, logging.INFO, "got", value=evil)
        logger.info("uvicorn says %s", evil)
    written = lines()
    assert len(written) == 2
    assert all(line.isascii() and line.isprintable() for line in written)


def test_the_request_that_is_served_is_on_every_line_and_what_is_below_the_level_is_not_written() -> None:
    with captured(level="warning") as lines:
        token = logs.request_id.set("req_1")
        logs.event(logger, logging.INFO, "quiet")
        logs.event(logger, logging.WARNING, "within")
        logs.request_id.reset(token)
        logging.getLogger("uvicorn.error").info("quiet too")
        logging.getLogger("uvicorn.error").warning("without")
    assert [line.split()[2:] for line in lines()] == [["within", "request_id=req_1"], ["without"]]


def test_a_traceback_stays_on_its_line_and_a_long_value_is_cut() -> None:
    with captured() as lines:
        try:
            raise ValueError("x" * 20_000)
        except ValueError:
            logger.exception("failed")
    (line,) = lines()
    assert 'failed traceback="Traceback' in line
    assert "characters)" in line
    assert len(line) < 2 * logs.MAX_VALUE_CHARS


def test_a_line_that_can_not_be_formatted_fails_nobody() -> None:
    with captured() as lines:
        logger.info("%d", "no number")
        logger.info("next")
    assert len(lines()) == 1


def test_a_reader_that_stalls_stops_nobody_and_the_loss_is_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as writer:
        handler = logs.QueuedHandler(writer, lines=10)
        handler.setFormatter(logs.TextFormatter())
        for _ in range(1000):  # 1 MB into a pipe that holds 64 KiB
            handler.handle(logging.makeLogRecord({"msg": "y" * 1000, "levelname": "INFO"}))
        received: list[str] = []
        pump = threading.Thread(target=lambda: received.extend(iter(reader.readline, "")))
        pump.start()
        handler.close()
        writer.close()
        pump.join(5)
    losses = [int(line.rpartition("dropped_lines=")[2]) for line in received if "log lines dropped" in line]
    assert sum(losses) > 0
    assert sum(losses) + len(received) - len(losses) == 1000

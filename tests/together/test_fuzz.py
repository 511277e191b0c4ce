"""Thousands of requests made by chance: each is answered or refused in the envelope, and nothing breaks on the way."""

import asyncio
import json
import logging
from collections.abc import Iterator
from random import Random

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from service.process import Settings
from service.responses.prompt.compaction import CompactBody
from tests.support.fuzz.fuzzing import Json, Maker
from tests.support.lengths import lengths
from tests.support.oracles import open_responses
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import serving
from tests.support.service.process import MODEL
from tests.support.service.streams import sent

SECONDS = 20
OUTPUT = TypeAdapter(list[ResponseOutputItem])
ENDED = {"completed", "incomplete", "failed", "cancelled"}
FUNCTION: Json = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
COMPACTED = tuple(CompactBody.__struct_fields__)
STORED: tuple[Json, ...] = (
    {"input": "hi", "include": ["reasoning.encrypted_content"]},
    {"input": "weather in Paris", "tools": [FUNCTION], "tool_choice": "required"},
    {"input": "hi", "tools": [{"type": "custom", "name": "c"}], "tool_choice": {"type": "custom", "name": "c"}},
)
"""What is asked before all else, so that there is something to continue and to send back."""


class Fuzzed:
    """A service in a loop of its own, and its answers, each of which is looked at."""

    def __init__(self, runner: asyncio.Runner, http: httpx.AsyncClient) -> None:
        self._runner = runner
        self._http = http
        self.items: list[Json] = []
        self.ids: list[str] = []
        self.asked: tuple[str, str, bytes | None] | None = None
        self.statuses = {True: 0, False: 0}
        for body in STORED:
            made = self.ask("POST", "/v1/responses", json.dumps({"model": MODEL, **body}).encode()).json()
            assert made["status"] == "completed", made
            self.ids.append(made["id"])
            self.items += made["output"]
        compacted = {"model": MODEL, "input": "hi"}
        self.items += self.ask("POST", "/v1/responses/compact", json.dumps(compacted).encode()).json()["output"]

    def ask(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        headers = {"content-type": "application/json"}
        self.asked = (method, path, content)
        return self._runner.run(self._http.request(method, path, content=content, headers=headers))

    def try_all(self, maker: Maker) -> None:
        """A create request, or one of its like, and what follows where it was served."""
        prefix = maker.one("/v1", "/v1", "/v1", "/open-responses/v1")
        path = maker.one(*["/responses"] * 8, "/responses/input_tokens", "/responses/compact")
        body = maker.body(COMPACTED if path.endswith("compact") else ())
        answer = self.ask("POST", f"{prefix}{path}", maker.content(body))
        self.statuses[answer.status_code == 200] += 1
        made = checked(answer, specified=prefix != "/v1")
        if made is None or made.get("object") != "response":
            return
        assert made["status"] in ENDED or made["background"]
        if made["store"] and maker.odds(4):
            where = f"{prefix}/responses/{made['id']}"
            for after in ("", "/input_items", f"?{maker.query()}", f"/input_items?{maker.query()}"):
                checked(self.ask("GET", f"{where}{after}"), specified=prefix != "/v1", whole=False)
            checked(self.ask("POST", f"{where}/cancel"), specified=prefix != "/v1")
            checked(self.ask("DELETE", f"{where}?{maker.query()}"), specified=False)


def checked(answer: httpx.Response, *, specified: bool, whole: bool = True) -> Json | None:
    """What was answered, once it was looked at; None for a refusal. Unless it is `whole`, a stream may begin anywhere.

    What is `specified` is in the dialect of the Open Responses specification.
    """
    assert answer.status_code in (200, 400, 404, 413, 415), answer.text
    if answer.status_code != 200:
        assert answer.json().keys() == {"error"}
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert isinstance(error["message"], str)
        assert len(error["message"]) < 1200
        return None
    if answer.headers["content-type"].startswith("text/event-stream"):
        events = sent(answer.text)
        if not whole:
            return None
        return open_responses.check_stream(events) if specified else check_stream(events)
    made: Json = answer.json()
    if made.get("object") == "response":
        OUTPUT.validate_python(made["output"])
        if specified:
            open_responses.check_response(made)
    return made


@pytest.fixture
def fuzzed(settings: Settings) -> Iterator[Fuzzed]:
    """The service over the demo engine, as fast as it can."""
    with asyncio.Runner() as runner:
        service = serving(settings)
        inside = runner.run(service.__aenter__())
        http = httpx.AsyncClient(base_url=inside.url, timeout=SECONDS, trust_env=False)
        yield Fuzzed(runner, http)
        runner.run(http.aclose())
        runner.run(service.__aexit__(None, None, None))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of tools that the client's accumulator sees echoed
@pytest.mark.parametrize("requests", lengths(300, 50_000, seconds=1800))
def test_whatever_is_sent_is_answered_or_refused(
    fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, requests: int
) -> None:
    """Nothing may be refused in another way than as a refusal, or be logged as a mistake."""

    @settings(max_examples=requests, deadline=None, derandomize=True, database=None)
    @given(st.integers(0, 2**48))
    def one(seed: int) -> None:
        try:
            fuzzed.try_all(Maker(Random(seed), fuzzed.items, fuzzed.ids))
            assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        except Exception as error:
            error.add_note(f"the last request was {fuzzed.asked}")
            raise

    one()
    assert min(fuzzed.statuses.values()) > requests // 10, "what is made is all served, or all refused"

"""A vLLM server whose model has a chat template, in a process of its own: the other end of bench/dialects.py.

    python -m bench._templated FAMILY

It cuts texts as gpt-oss does, with a mark for each that any model has, and writes prompts in ChatML. Of a model that
reasons, a turn is reasoning and an answer, and the template drops reasoning before the last words of the user, as
Qwen's does. It says a token each ms, an event each, or at temperature 0 as fast as it can. What it costs counts for
nobody.
"""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import count, cycle, islice
from typing import Any

import msgspec
from aiohttp import web

from service.engine.demo.prose import story
from service.engine.vllm.wire import ABORT, TOKENIZE, Endpoint
from service.harmony import tokens
from service.markup.families import ENDS, FAMILIES, MARKS, Reasoning

START, END = "<|im_start|>", "<|im_end|>"
SPECIAL = dict(zip(dict.fromkeys((START, *MARKS, *ENDS)), count(1_000_000), strict=False))
"""The ids of marks: behind those of gpt-oss, whose vocabulary has none of them."""

CONTEXT_TOKENS = 131_072
REASONED = 120
ANSWERED = 325
"""The tokens of a turn; as in bench/continuation.py."""

PACE_SECONDS = 0.001
"""How long the next token takes: less than any model's."""

PROSE_WORDS = 2000
MAX_BODY_BYTES = 16 << 20

_MARKS = re.compile("|".join(map(re.escape, sorted(SPECIAL, key=len, reverse=True))))


@lru_cache(maxsize=4096)
def cut(text: str) -> tuple[tuple[int, str], ...]:
    """A text's ids, marks among them, each with what it stands for."""
    pieces: list[tuple[int, str]] = []
    at = 0
    for found in _MARKS.finditer(text):
        pieces += _words(text[at : found.start()])
        pieces.append((SPECIAL[found[0]], found[0]))
        at = found.end()
    return (*pieces, *_words(text[at:]))


def _words(text: str) -> list[tuple[int, str]]:
    table = tokens.byte_table()
    return [(id, table[id].decode("utf-8", "replace")) for id in tokens.encode(text)]


def prose(size: int) -> str:
    """A text of so many tokens."""
    ids = islice(cycle(tokens.encode("".join(story(PROSE_WORDS)))), size)
    table = tokens.byte_table()
    return b"".join(table[id] for id in ids).decode()


class Templated:
    """The server of a model of a family."""

    def __init__(self, family: str) -> None:
        self._model = family
        self._reasons = FAMILIES[family].reasoning is not Reasoning.NONE
        thought = f"<think>\n{prose(REASONED)}\n</think>\n\n" if self._reasons else ""
        self._said = cut(thought + prose(ANSWERED + (0 if self._reasons else REASONED)) + END)

    def app(self) -> web.Application:
        """What it answers."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/health", _well)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions/render", _defaults)
        app.router.add_post(TOKENIZE, self._tokenize)
        app.router.add_post(Endpoint.GENERATE, self._generate)
        app.router.add_post(ABORT, _well)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return _json({"data": [{"id": self._model, "max_model_len": CONTEXT_TOKENS}]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        pieces = cut(body["prompt"]) if "prompt" in body else self._prompt(body["messages"])
        strings = [piece for _, piece in pieces] if body.get("return_token_strs") else None
        return _json({"count": len(pieces), "tokens": [id for id, _ in pieces], "token_strs": strings})

    def _prompt(self, messages: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
        """The template: each message cut by itself, so that it stays the same however many there are."""
        asked = max((place for place, each in enumerate(messages) if each["role"] == "user"), default=0)
        pieces: list[tuple[int, str]] = []
        for place, each in enumerate(messages):
            thought = each.get("reasoning_content") if place > asked else None
            before = f"<think>\n{thought}\n</think>\n\n" if thought else ""
            pieces += cut(f"{START}{each['role']}\n{before}{each['content']}{END}\n")
        return [*pieces, *cut(f"{START}assistant\n")]

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        if "token_ids" not in body:
            return _json({"error": {"message": "no prompt", "code": 400}}, 400)
        pace = PACE_SECONDS if body["sampling_params"]["temperature"] else 0
        stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        for id, text in self._said:
            ended = "stop" if id == SPECIAL[END] else None
            choice = {"index": 0, "token_ids": [id], "text": "" if ended else text, "finish_reason": ended}
            await stream.write(_event({"request_id": "1", "choices": [choice]}))
            await asyncio.sleep(pace)
        usage = {"prompt_tokens": len(body["token_ids"]), "prompt_tokens_details": {"cached_tokens": 0}}
        await stream.write(_event({"request_id": "1", "choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        return stream


def _event(payload: object) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def _json(payload: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(payload), status=status, content_type="application/json")


async def _well(request: web.Request) -> web.Response:
    return web.Response()


async def _defaults(request: web.Request) -> web.Response:
    return _json([{"sampling_params": {"temperature": 1.0}}])


def main() -> None:
    """Serve until a signal comes."""
    serve = partial(web.run_app, host="127.0.0.1", access_log=None, print=None)
    serve(Templated(sys.argv[1]).app(), port=int(os.environ["TEMPLATED_PORT"]))


if __name__ == "__main__":
    main()

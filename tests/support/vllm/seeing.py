"""A stand-in for a vLLM server whose model sees, asked by ids.

tests/features/chat_servers/test_pictures_on_vllm.py has a real one.

Each character is a token, and so is each mark. Its template marks a picture with PICTURE; the prompt that the model
reads has PATCHES in the place of each, and so has each prompt that the server tells of messages.
"""

import asyncio
from typing import Any

from aiohttp import web

from service.engine.port import ModelCard
from service.engine.vllm.pictures import RENDER
from service.engine.vllm.servers import TokensEndpoint, Vllm
from service.features.models.speech import Disarming
from tests.support.engine.misbehaviour import transport_of
from tests.support.engine.scripted import ScriptedEngine
from tests.support.engine.standin_wire import DONE, error_body, event
from tests.support.engine.standing import Asked, Standing, as_json, healthy, streaming
from tests.support.markup.speaker import ASSISTANT, END, IDS, START, encoded

PICTURE, PATCHES = "\ue000", "\ue001" * 16
MORE = len(PATCHES) - len(PICTURE)
"""The tokens that a picture takes beside its mark."""


def written(messages: list[dict[str, Any]], picture: str) -> str:
    """The prompt of some messages."""
    text = ""
    for message in messages:
        content = message["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        said = "".join(part.get("text", picture) for part in parts)
        text += f"{START}{message['role']}\n{said}{END}\n"
    return text + ASSISTANT


class SeeingStandin(Standing):
    """The server, which answers `says`. It breaks off behind so many tokens as `breaks_behind` says, one answer after
    another, and takes `most` pictures. Its tokens have no text where it isn't `telling`, and their end is not told
    before it is `deciding`.
    """

    def __init__(self, says: str) -> None:
        super().__init__(ScriptedEngine(ModelCard("seeing", 0, 8192), []))
        self.most = 8
        self.breaks_behind: list[int] = []
        self.telling = True
        self.deciding = asyncio.Event()
        self.deciding.set()
        self.undecided = 0
        """How many answers have come to their last token and not to their end."""
        self._says = encoded(says + END)

    @property
    def kind(self) -> Vllm:
        return Vllm(Disarming())

    @property
    def generations(self) -> list[Asked]:
        """The requests for an answer so far."""
        return [each for each in self.asked if each.path == TokensEndpoint.GENERATE and each.body]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/health", healthy)
        router.add_get("/v1/models", self._models)
        router.add_post("/tokenize", self._tokenize)
        router.add_post(RENDER, self._render)
        router.add_post("/v1/chat/completions", self._chat)
        router.add_post(TokensEndpoint.GENERATE, self._generate)

    async def _models(self, request: web.Request) -> web.Response:
        return as_json({"data": [{"id": self.model, "max_model_len": self.context_tokens}]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = self.asked[-1].body
        ids = encoded(body["prompt"] if "prompt" in body else written(body["messages"], PATCHES))
        spelled = {id: spelling for spelling, id in IDS.items()}
        return as_json({"tokens": ids, "token_strs": [spelled.get(id) or chr(id) for id in ids]})

    async def _render(self, request: web.Request) -> web.Response:
        body = self.asked[-1].body
        assert body["mm_payload"] == "none"
        marked = encoded(written(body["messages"], PICTURE))
        if marked.count(ord(PICTURE)) > self.most:
            return as_json(error_body(400, f"At most {self.most} image(s) may be provided in one prompt."), 400)
        places = [at for at, id in enumerate(marked) if id == ord(PICTURE)]
        ranges = [{"offset": at + number * MORE, "length": len(PATCHES)} for number, at in enumerate(places)]
        ids = encoded(written(body["messages"], PATCHES))
        if len(ids) > self.context_tokens:
            return as_json(error_body(400, f"Input length ({len(ids)}) exceeds model's maximum context length"), 400)
        features = {"mm_hashes": {"image": ["0"] * len(places)}, "mm_placeholders": {"image": ranges}}
        return as_json({"token_ids": ids, "features": features if places else None})

    async def _chat(self, request: web.Request) -> web.Response:
        """The text of the prompt, which is told beside an answer alone."""
        body = self.asked[-1].body
        assert (body["return_prompt_text"], body["max_tokens"]) == (True, 1)
        return as_json({"choices": [], "prompt_text": written(body["messages"], PICTURE)})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if not body:
            return as_json(error_body(400, "1 validation error: …"), 400)
        prompt, parts = body["token_ids"], body.get("content_parts", [])
        assert prompt.count(ord(PICTURE)) == len(parts)
        begins = len(prompt) - prompt[::-1].index(IDS[START]) + len(ASSISTANT) - len(START)
        rest = self._says[len(prompt) - begins :]
        usage: dict[str, Any] = {}
        stream, breaks = await streaming(request), self.breaks_behind.pop(0) if self.breaks_behind else len(rest)
        for number, id in enumerate(rest):
            if number == breaks:
                transport_of(request).abort()
                return stream
            ended = id == IDS[END]
            text = chr(id) if self.telling and not ended else ""
            choice = {"token_ids": [id], "text": text, "finish_reason": None}
            usage = {"prompt_tokens": len(prompt) + MORE * len(parts), "completion_tokens": number + 1}
            told = usage if body["stream_options"].get("continuous_usage_stats") else None
            await stream.write(event({"choices": [{"index": 0, **choice}], "usage": told}))
        self.undecided += 1
        await self.deciding.wait()
        end = {"token_ids": [], "text": "", "finish_reason": "stop"}
        await stream.write(event({"choices": [{"index": 0, **end}]}))
        await stream.write(event({"choices": [], "usage": usage | {"prompt_tokens_details": {"cached_tokens": 0}}}))
        await stream.write(DONE)
        return stream

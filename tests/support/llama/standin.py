"""A stand-in for a llama.cpp server, for what a real one can't be made to do: its wire over an engine of ours.

tests/features/llama/ has all else with a real server.
"""

from contextlib import aclosing
from typing import Any

from aiohttp import web

from service.engine.port import Finish, Generation, Sampling
from service.features.llama.servers import COMPLETION, VOCABULARY, Llama
from service.harmony.tokens import ENDS, decode
from tests.support.engine.standing import Standing, as_json, healthy, streaming
from tests.support.llama.wire import event, stop_event


class LlamaStandin(Standing):
    """The server."""

    @property
    def kind(self) -> Llama:
        return Llama(shared=False)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/health", healthy)
        router.add_get("/props", self._props)
        router.add_get("/v1/models", self._models)
        router.add_post(COMPLETION, self._complete)

    async def _props(self, request: web.Request) -> web.Response:
        return as_json({"total_slots": 4})

    async def _models(self, request: web.Request) -> web.Response:
        meta = {"n_vocab": VOCABULARY, "n_ctx": self.context_tokens}
        return as_json({"data": [{"id": self.model, "meta": meta}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = self.asked[-1].body
        if "stream" not in body:
            return as_json({"error": {"code": 400, "message": "llguidance is not enabled"}}, 400)
        sampling = Sampling(body["n_predict"], body["temperature"], stop_ids=_stops(body))
        stream, count = await streaming(request), 0
        with self.working():
            generation = Generation(request.headers["x-request-id"], body["prompt"], sampling)
            async with aclosing(self.chunks(generation, generation.id)) as chunks:
                async for chunk in chunks:
                    for token in chunk.tokens:
                        count += 1
                        await stream.write(event(decode([token]), [token], count))
                    if chunk.finish is not None:
                        await stream.write(stop_event(count, "eos" if chunk.finish is Finish.STOP else "limit"))
        return stream


def _stops(body: dict[str, Any]) -> tuple[int, ...]:
    """The model's own ends but for those that are banned."""
    return tuple(set(ENDS) - {id for id, _ in body.get("logit_bias", ())})

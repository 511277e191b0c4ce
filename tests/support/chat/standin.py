"""A stand-in for a server that is asked by Chat Completions: what it says is a script, its events are vLLM 0.32's.

So reasoning, answer and calls come apart; the role comes alone, some deltas are empty, and the usage comes behind the
finish, without choices. Never teach it to be nicer than that.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from service.engine.port import ModelCard
from service.features.chat_servers.servers import ByChat, VllmByChat
from tests.support.engine.misbehaviour import transport_of
from tests.support.engine.scripted import ScriptedEngine
from tests.support.engine.standin_wire import DONE, error_body, event
from tests.support.engine.standing import Asked, Standing, as_json, healthy, standing, streaming
from tests.support.markup.writing import Turn, plain_json

CHAT = "/v1/chat/completions"
PROMPT_TOKENS, CACHED_TOKENS = 40, 16

Move = bytes | Callable[[], Awaitable[None]]
"""An event, or what happens before the next one."""
Say = Callable[[dict[str, Any]], Iterable[Move]]
"""What is answered to the body of a request."""


def pieces(text: str) -> list[str]:
    """A text as it comes: four characters at once."""
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def delta(
    said: dict[str, Any], finish: str | None = None, *, ids: int | None = None, prompt: int = 0, **more: Any
) -> bytes:
    """One event; with `ids` it has so many of them, and with `prompt` those of the prompt."""
    tokens = {} if ids is None else {"token_ids": list(range(100, 100 + ids))}
    choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": finish, **tokens, **more}
    head = {"prompt_token_ids": list(range(prompt))} if prompt else {}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice], **head})


def usage(sampled: int, prompt: int = PROMPT_TOKENS) -> bytes:
    """The event that tells how many tokens there were."""
    details = {"cached_tokens": CACHED_TOKENS}
    told = {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
    return event({"id": "chatcmpl-1", "choices": [], "usage": {**told, "prompt_tokens_details": details}})


def spoken(turn: Turn, *, ids: bool = True) -> list[bytes]:
    """The events that say what a model says, up to the finish."""
    one = 1 if ids else None
    out = [delta({"role": "assistant", "content": ""}, prompt=PROMPT_TOKENS if ids else 0)]
    out += [delta({"reasoning": piece}, ids=one) for piece in pieces(turn.reasoning)]
    out += [delta({}, ids=one)] * bool(turn.reasoning)
    out += [delta({"content": piece}, ids=one) for piece in pieces(turn.text)]
    for index, (name, arguments) in enumerate(turn.calls):
        function = {"name": name, "arguments": ""}
        first = {"index": index, "id": f"chatcmpl-tool-{index}", "type": "function", "function": function}
        out.append(delta({"tool_calls": [first]}, ids=one))
        for piece in pieces(plain_json(arguments)):
            out.append(delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, ids=one))
    return out


def answer(turn: Turn, *, ids: bool = True) -> list[bytes]:
    """The events of a whole answer; each has a token, and so has the end."""
    said = spoken(turn, ids=ids)
    end = delta({"content": ""}, "tool_calls" if turn.calls else "stop", ids=1 if ids else None)
    return [*said, end, usage(len(said)), DONE]


async def BREAK() -> None:  # noqa: N802
    """The connection breaks."""


async def stall() -> None:
    """Say nothing more, until the connection is gone."""
    await asyncio.Event().wait()


class ChatStandin(Standing):
    """The server. `says` are the answers to its requests, the last one again and again."""

    def __init__(self, *says: Say) -> None:
        super().__init__(ScriptedEngine(ModelCard("llama-4", 0, 8192), []))
        self.vllm = False
        """Whether it has what only vLLM has."""
        self.sees = False
        """Whether its model sees pictures."""
        self.says_context = True
        self._says = list(says)

    @property
    def kind(self) -> ByChat:
        return VllmByChat() if self.vllm else ByChat(shared=False)

    @property
    def chats(self) -> list[Asked]:
        """The requests for an answer so far."""
        return [each for each in self.asked if each.path == CHAT]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/health", healthy)
        router.add_get("/v1/models", self._models)
        router.add_post("/tokenize", self._tokenize)
        router.add_post(CHAT, self._chat)

    async def _models(self, request: web.Request) -> web.Response:
        context = {"max_model_len": self.context_tokens} if self.says_context else {}
        return as_json({"object": "list", "data": [{"id": self.model, "object": "model", **context}]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if not self.vllm:
            return as_json({"detail": "Not Found"}, 404)
        if "messages" in self.asked[-1].body:
            refused = error_body(400, "At most 0 image(s) may be provided in one prompt.")
            return as_json({"tokens": [1] * 70}) if self.sees else as_json(refused, 400)
        lines = self.asked[-1].body["prompt"].split("\n")
        return as_json({"tokens": [1] * len(lines), "token_strs": lines})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if any(message.get("content") == "refuse me" for message in body["messages"]):
            return as_json(error_body(400, "roles must alternate"), 400)
        say = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        stream = await streaming(request)
        with self.working():
            for move in say(body):
                if move is BREAK:
                    transport_of(request).abort()
                    return stream
                await (stream.write(move) if isinstance(move, bytes) else move())
                await asyncio.sleep(0)  # so that most events arrive by themselves
        return stream


@asynccontextmanager
async def chatting(*says: Say, **traits: Any) -> AsyncIterator[ChatStandin]:
    """A stand-in that runs until the end of the block."""
    async with standing(ChatStandin(*says), **traits) as server:
        yield server

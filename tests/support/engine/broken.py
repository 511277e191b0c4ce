"""Faults of a server, for every kind: each one is an error of the port, and the next generation is served."""

from collections.abc import AsyncIterator, Callable
from typing import ClassVar

import pytest

from service.engine.port import (
    Chunk,
    Engine,
    EngineBroke,
    EngineError,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Sampling,
)
from service.engine.servers import server as server_module
from service.harmony.tokens import STOPS
from tests.support.engine.connected import CARD, ask, connected, failure, generation, hold, scripted
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.scripted import Stall
from tests.support.engine.standing import Standing, standing
from tests.support.engine.voices import Voice
from tests.support.waiting import until

DONE = b"data: [DONE]\n\n"
PAGE = b"<!doctype html><title>Sign in</title>\n\n<p>You are not signed in.</p>\n\n"
MANY = 20


def begun(voice: Voice, *rest: bytes, then: Then = Then.END) -> Instead:
    return Instead((voice.tokens([5, 6], 2), *rest), then=then)


Fault = tuple[Callable[[Voice], Instead], type[EngineError], str]

FAULTS: dict[str, Fault] = {
    "a refusal": (lambda _: Instead((b"{}",), 400), EngineRefused, "status 400"),
    "failure": (lambda _: Instead((b"{}",), 500), EngineError, "status 500"),
    "a gateway": (lambda _: Instead((PAGE,), 502), EngineUnavailable, "gateway"),
    "a page that is no answer": (
        lambda _: Instead((PAGE,), headers=(("content-type", "text/html"),)), EngineBroke, "broke off",
    ),
    "zipped": (lambda _: Instead((b"\x1f\x8b\x08",), headers=(("content-encoding", "gzip"),)), EngineBroke, "broke"),
    "done before it began": (lambda _: Instead((DONE, DONE)), EngineBroke, "broke off"),
    "a cut in an event": (lambda voice: begun(voice, voice.tokens([7], 3)[:-9], then=Then.CUT), EngineBroke, "broke"),
    "failure in the middle": (lambda voice: begun(voice, voice.error(500, "because")), EngineError, "status 500"),
    "more tokens than were asked for": (
        lambda v: Instead(tuple(v.tokens([5], n) for n in range(1, MANY + 2)), then=Then.STALL),
        EngineError, "too many tokens",
    ),
    "an endless event": (lambda _: Instead((b"data: ", b"x" * 65_536), then=Then.AGAIN), EngineError, "bytes"),
}  # fmt: skip


async def go_on() -> bool:
    return True


class BrokenServers:
    """The suite. Subclasses are named Test…, and give a stand-in for such a server, and its voice."""

    standin: ClassVar[Callable[[Engine], Standing]]
    voice: ClassVar[Voice]

    @pytest.fixture
    async def server(self) -> AsyncIterator[Standing]:
        async with standing(self.standin(scripted())) as server:
            yield server

    @pytest.mark.parametrize("fault", FAULTS)
    async def test_each_fault_is_its_error_and_the_next_one_is_served(self, server: Standing, fault: str) -> None:
        make, error_kind, words = FAULTS[fault]
        async with connected(server, context_tokens=CARD.context_tokens) as engine:
            server.instead[self.voice.path] = make(self.voice)
            error = await failure(engine, sampling=Sampling(MANY, stop_ids=STOPS))
            assert type(error) is error_kind
            assert words in str(error)
            assert len(str(error)) < 200
            assert not any(secret in str(error) for secret in ("127.0.0.1", str(server.port), "talker"))
            assert engine.running == 0
            del server.instead[self.voice.path]
            assert (await ask(engine)).finish is Finish.STOP

    async def test_a_server_that_dies_amid_an_answer_is_served_by_again_once_it_is_back(self, server: Standing) -> None:
        server.engine = scripted([[5], Stall()])
        async with connected(server, context_tokens=CARD.context_tokens) as engine:
            held = await hold(engine)
            await server.die()
            with pytest.raises(EngineBroke, match="broke"):
                await held
            assert isinstance(await failure(engine), EngineUnavailable)
            server.engine = scripted()
            await server.start()
            assert (await ask(engine)).finish is Finish.STOP

    @pytest.mark.parametrize("status", [0, 503])
    async def test_a_server_that_accepts_and_says_no_more_is_given_up(
        self, server: Standing, status: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With an error it is the rest of its words that are not waited for."""
        async with connected(server, context_tokens=CARD.context_tokens) as engine:
            server.instead[self.voice.path] = Instead((), status, Then.STALL)
            with monkeypatch.context() as hurried:
                hurried.setattr(server_module, "HEAD_SECONDS", 0.05)
                assert isinstance(await failure(engine), EngineError)
            assert engine.running == 0
            await until(lambda: server.open_connections <= 1, 2)
            del server.instead[self.voice.path]
            assert (await ask(engine)).finish is Finish.STOP

    @pytest.mark.parametrize("then", [Then.CUT, Then.STALL, Then.AGAIN, "an error"])
    async def test_an_answer_is_whole_with_its_finish_whatever_comes_behind(
        self, server: Standing, then: Then | str
    ) -> None:
        async with connected(server, context_tokens=CARD.context_tokens, tail_seconds=0.05) as engine:
            behind = self.voice.error(500, "because") if isinstance(then, str) else DONE
            server.instead[self.voice.path] = begun(
                self.voice, self.voice.end(2), behind, then=Then.END if isinstance(then, str) else then
            )
            sampled = await ask(engine)
            assert (sampled.tokens, sampled.finish) == ([5, 6], Finish.STOP)
            await engine.check()

    @pytest.mark.parametrize("fault", ["no end", "an error", "more"])
    async def test_the_last_token_of_an_answer_is_taken_once_its_server_has_said_how_that_ends(
        self, server: Standing, fault: str
    ) -> None:
        """A worker that keeps the tokens, and dies, would take an answer for whole that its server has taken back."""
        taken: list[int] = []

        def take(chunk: Chunk) -> bool:
            taken.extend(chunk.tokens)
            return True

        async with connected(server, context_tokens=CARD.context_tokens) as engine:
            voice = self.voice
            said = [voice.tokens([5], number) for number in range(1, MANY + 1)]
            behind = {"an error": voice.error(500, "because"), "more": voice.tokens([5], MANY + 1)}.get(fault, DONE)
            server.instead[voice.path] = Instead((*said, behind))
            with pytest.raises(EngineError):
                await engine.sample(generation(sampling=Sampling(MANY, stop_ids=STOPS)), take, go_on)
        assert len(taken) < MANY

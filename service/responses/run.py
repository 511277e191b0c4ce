"""One response under way, as an object that is called: chunks of an engine in, events out.

    begin ─▶ go_on ─▶ next ─┬─▶ Ask ── ask, take, take …, over ─┬─▶ next
                            ├─▶ Render ── rendered ─────────────┤
                            ├─▶ Call ── told ───────────────────┘
                            └─▶ End ── close ─▶ (the turn is stored) ─▶ the terminal events

`next` is what its driver (drive.py) has to do; None says that the generation under way simply goes on. It owns the
machine, and nobody else moves that. Never add I/O, a clock, a log or a context variable: `take` is called from within
the read of an engine's connection, which belongs to no request.
"""

import msgspec

from service.api.events import Event
from service.api.outcome import Outcome
from service.api.response import ResponseError
from service.engine.port import Chunk, EngineError, EngineRefused, Generation, TokenLogprobs
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import Ask, End, Generated, GiveFeedback, Next, Render, next_step
from service.responses.output.phases import Phase
from service.responses.output.reading import Piece, Templated

_SAMPLING = Phase.SAMPLING


class Taken(msgspec.Struct, frozen=True):
    """Events, and what else a log has to keep of what made them: sampled ids, the text of a model that doesn't speak
    Harmony or the length of a prompt that its template made, or the outcome of a call.
    """

    events: list[Event]
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    outcome: Outcome | None = None
    pieces: tuple[Piece, ...] = ()


class Run:
    """A response under way; `machine` may have replayed what was sampled elsewhere.

    `initial` is the request to the engine at the response's beginning. The engine is asked from where the machine
    stands, as often as `next_step` says.
    """

    def __init__(self, initial: Generation, machine: Machine) -> None:
        self.machine = machine
        self.next: Next | None = None
        """The next thing for its driver to do."""
        self.stopped: Ending | None = None
        """The ending with which it was stopped, if it was."""
        self.failure: Exception | None = None
        """The error of the engine, once it failed; or a bug, once one has struck."""
        self._initial = initial
        self._asked = 0
        """How many generations the engine was asked for."""
        self._generation = initial
        """The generation under way."""
        self._sampled = self._begins = self._finished = False
        """Whether anything of it was sampled, it read the prompt of a stretch, and it ended by itself."""

    # --- a generation ---

    def go_on(self) -> None:
        """Find what is next from where the machine stands."""
        machine, initial = self.machine, self._initial
        while isinstance(step := next_step(machine, initial), GiveFeedback):
            machine.give_feedback()
        self.next = step if self.stopped is None or isinstance(step, End) else End(self.stopped)

    def ask(self) -> Generation:
        """The generation that is next, which is under way now. It has an id of its own, as an engine may still be busy
        with the one before.
        """
        assert isinstance(self.next, Ask)
        asked, number = self.next.generation, self._asked
        if number:
            asked = msgspec.structs.replace(asked, id=f"{asked.id}-{number}", begun=True)
        self.next, self._generation, self._asked = None, asked, number + 1
        self._sampled, self._finished = False, False
        self._begins = self.machine.stretches.begins  # the prompt of a later one is cached, as that of this was read
        return asked

    def take(self, chunk: Chunk) -> Taken | None:
        """Take a chunk of the generation under way; `next` is known with the last that counts. Of what comes behind
        that, the number of cached tokens alone is of use.
        """
        machine, reading = self.machine, self.machine.stretches
        if self._begins and chunk.cached_tokens is not None:
            reading.note_cached(chunk.cached_tokens)
        if self.next is not None:
            return None
        ids, before = chunk.tokens, reading.sampled
        pieces: tuple[Piece, ...] = ()
        if chunk.prompt_tokens is not None and reading.by_text:
            length = chunk.prompt_tokens - max(0, len(self._generation.prompt) - reading.prefix_tokens)
            reading.prompted(length, thinking=False)
            pieces = (Piece(0, "", length),)
        events = machine.feed(ids, chunk.logprobs, chunk.text)
        taken = reading.sampled - before
        whole = taken == len(ids)
        self._sampled = self._sampled or taken > 0
        if chunk.finish is not None or not whole or machine.steered or machine.phase is not _SAMPLING:
            finish = chunk.finish if whole else None
            self.next = next_step(machine, self._initial, Generated(self._generation, self._sampled, finish))
            self._finished = finish is not None
        if not taken:
            return Taken([], pieces=pieces) if pieces else None
        if reading.by_text:
            pieces = (*pieces, Piece(taken, chunk.text))
        if whole:
            return Taken(events, ids, chunk.logprobs, pieces=pieces)
        return Taken(events, ids[:taken], chunk.logprobs and chunk.logprobs[:taken], pieces=pieces)

    @property
    def wants_cached(self) -> bool:
        """Whether the generation that is broken off could still tell how much of its prompt was cached."""
        return self._begins and not self._finished and self.stopped is None and self.machine.stretches.unknown

    def over(self) -> None:
        """No more chunks come of the generation under way."""
        if self.next is None:
            self.next = End(Ending.ERROR)
        elif isinstance(self.next, GiveFeedback):
            self.go_on()

    # --- what else happens to it ---

    def take_prompt(self, prompt: Templated) -> Taken | None:
        """The prompt was made; what to keep of it, if nobody had made it before."""
        assert isinstance(self.next, Render)
        piece = self.next.reading.take_prompt(prompt)
        self.go_on()
        return None if piece is None else Taken([], pieces=(piece,))

    def take_outcome(self, outcome: Outcome) -> Taken:
        taken = Taken(self.machine.take_outcome(outcome), outcome=outcome)
        self.go_on()
        return taken

    def fail(self, failure: Exception) -> bool:
        """The engine has failed, or a bug has struck; False where that is of no matter, as what is next is known."""
        known = self.next is not None and not isinstance(self.next, Render)
        if isinstance(self.next, End) or (known and isinstance(failure, EngineError)):
            self.over()
            return False
        self.failure, self.next = failure, End(Ending.ERROR)
        return True

    def stop(self, ending: Ending = Ending.ABORT) -> bool:
        """End it now, with what was sampled so far; whether what is waited for has to be broken off."""
        if self.stopped is not None or isinstance(self.next, End):
            return False
        self.stopped = ending
        if not isinstance(self.next, GiveFeedback):
            self.next = End(ending)
        return True

    def steer(self) -> bool:
        """End it at the next boundary, or now where it stands at one; see `stop`."""
        self.machine.steered = True
        boundary = self.machine.boundary
        return boundary is not None and self.stop(boundary)

    # --- the end ---

    @property
    def ending(self) -> Ending:
        """How its generation ended, once it has."""
        return self.next.ending if isinstance(self.next, End) else Ending.ERROR


def error_of(ending: Ending, failure: Exception | None, seconds: float) -> ResponseError | None:
    """The response's error for an ending that fails: `failure` is the run's, `seconds` how long it might take."""
    if ending is Ending.TIMEOUT:
        return ResponseError("server_error", f"The response took longer than {seconds:g} s. Ask for less output.")
    if ending is Ending.ERROR:
        why = f"The engine failed: {failure or 'it stopped before the answer was complete'}"
        if isinstance(failure, EngineRefused):
            # a code on which Codex asks no second time
            return ResponseError("invalid_prompt", f"The engine refused the request: {failure}")
        if not isinstance(failure, EngineError | None):
            why = "The service failed on this response. Its log has the reason under the response's id."
        return ResponseError("server_error", why)
    return None

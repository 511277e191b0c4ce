"""`harmonium bench`: clients that talk at once, with figures of that; and the one response that `doctor --url` makes.

Each client has a thread and a conversation of its own, continued turn by turn and streamed. Their responses are
marked in their metadata, and deleted at the end, also where somebody ended it early.
"""

import json
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Annotated, NamedTuple

import typer

from service.commands.client import printing
from service.commands.client.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    ClientError,
    RefusedByService,
    ServiceUnreachable,
)
from service.commands.client.options import AsJson, flag, option, talking
from service.commands.client.service import TERMINAL_EVENTS, Json, RemoteService

METADATA = {"harmonium": "bench"}
"""The metadata of every response that a load makes."""

MAX_CLIENTS = 256
MAX_TURNS = 1_000
MAX_SECONDS = 3_600

ERRORS_IN_A_ROW = 5
"""After so many a client ends."""

PAUSE_SECONDS = 0.2
"""How long a client waits after an error before its next request."""

PROGRESS_SECONDS = 2.0
"""How often a terminal is told how far it is."""

LEAVE_SECONDS = 10.0
"""How long clients may take to end once they should, and a service to store what they broke off."""

MAX_TOLD = 10
"""How many trees that are left are named; all are counted."""

LOOK_SECONDS = 0.1
"""How often it is looked whether a service has stored what was broken off."""

TOKENS = 64
"""The most of each answer: it need not be whole."""

LEAST_TOKENS = 16
"""The fewest output tokens that the API lets anyone ask for."""


class BenchOutcome(NamedTuple):
    """The outcome of one request: seconds until its first token, None where none came, the tokens of its output, and
    the error that it ended with, '' for none.
    """

    first_seconds: float | None = None
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Figures:
    """The figures of a load. Milliseconds are None where nothing was measured; errors are counted by kind."""

    responses: int
    seconds: float
    responses_per_second: float
    tokens_per_second: float
    first_token_ms_p50: float | None
    first_token_ms_p99: float | None
    errors: dict[str, int]

    def lines(self) -> list[str]:
        """The figures as lines for people."""
        failed = ", ".join(f"{error}: {count}" for error, count in self.errors.items())
        return [
            f"responses    {self.responses} in {self.seconds:.1f} s",
            f"first token  p50 {_milliseconds(self.first_token_ms_p50)}, p99 {_milliseconds(self.first_token_ms_p99)}",
            f"responses/s  {self.responses_per_second:.1f}",
            f"tokens/s     {self.tokens_per_second:.1f}",
            f"errors       {failed or 'none'}",
        ]


def figures_of(outcomes: Sequence[BenchOutcome], seconds: float) -> Figures:
    """The figures of what was made in so many seconds."""
    made = [outcome for outcome in outcomes if not outcome.error]
    firsts = sorted(outcome.first_seconds for outcome in made if outcome.first_seconds is not None)
    per_second = 1 / seconds if seconds > 0 else 0.0
    return Figures(
        responses=len(made),
        seconds=round(seconds, 3),
        responses_per_second=round(len(made) * per_second, 3),
        tokens_per_second=round(sum(outcome.tokens for outcome in made) * per_second, 3),
        first_token_ms_p50=_percentile(firsts, 50),
        first_token_ms_p99=_percentile(firsts, 99),
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error).most_common()),
    )


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The nearest rank, in milliseconds: what so many percent don't exceed."""
    return round(ordered[math.ceil(len(ordered) * percent / 100) - 1] * 1000, 3) if ordered else None


def _milliseconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.0f} ms"


class BenchLoad:
    """A load of so many clients, each with so many turns, for at most so many seconds."""

    def __init__(self, service: RemoteService, body: Json, clients: int, turns: int, seconds: float) -> None:
        self._service, self._body = service, body | {"stream": True, "metadata": METADATA}
        self._turns, self._most_seconds = turns, seconds
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._talk, daemon=True) for _ in range(clients)]
        self.roots: list[str] = []
        """The ids of the trees that were begun."""
        self._outcomes: list[BenchOutcome] = []
        self.seconds, self.outcomes = 0.0, list[BenchOutcome]()
        """How long it took, and the outcomes of all requests until then."""

    def run(self) -> bool:
        """Talk until all is said or the time is over. False where Ctrl-C ended it."""
        began, whole = monotonic(), True
        try:
            for thread in self._threads:
                thread.start()
            self._watch(began)
        except KeyboardInterrupt:
            whole = False
        self._stop.set()
        self.seconds, self.outcomes = monotonic() - began, self._outcomes.copy()
        return whole

    def leave(self) -> None:
        """Wait until the clients have ended, as they do with the next event of an answer."""
        until = monotonic() + LEAVE_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - monotonic()))

    def delete(self) -> int:
        """Delete what was made; how many trees are left. Where the last request of one was broken off, the service is
        given time to store it.
        """
        left, until = 0, monotonic() + LEAVE_SECONDS
        for root in self.roots.copy():
            try:
                self._delete(root, until)
            except ClientError as error:
                left += 1
                if left <= MAX_TOLD:
                    printing.remark(f"{root} is left: {error}")
        return left

    def _watch(self, began: float) -> None:
        """Wait for the end, and tell a terminal how far it is."""
        until, due = began + self._most_seconds, began + PROGRESS_SECONDS if sys.stderr.isatty() else math.inf
        for thread in self._threads:
            while thread.is_alive() and monotonic() < until:
                thread.join(max(0.0, min(due, until) - monotonic()))
                if monotonic() >= due:
                    due += PROGRESS_SECONDS
                    outcomes = self._outcomes.copy()
                    failed = sum(1 for outcome in outcomes if outcome.error)
                    wanted = self._turns * len(self._threads)
                    printing.remark(f"… {len(outcomes) - failed} of {wanted} responses, {failed} errors")

    def _talk(self) -> None:
        before: str | None = None
        failed = 0
        for _ in range(self._turns):
            outcome, id = self._ask(before)
            if outcome is None:
                return
            self._outcomes.append(outcome)
            if outcome.error:
                failed += 1
                if failed == ERRORS_IN_A_ROW or self._stop.wait(PAUSE_SECONDS):
                    return
                continue
            before, failed = id, 0
            if self._stop.is_set():
                return

    def _ask(self, before: str | None) -> tuple[BenchOutcome | None, str | None]:
        """The outcome of one request, None where it was broken off; and the id of its response."""
        continued = {} if before is None else {"previous_response_id": before}
        began, first, id = monotonic(), None, None
        try:
            with closing(self._service.stream("POST", "/v1/responses", self._body | continued)) as events:
                for event in events:
                    kind: str = event.get("type", "")
                    if id is None and kind == "response.created":
                        id = str(event["response"]["id"])
                        if before is None:
                            self.roots.append(id)
                    if first is None and kind.endswith(".delta"):
                        first = monotonic() - began
                    if kind in TERMINAL_EVENTS:
                        return _outcome(event["response"], first), id
                    if self._stop.is_set():
                        return None, id
            return BenchOutcome(error="broken"), id
        except RefusedByService as error:
            return BenchOutcome(error=str(error.status)), id
        except ServiceUnreachable:
            return BenchOutcome(error="unreachable"), id
        except ClientError:
            return BenchOutcome(error="no answer of a harmonium"), id

    def _delete(self, root: str, until: float) -> None:
        """Delete a tree; one that isn't there may come `until` then. Raises ClientError."""
        while True:
            try:
                self._service.call("DELETE", f"/v1/responses/{root}", None, tree="true")
                return
            except RefusedByService as error:
                if error.status != 404:
                    raise
            if monotonic() >= until:
                return
            sleep(LOOK_SECONDS)


def _outcome(response: Json, first: float | None) -> BenchOutcome:
    if response.get("status") == "failed":
        return BenchOutcome(error="failed")
    usage: Json = response.get("usage") or {}
    return BenchOutcome(first, int(usage.get("output_tokens", 0)))


class Step(NamedTuple):
    """A step: its name, how long it took, and why it failed, '' if it did not."""

    done: str
    seconds: float
    error: str = ""


def one_response(service: RemoteService) -> list[Step]:
    """The steps up to one that fails. The response is deleted all the same."""
    steps: list[Step] = []

    def attempt(done: str, step: Callable[[], Json]) -> Json | None:
        began = monotonic()
        try:
            found = step()
            if found.get("status") == "failed":
                error: Json = found.get("error") or {}
                raise ClientError(f"it failed: {error.get('message')}")
        except ClientError as refusal:
            steps.append(Step(done, monotonic() - began, str(refusal)))
            return None
        steps.append(Step(done, monotonic() - began))
        return found

    def ask(words: str, before: str | None = None) -> Json:
        body: Json = {"model": service.first_model(), "input": words, "max_output_tokens": TOKENS, "metadata": METADATA}
        return service.call("POST", "/v1/responses", body | {"previous_response_id": before})

    made = attempt("made", lambda: ask("Count to 2."))
    if made is None:
        return steps
    id = str(made["id"])
    path = f"/v1/responses/{id}"
    if attempt("retrieved", lambda: service.call("GET", path)):
        attempt("continued", lambda: ask("Count to 3.", id))
    attempt("deleted", lambda: service.call("DELETE", path, None, tree="true"))
    return steps


@talking
def bench(
    service: RemoteService,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-n", min=1, max=MAX_CLIENTS, metavar="N", help="Clients at once.")
    ] = 8,
    turns: Annotated[int, typer.Option(min=1, max=MAX_TURNS, metavar="N", help="Turns of each conversation.")] = 4,
    seconds: Annotated[
        int, typer.Option(min=1, max=MAX_SECONDS, metavar="N", help="After so long it ends in any case.")
    ] = 30,
    words: Annotated[str, typer.Option("--input", metavar="WORDS", help="The text of each turn.")] = "Count to 20.",
    tokens: Annotated[
        int, typer.Option("--max-output-tokens", min=LEAST_TOKENS, metavar="N", help="The most of an answer.")
    ] = 256,
    model: Annotated[str | None, option("--model", "-m", "NAME", "The model; else the first one.")] = None,
    keep: Annotated[bool, flag("--keep", "Don't delete what was made.")] = False,
    as_json: AsJson = False,
) -> int:
    """Measure a service: many clients at once, each with one conversation, every answer streamed.

    Its responses are deleted at the end. Ctrl-C ends it early, and tells what was measured by then.
    """
    body: Json = {"model": model or service.first_model(), "input": words, "max_output_tokens": tokens}
    load = BenchLoad(service, body, concurrency, turns, seconds)
    whole = load.run()
    found = figures_of(load.outcomes, load.seconds)
    if as_json:
        printing.out(json.dumps(asdict(found) | {"clients": concurrency, "turns": turns, "interrupted": not whole}))
    else:
        for line in found.lines():
            printing.out(line)
    load.leave()
    left = 0 if keep else load.delete()
    for root in load.roots if keep else ():
        printing.remark(root)
    if left:
        names = " ".join(f"{name}={value}" for name, value in METADATA.items())
        printing.wrong(f"{left} trees are left; harmonium ls --metadata {names} lists them")
    if not whole:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if found.errors or not found.responses or left else 0

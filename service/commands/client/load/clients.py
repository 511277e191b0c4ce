"""Clients that talk at once, each in a thread of its own: one conversation, continued turn by turn and streamed.

What they make has metadata that says so, and is deleted at the end, also where somebody ended it early.
"""

import threading
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic, sleep

from service.commands.client import printing
from service.commands.client.errors import ClientError, Refused, Unreachable
from service.commands.client.load.figures import Outcome
from service.commands.client.service import TERMINAL_EVENTS, Json, Service

METADATA = {"harmonium": "bench"}
"""What every response says of itself that a load makes."""

MAX_CLIENTS = 256
MAX_TURNS = 1_000
MAX_SECONDS = 3_600

ERRORS_IN_A_ROW = 5
"""After so many a client ends."""

PAUSE_SECONDS = 0.2
"""How long a client waits after an error before its next request."""

PROGRESS_SECONDS = 2.0
"""How often it is told how far it is."""

LEAVE_SECONDS = 10.0
"""How long clients may take to end once they should, and a service to store what they broke off."""

MAX_TOLD = 10
"""How many trees that are left are named; all are counted."""

LOOK_SECONDS = 0.1
"""How often it is looked whether a service has stored what was broken off."""


@dataclass
class Talk:
    """What a client does: what became of its requests, and the roots that it began, with whether each is known to be
    stored. After an error there may be more than one.
    """

    roots: dict[str, bool] = field(default_factory=dict[str, bool])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])


class Load:
    """So many clients, each with so many turns, for at most so many seconds."""

    def __init__(self, service: Service, body: Json, clients: int, turns: int, seconds: float) -> None:
        self._service, self._body = service, body | {"stream": True, "metadata": METADATA}
        self._turns, self._most_seconds = turns, seconds
        self._stop = threading.Event()
        self._talks = [Talk() for _ in range(clients)]
        self._threads = [threading.Thread(target=self._talk, args=(talk,), daemon=True) for talk in self._talks]
        self.seconds, self.outcomes = 0.0, list[Outcome]()
        """How long it took, and what became of all requests until then."""

    @property
    def roots(self) -> list[str]:
        """The ids of the trees that were begun."""
        return [root for talk in self._talks for root in talk.roots]

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
        self.seconds, self.outcomes = monotonic() - began, self._measured()
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
        for root, sure in (each for talk in self._talks for each in list(talk.roots.items())):
            try:
                self._delete(root, 0.0 if sure else until)
            except ClientError as error:
                left += 1
                if left <= MAX_TOLD:
                    printing.told(f"{root} is left: {error}")
        return left

    def _measured(self) -> list[Outcome]:
        return [outcome for talk in self._talks for outcome in list(talk.outcomes)]

    def _watch(self, began: float) -> None:
        """Wait for the end, and tell how far it is."""
        until, due = began + self._most_seconds, began + PROGRESS_SECONDS
        for thread in self._threads:
            while thread.is_alive() and monotonic() < until:
                thread.join(max(0.0, min(due, until) - monotonic()))
                if monotonic() >= due:
                    due += PROGRESS_SECONDS
                    outcomes = self._measured()
                    failed = sum(1 for outcome in outcomes if outcome.error)
                    wanted = self._turns * len(self._talks)
                    printing.told(f"… {len(outcomes) - failed} of {wanted} responses, {failed} errors")

    def _talk(self, talk: Talk) -> None:
        before: str | None = None
        failed = 0
        for _ in range(self._turns):
            outcome, id = self._asked(talk, before)
            if outcome is None:
                return
            talk.outcomes.append(outcome)
            if outcome.error:
                failed += 1
                if failed == ERRORS_IN_A_ROW or self._stop.wait(PAUSE_SECONDS):
                    return
                continue
            before, failed = id, 0
            if self._stop.is_set():
                return

    def _asked(self, talk: Talk, before: str | None) -> tuple[Outcome | None, str | None]:
        """What became of one request, None where it was broken off; and the id of its response."""
        continued = {} if before is None else {"previous_response_id": before}
        began, first, id = monotonic(), None, None
        try:
            with closing(self._service.stream("POST", "/v1/responses", self._body | continued)) as events:
                for event in events:
                    kind: str = event.get("type", "")
                    if id is None and kind == "response.created":
                        id = str(event["response"]["id"])
                        if before is None:
                            talk.roots[id] = False
                    if first is None and kind.endswith(".delta"):
                        first = monotonic() - began
                    if kind in TERMINAL_EVENTS:
                        talk.roots.update({id: True} if before is None and id is not None else {})
                        return _outcome(event["response"], first), id
                    if self._stop.is_set():
                        return None, id
            return Outcome(error="broken"), id
        except Refused as error:
            return Outcome(error=str(error.status)), id
        except Unreachable:
            return Outcome(error="unreachable"), id
        except ClientError:
            return Outcome(error="no answer of a harmonium"), id

    def _delete(self, root: str, until: float) -> None:
        """Delete a tree; one that isn't there may come `until` then. Raises ClientError."""
        while True:
            try:
                self._service.call("DELETE", f"/v1/responses/{root}", None, tree="true")
                return
            except Refused as error:
                if error.status != 404:
                    raise
            if monotonic() >= until:
                return
            sleep(LOOK_SECONDS)


def _outcome(response: Json, first: float | None) -> Outcome:
    if response.get("status") == "failed":
        return Outcome(error="failed")
    usage: Json = response.get("usage") or {}
    return Outcome(first, int(usage.get("output_tokens", 0)))

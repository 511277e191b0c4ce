"""The responses in the foreground that this process makes and stores: from `response.created` on their ids are known.

The store has such a response only once it has ended. Whoever goes on from it before that waits for its end, as a client
may have hung up a moment ago. Another process knows nothing of it: there the store is looked into again.
"""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import NamedTuple

from service.api.response import Response
from service.responses.run import Run
from service.shares import aside

NOTICED_SECONDS = 0.25
"""How long it takes at most until it is noticed that a client has hung up."""

ENDING_SECONDS = 5.0
"""How long a request waits for the end of a response that it names."""

ELSEWHERE_SECONDS = (0.05, 0.1, 0.2, 0.4)
"""How long it waits before each further look for one that another process may be ending."""


class _Made(NamedTuple):
    names: tuple[tuple[str, str], ...]
    run: Run
    over: asyncio.Event


class Running:
    """The responses that are made, each by its tenant and its id, and by the conversation that it is added to."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], _Made] = {}

    @contextmanager
    def making(self, tenant: str, ids: Iterable[str], run: Run) -> Generator[None]:
        """The response with these `ids`, its own and its conversation's, is made by a run in the block, or until it is
        `over`.
        """
        made = _Made(tuple((tenant, id) for id in ids), run, asyncio.Event())
        self._made.update(dict.fromkeys(made.names, made))
        try:
            yield
        finally:
            self._end(made)

    def over(self, tenant: str, id: str) -> None:
        """The response is stored, or will not be."""
        if (made := self._made.get((tenant, id))) is not None:
            self._end(made)

    def _end(self, made: _Made) -> None:
        """Forget one, unless another run makes its response anew by now."""
        for name in made.names:
            if self._made.get(name) is made:
                del self._made[name]
        made.over.set()

    def as_it_stands(self, tenant: str, id: str) -> Response | None:
        """A response as it stands; None where none of this id is made here."""
        made = self._made.get((tenant, id))
        return None if made is None else made.run.machine.snapshot()

    async def ended(self, tenant: str, id: str, *, stopped: bool = False) -> bool:
        """Whether no response of this id, or of this conversation, is made here any more. Waits for its end within
        bounds; where it has to be `stopped`, only if its client turns out to have gone. The room for reading large
        requests is given to others meanwhile.
        """
        made = self._made.get((tenant, id))
        if made is None:
            return True
        async with aside.get()():
            for seconds in (NOTICED_SECONDS, ENDING_SECONDS):
                with suppress(TimeoutError):
                    await asyncio.wait_for(made.over.wait(), seconds)
                    return True
                if stopped and made.run.stopped is None:
                    break
        return False

"""A service that is killed while it archives, evicts and brings back, with its store or without: every answer that a
client was given is there afterwards, with all that came before it, and what was deleted is gone.
"""

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import openai
import pytest

from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

KILLS = 3
EACH = 15
"""How many more turns are stored before each of them."""

FEW = 24
"""How many responses memory has room for."""

LONG = 4
"""How often a conversation is continued."""


class Clients:
    """Some clients that grow conversations until they are told to stop, and know what they were told."""

    def __init__(self, service: ServiceProcess) -> None:
        self._url = service.url
        self.chains: list[list[str]] = []
        self.deleted: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._grow) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    @property
    def stored(self) -> int:
        return sum(map(len, self.chains)) + len(self.deleted)

    def _grow(self) -> None:
        with openai.OpenAI(base_url=f"{self._url}/v1", api_key="none", max_retries=0, timeout=20) as client:
            own: list[list[str]] = []
            while not self._ended.is_set():
                try:
                    self._go_on(client, own)
                except (openai.APIConnectionError, openai.InternalServerError):
                    self._ended.wait(0.05)

    def _go_on(self, client: openai.OpenAI, own: list[list[str]]) -> None:
        """Begin a conversation, continue it, fork an early one that has left memory, and delete something."""
        first = create(client)
        own.append([first])
        self.chains.append(own[-1])
        for _ in range(LONG):
            own[-1].append(create(client, own[-1][-1]))
        fork = create(client, own[len(own) // 2][0])
        client.responses.delete(fork)
        self.deleted.append(fork)

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("store_too", [False, True], ids=["the service", "the store too"])
def test_what_was_answered_is_found_and_what_was_deleted_is_not(
    start: Callable[..., ServiceProcess], tmp_path: Path, store_too: bool
) -> None:
    service = start(
        data_dir=tmp_path / "data",
        max_responses=FEW,
        archive_after_seconds=0.1,
        lease_seconds=4,
        store_timeout_seconds=1,
    )
    clients = Clients(service)
    try:
        for _ in range(KILLS):
            wanted = clients.stored + EACH
            wait_until(lambda wanted=wanted: clients.stored >= wanted, 60, "too little is stored")
            store = service.redis_pid()
            service.kill()
            if store_too:
                os.kill(store, signal.SIGKILL)
            service.start()
    finally:
        clients.stop()
    client = service.client()
    told = {id for chain in clients.chains for id in chain}
    lost = [id for id in told if status(client, id) != 200]
    back = [id for id in clients.deleted if status(client, id) != 404]
    assert (lost, back) == ([], [])
    for chain in clients.chains[:: len(clients.chains) // 10 or 1]:  # who archived may be dead, and hold its lease
        assert wait_until(partial(create, client, chain[-1]), 60, passing=openai.InternalServerError)
    assert "Traceback" not in service.log


def create(client: openai.OpenAI, parent: str | None = None) -> str:
    """The id of a new response."""
    return client.responses.create(model=MODEL, input="Count to 2.", previous_response_id=parent or openai.omit).id


def status(client: openai.OpenAI, id: str) -> int:
    """What a client is told of a response, once somebody can be asked."""
    try:
        client.responses.retrieve(id)
    except openai.APIStatusError as error:
        return error.status_code
    return 200

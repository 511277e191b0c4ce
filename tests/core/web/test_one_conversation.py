"""Many clients of one conversation at once: each gets an answer or `conversation_locked`, and there is one order."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.service.process import MODEL, ServiceProcess

FEW, MANY = 200, 1_000
TRIES = 40
PATIENT = {"store_timeout_seconds": 20, "lease_seconds": 60}
"""Settings of a service that stands still for a while without an error."""

DEADLINE_SECONDS = 60.0


async def ask(http: httpx.AsyncClient, id: str, number: int, tries: int) -> list[dict[str, Any]]:
    """Every answer that a client gets which tries so often to say its number; the last one may be its response."""
    body = {"model": MODEL, "input": f"number {number}", "conversation": id, "max_output_tokens": 16}
    answers: list[dict[str, Any]] = []
    for _ in range(tries):
        answer = await http.post("/v1/responses", json=body)
        answers.append({"http": answer.status_code, **answer.json()})
        if answer.status_code == 200:
            break
    return answers


async def turns_of(http: httpx.AsyncClient, id: str) -> list[tuple[str, str]]:
    """The role and text of each message in a conversation, oldest first."""
    found: list[tuple[str, str]] = []
    after: dict[str, str] = {}
    while True:
        page = (
            await http.get(f"/v1/conversations/{id}/items", params={"order": "asc", "limit": "100", **after})
        ).json()
        found += [(item["role"], item["content"][0]["text"]) for item in page["data"] if item["type"] == "message"]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


async def crowd(service: ServiceProcess, clients: int, tries: int) -> None:
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(
        base_url=service.url, limits=limits, timeout=DEADLINE_SECONDS, trust_env=False
    ) as http:
        id = (await http.post("/v1/conversations", json={})).json()["id"]
        outcomes = await asyncio.gather(*(ask(http, id, number, tries) for number in range(clients)))
        said: dict[str, str] = {}
        for number, answers in enumerate(outcomes):
            *refusals, last = answers
            for each in refusals if last["http"] == 200 else answers:
                assert (each["http"], each["error"]["code"]) == (400, "conversation_locked"), each
            if last["http"] == 200:
                said[f"number {number}"] = "".join(
                    part["text"] for item in last["output"] if item["type"] == "message" for part in item["content"]
                )
        assert said
        assert any(len(answers) > 1 for answers in outcomes)  # they were in each other's way
        stored = await turns_of(http, id)
        asked = [text for role, text in stored if role == "user"]
        assert sorted(asked) == sorted(said)  # each once, and nothing of those that were refused
        expected = [pair for text in asked for pair in (("user", text), ("assistant", said[text])) if pair[1]]
        assert stored == expected  # every answer stands behind its question, in one order


async def test_two_hundred_clients_of_one_conversation_take_turns(start: Callable[..., ServiceProcess]) -> None:
    await crowd(start(max_concurrent_requests=FEW + 50, **PATIENT), FEW, 3)


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_a_thousand_clients_that_try_again_come_one_after_the_other(start: Callable[..., ServiceProcess]) -> None:
    await crowd(start(max_concurrent_requests=MANY + 50, **PATIENT), MANY, TRIES)

"""Batches for tests: their lines, and what came of each."""

import json
from collections.abc import Sequence
from typing import Any

from openai import AsyncOpenAI
from openai.types import Batch

from tests.support.service.process import MODEL
from tests.support.waiting import until

ENDED = ("completed", "failed", "expired", "cancelled")


def lines(*bodies: dict[str, Any], url: str = "/v1/responses") -> list[str]:
    """The lines of requests, named by their numbers."""
    return [
        json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": url, "body": {"model": MODEL} | body})
        for number, body in enumerate(bodies)
    ]


async def begun(client: AsyncOpenAI, asked: Sequence[str], **options: Any) -> Batch:
    """A batch of these lines."""
    file = await client.files.create(file=("asked.jsonl", "\n".join(asked).encode()), purpose="batch")
    wanted: dict[str, Any] = {"input_file_id": file.id, "endpoint": "/v1/responses", "completion_window": "24h"}
    return await client.batches.create(**wanted | options)


async def answers_of(client: AsyncOpenAI, file: str | None) -> dict[str, Any]:
    """The lines of an output by their names, each of which it has once."""
    assert file is not None
    found = [json.loads(line) for line in (await client.files.content(file)).text.splitlines()]
    by_name = {each["custom_id"]: each for each in found}
    assert len(by_name) == len(found)
    return by_name


async def ended(client: AsyncOpenAI, id: str) -> Batch:
    """A batch once it has ended."""
    return await until(lambda: client.batches.retrieve(id), 90, wanted=lambda found: found.status in ENDED)

"""A program that serves as the core alone may: responses are created, streamed, continued and deleted.

Its argument is the URL of a Redis. It knows no feature (tests/project/test_without_features.py).
"""

import asyncio
import sys
import uuid

from service.process import load_settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL


async def main(url: str) -> None:
    """Serve, and be one's own client."""
    settings = load_settings(redis_url=url, redis_prefix=f"test-{uuid.uuid4().hex}")
    engine = scripted([answer("One.")], [answer("Two.")], [answer("Three.")])
    async with serving(settings, engine) as service, service.client() as client:
        first = await client.responses.create(model=MODEL, input="1")
        events = [
            each
            async for each in await client.responses.create(
                model=MODEL, input="2", previous_response_id=first.id, stream=True
            )
        ]
        second = events[-1].response
        third = await client.responses.create(model=MODEL, input="3", previous_response_id=second.id, background=True)
        while third.status in ("queued", "in_progress"):
            third = await client.responses.retrieve(third.id)
        assert [each.output_text for each in (first, second, third)] == ["One.", "Two.", "Three."]
        await client.responses.delete(third.id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

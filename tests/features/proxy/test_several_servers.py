"""Requests that are passed on where there are several engines."""

from pathlib import Path
from typing import Any

from service.process import Settings
from tests.core.web.test_several_models import B, two


async def test_a_request_is_passed_on_to_the_server_of_its_model(settings: Settings, tmp_path: Path) -> None:
    async with two(settings, tmp_path, max_output_tokens=500) as (inside, first, second), inside.client() as client:
        for name in ("gpt-4o-mini", B):
            message: Any = {"role": "user", "content": "say this"}
            said = await client.chat.completions.create(model=name, messages=[message])
            assert said.choices[0].message.content == "say this"
    bodies = [[each.body for each in server.asked if each.path == "/v1/chat/completions"] for server in (first, second)]
    assert [each["model"] for (each,) in bodies] == [first.model, second.model]
    assert [each.get("max_tokens") for (each,) in bodies] == [None, 500]

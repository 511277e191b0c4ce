"""gpt-oss and a model with a chat template behind one service, on real servers: a conversation changes between them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings.settings import Settings, load_settings
from tests.support.llama.smol import smol_server
from tests.support.llama.talker import KEY
from tests.support.service.inside import serving

ENGINES = """
[[engines]]
name = "talker"
kind = "llama"
urls = ["{talker}"]
api_key_file = "{key}"

[[engines]]
name = "smol"
kind = "llama"
urls = ["{smol}"]
markup = "{markup}"
api_key_file = "{key}"
"""


@pytest.fixture(scope="module")
def smol_url() -> Iterator[str]:
    server = smol_server()
    yield server.url
    server.kill()


def given(settings: Settings, tmp_path: Path, talker: str, smol: str, markup: str) -> Settings:
    """Settings of a service with both."""
    key, path = tmp_path / "key", tmp_path / "engines.toml"
    key.write_text(KEY)
    path.write_text(ENGINES.format(talker=talker, smol=smol, markup=markup, key=key))
    return load_settings(redis_url=settings.redis_url, key_prefix=settings.key_prefix, engines=str(path))


async def test_a_conversation_changes_its_model_and_comes_back(
    settings: Settings, tmp_path: Path, llama_url: str, smol_url: str
) -> None:
    both = given(settings, tmp_path, llama_url, smol_url, "auto")
    async with serving(both) as inside, inside.client() as client:
        assert [model.id async for model in client.models.list()] == ["talker", "smol"]

        async def ask(model: str, said: str, after: Any = None) -> Any:
            previous = after.id if after else None
            return await client.responses.create(
                model=model, input=said, previous_response_id=previous, temperature=0, max_output_tokens=60
            )

        first = await ask("talker", "My name is Anna.")
        second = await ask("smol", "What is the capital of France?", first)
        third = await ask("smol", "And of Italy?", second)
        last = await ask("talker", "What is my name?", third)
    assert [each.model for each in (first, second, third, last)] == ["talker", "smol", "smol", "talker"]
    assert "Paris" in second.output_text
    assert third.usage.input_tokens_details.cached_tokens >= second.usage.total_tokens - 2
    assert last.output_text == "Your name is Anna."


async def test_a_markup_that_the_model_does_not_write_is_told(
    settings: Settings, tmp_path: Path, llama_url: str, smol_url: str
) -> None:
    both = given(settings, tmp_path, llama_url, smol_url, "harmony")
    async with serving(both) as inside, inside.http() as http:
        answer = await http.post("/v1/responses", json={"model": "smol", "input": "Hi"})
        assert answer.status_code == 503
        assert "said to write 'harmony', and its server's writes 'hermes'" in answer.json()["error"]["message"]

"""Stored prompts over HTTP: what the model is told, what is listed and echoed, and what is a 400."""

from pathlib import Path
from typing import Any

import pytest

from service.settings.settings import Settings, load_settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.seen import ask

SHOP = """
version = "2"
instructions = "You sell {{goods}}."
[[input]]
role = "user"
content = "What is new about {{goods}}?"
"""


@pytest.fixture
def shop(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a service that has a stored prompt."""
    (tmp_path / "shop.toml").write_text(SHOP)
    return load_settings(redis_url=settings.redis_url, key_prefix=settings.key_prefix, prompts_dir=str(tmp_path))


def named(**variables: Any) -> Any:
    return {"id": "shop", "version": "2", "variables": variables}


async def test_a_stored_prompt_is_what_somebody_who_sent_its_text_would_get(shop: Settings) -> None:
    engine = scripted([answer("Green tea.")])
    text: Any = {"role": "user", "content": "What is new about tea?"}
    async with serving(shop, engine) as service, service.client() as client:
        made = await ask(client, prompt=named(goods="tea"), input="Be brief.")
        await ask(client, instructions="You sell tea.", input=[text])
        alone = await ask(client, prompt=named(goods="tea"))
        listed = [item.to_dict() async for item in client.responses.input_items.list(made.id, order="asc")]

    prompts = [generation.prompt.tolist() for generation in engine.generations]
    assert prompts[1] == prompts[2]
    assert prompts[0] != prompts[1]
    assert [item["content"][0]["text"] for item in listed] == ["What is new about tea?", "Be brief."]
    assert made.prompt is not None
    assert made.prompt.to_dict() == named(goods="tea")
    assert (made.instructions, alone.output_text) == ("You sell tea.", "Green tea.")


async def test_a_stored_prompt_needs_no_model(shop: Settings) -> None:
    async with serving(shop, scripted([answer("Green tea.")])) as service, service.client() as client:
        made = await client.responses.create(prompt=named(goods="tea"))
    assert (made.model, made.output_text) == (MODEL, "Green tea.")

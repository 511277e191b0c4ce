"""Stored prompts: what their files give, that a request can name nothing else, that what is wrong is said, and what the
model is told over HTTP.
"""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.request import PromptParam, read_create
from service.errors import ApiError, InvalidRequest
from service.process import Settings, load_settings
from service.responses import templates
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.seen import ask

SHOP = """
version = "2"
instructions = "You sell {{goods}}. {{ goods }}!"
[[input]]
role = "user"
content = "I am {{who}} and like {{goods}}."
[[input]]
role = "assistant"
content = "{{{{who}}}} {who} {{who we are}}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with some prompts."""
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "shop.toml").write_text(SHOP)
    (prompts / "shop@1.toml").write_text('instructions = "You sell."')
    (prompts / "bare.toml").write_text("")
    (tmp_path / "outside.toml").write_text('instructions = "secret"')
    return prompts


def prompt(id: str = "shop", version: str | None = None, **variables: Any) -> PromptParam:
    return PromptParam(id, version, {name: msgspec.Raw(msgspec.json.encode(each)) for name, each in variables.items()})


def message(role: str, content: str) -> dict[str, str]:
    return {"type": "message", "role": role, "content": content}


async def fill(asked: PromptParam, folder: str) -> tuple[str | None, Any]:
    """The instructions and the messages that a prompt gives a request without any."""
    request = read_create(b'{"model":"m","previous_response_id":"resp_0","input":[]}', store=True)
    filled = await templates.apply_template(request, asked, folder)
    return filled.instructions, msgspec.json.decode(filled.input)


async def refusal(folder: Path, asked: PromptParam) -> tuple[str | None, str | None]:
    """The param and the code of what is refused."""
    with pytest.raises(InvalidRequest) as caught:
        await fill(asked, str(folder))
    return caught.value.param, caught.value.code


async def test_variables_are_filled_in_wherever_they_stand(folder: Path) -> None:
    filled = await fill(prompt(goods="tea", who={"type": "input_text", "text": "Ann"}), str(folder))
    messages = [message("user", "I am Ann and like tea."), message("assistant", "{{Ann}} {who} {{who we are}}")]

    assert filled == ("You sell tea. tea!", messages)


async def test_what_stands_for_a_variable_is_not_filled_in_again(folder: Path) -> None:
    instructions, items = await fill(prompt(goods="{{who}}", who="\\1 \\g<0> {{goods}}"), str(folder))

    assert instructions == "You sell {{who}}. {{who}}!"
    assert items[0]["content"] == "I am \\1 \\g<0> {{goods}} and like {{who}}."


@pytest.mark.parametrize("version", ["1", "2", None])
async def test_a_version_is_its_file_or_what_the_current_one_says(folder: Path, version: str | None) -> None:
    variables = {} if version == "1" else {"goods": "tea", "who": "Ann"}
    instructions, _ = await fill(prompt(version=version, **variables), str(folder))

    assert instructions == ("You sell." if version == "1" else "You sell tea. tea!")


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        (prompt("nothing"), "prompt.id", "invalid_value"),
        (prompt("../outside"), "prompt.id", "invalid_value"),
        (prompt("/etc/passwd"), "prompt.id", "invalid_value"),
        (prompt(".hidden"), "prompt.id", "invalid_value"),
        (prompt("shop\0"), "prompt.id", "invalid_value"),
        (prompt("shop@1"), "prompt.id", "invalid_value"),
        (prompt(version="3"), "prompt.version", "invalid_value"),
        (prompt(version="/../../outside"), "prompt.version", "invalid_value"),
        (prompt("bare", "1"), "prompt.version", "invalid_value"),
        (prompt(goods="tea"), "prompt.variables.who", "missing_required_parameter"),
        (prompt(goods="tea", who="Ann", shoe="9"), "prompt.variables", "invalid_value"),
        (prompt("bare", **{f"x{each}": "1" for each in range(257)}), "prompt.variables", "invalid_value"),
        (prompt(goods=7, who="Ann"), "prompt.variables.goods", "invalid_type"),
        (prompt(goods={"type": "input_text"}, who="Ann"), "prompt.variables.goods.text", "missing_required_parameter"),
        (prompt(goods={"type": "input_image"}, who=""), "prompt.variables.goods", "unsupported_parameter"),
        (prompt(goods={"type": "sound"}, who="Ann"), "prompt.variables.goods.type", "invalid_value"),
        (prompt(goods="x" * 4_000_000, who="Ann"), "prompt.variables", "invalid_value"),
    ],
)
async def test_what_is_wrong_is_a_400_that_names_it(folder: Path, asked: PromptParam, param: str, code: str) -> None:
    assert await refusal(folder, asked) == (param, code)


@given(id=st.text(min_size=1, max_size=20), version=st.none() | st.text(min_size=1, max_size=20))
async def test_no_name_leads_out_of_the_folder(tmp_path_factory: pytest.TempPathFactory, id: str, version: str) -> None:
    top = tmp_path_factory.getbasetemp()
    (top / "x.toml").write_text('instructions = "secret"')
    (top / "inner").mkdir(exist_ok=True)
    assert (await refusal(top / "inner", prompt(id, version)))[1] == "invalid_value"


async def test_a_service_without_stored_prompts_says_so() -> None:
    with pytest.raises(InvalidRequest, match="has no stored prompts") as caught:
        await fill(prompt(), "")
    assert (caught.value.param, caught.value.code) == ("prompt", "unsupported_parameter")


@pytest.mark.parametrize(
    "text",
    [
        b"instructions = ",
        b"\xff",
        b"[[input]]\nrole = 'tool'\ncontent = ''",
        b"[[input]]\nrole = 'user'\ncontent = 'x'\n" * 65,
        b"instructions = '" + b"x" * templates.MAX_TEMPLATE_BYTES + b"'",
        b"x = " + b"[" * 5000,
    ],
)
async def test_a_broken_file_is_the_fault_of_the_service_whose_log_says_why(
    folder: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "broken.toml").write_bytes(text)
    with caplog.at_level(logging.ERROR), pytest.raises(ApiError, match="whose log has the reason") as caught:
        await fill(prompt("broken"), str(folder))
    assert (caught.value.status, caught.value.code) == (500, "server_error")
    assert "broken.toml can't be read: " in caplog.text


TEAS = """
version = "2"
instructions = "You sell {{goods}}."
[[input]]
role = "user"
content = "What is new about {{goods}}?"
"""


@pytest.fixture
def shop(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a service that has a stored prompt."""
    (tmp_path / "shop.toml").write_text(TEAS)
    return load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, prompts_dir=str(tmp_path))


def named(**variables: Any) -> Any:
    return {"id": "shop", "version": "2", "variables": variables}


async def test_a_stored_prompt_is_what_somebody_who_sent_its_text_would_get(shop: Settings) -> None:
    engine = scripted([answer("Green tea.")])
    text: Any = {"role": "user", "content": "What is new about tea?"}
    async with serving(shop, engine) as service, service.client() as client:
        made = await ask(client, prompt=named(goods="tea"), input="Be brief.")
        await ask(client, instructions="You sell tea.", input=[text])
        alone = await ask(client, prompt=named(goods="tea"))
        listed: list[Any] = [item.to_dict() async for item in client.responses.input_items.list(made.id, order="asc")]

    prompts = [list(generation.prompt) for generation in engine.generations]
    assert prompts[1] == prompts[2]
    assert prompts[0] != prompts[1]
    assert [item["content"][0]["text"] for item in listed] == ["What is new about tea?", "Be brief."]
    assert made.prompt is not None
    assert made.prompt.to_dict() == named(goods="tea")
    assert (made.instructions, alone.output_text) == ("You sell tea.", "Green tea.")


async def test_a_request_s_own_instructions_go_before_and_without_messages_it_needs_an_input(folder: Path) -> None:
    asks = b'{"model":"m","prompt":{"id":"bare"}%b}'
    mine, bare = (read_create(asks % more, store=True) for more in (b',"instructions":"Mine."', b""))
    asked = prompt(goods="tea", who="Ann")
    assert (await templates.apply_template(mine, asked, str(folder))).instructions == "Mine."
    with pytest.raises(InvalidRequest, match="so the request needs input"):
        await templates.apply_template(bare, prompt("bare"), str(folder))

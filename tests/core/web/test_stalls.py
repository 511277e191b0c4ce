"""Nobody waits for somebody else's heavy request or answer: the event loop never stops for long."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from service.api.request import MAX_STOP_CHARS, MAX_STOPS
from service.harmony.tokens import RETURN, encode
from service.process import Settings
from service.responses.output import sealed
from service.responses.output.sealed import MAX_KEPT_BYTES, REASONING
from service.responses.seal import Sealer
from tests.support.bad.heavy import BODIES, HEAVY, LEGAL, fresh, shape, strict
from tests.support.engine.scripted import Script
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.lag import CREATE, least_stall

AMONG_OTHERS = (
    "ten MB of letters",
    "300,000 Chinese characters",
    "as many words as fit",
    "as many numbers as fit",
    "as many objects as fit",
    "as many escapes as fit",
    "as many tools as fit",
)
"""Those that are sent in every run while others ask for something; the rest is in the long one."""

CASES: dict[str, Callable[[], bytes]] = LEGAL | {name: bad.body for name, bad in HEAVY.items() if callable(bad.body)}


ON_A_PUSH = (*AMONG_OTHERS, *LEGAL, *list(BODIES)[::3])
"""Those that are sent by themselves in every run."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ON_A_PUSH else pytest.mark.full) for name in (*CASES, *BODIES)]
)
async def test_the_loop_never_stops_for_long(settings: Settings, name: str) -> None:
    async with serving(settings, scripted([answer("Fine.")])) as inside:
        assert await least_stall(inside.port, (CASES | BODIES)[name]) < 1


CHUNK = 16
"""How many tokens an engine says at once, at most."""

COUNTS = "a{0,1024}" * 15 + "a{1024}" * 16
KEY = "k" * 32
LOGPROBS = {"top_logprobs": 20, "include": ["message.output_text.logprobs"]}


def doubling(depth: int, word: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"enum": [0, word]}}
    for level in range(depth):
        ends = [
            {
                "type": "array",
                "prefixItems": [{"$ref": f"#/$defs/d{level}"}, {"const": end}],
                "items": False,
                "minItems": 2,
            }
            for end in (1, 2)
        ]
        definitions[f"d{level + 1}"] = {"anyOf": ends}
    return {"$ref": f"#/$defs/d{depth}", "$defs": definitions}


def played(*texts: str, chunk: int = CHUNK) -> Script:
    ids = [*opened(""), *(id for text in texts for id in encode(text)), RETURN]
    return [ids[:3], *(ids[place : place + chunk] for place in range(3, len(ids), chunk))]


ANSWERS: dict[str, tuple[Script, Callable[[str], dict[str, Any]]]] = {
    "nearly a stop, again and again": (
        played(("e" * 250 + " ") * 200),
        lambda word: {"stop": [f"{'e' * (MAX_STOP_CHARS - 9)}{word}{n}" for n in range(MAX_STOPS)]},
    ),
    "4,000 tokens with twenty alternatives each": (played("word " * 4_000), lambda word: LOGPROBS),
    "an answer that branches in branches of its schema look at": (
        played("[" * 40 + "0" + ",2]" * 40),
        lambda word: strict(doubling(40, word)),
    ),
    "an answer under a pattern of many counts": (
        played(json.dumps({"x": "a" * 20_000})),
        lambda word: strict(shape({"x": {"type": "string", "pattern": f"^{COUNTS}({word})?$"}}, required=["x"])),
    ),
    "a compaction, and the answer": (
        played("A summary. " * 500),
        lambda word: {
            "context_management": [{"type": "compaction", "compact_threshold": 1_000}],
            "input": [{"role": "user", "content": f"{word} {n} " * 5} for n in range(3_000)],
        },
    ),
    "100,000 tokens shown again": (
        played("word " * 4_000),
        lambda word: {"input": f"{word} " * 30_000, "enable_response_messages": True},
    ),
    "reasoning that is sealed": (played("word " * 4_000), lambda word: {"include": ["reasoning.encrypted_content"]}),
}


@pytest.mark.parametrize(
    ("stream", "path"),
    [
        (True, CREATE),
        pytest.param(False, CREATE, marks=pytest.mark.full),
        pytest.param(True, f"/open-responses{CREATE}", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("name", ANSWERS)
async def test_the_loop_never_stops_long_over_an_answer(settings: Settings, name: str, stream: bool, path: str) -> None:
    script, build = ANSWERS[name]
    async with serving(settings, scripted(script)) as inside:
        body = fresh(lambda word: build(word) | {"stream": stream})
        stall = await least_stall(inside.port, body, path, whole=True)
    assert stall < 1


@pytest.mark.parametrize("path", ["/v1/responses/input_tokens", "/v1/responses/compact"])
@pytest.mark.parametrize("items", [1, 4_000])
async def test_the_loop_never_stops_for_long_at_other_endpoints(settings: Settings, path: str, items: int) -> None:
    each = [{"role": "user", "content": "word " * (80_000 // items)}]
    async with serving(settings, scripted(played("A summary."))) as inside:
        stall = await least_stall(inside.port, fresh(lambda word: {"input": each * items}), path)
    assert stall < 1


@pytest.mark.parametrize(("seals", "size"), [(4_000, 40), (8, MAX_KEPT_BYTES // 2)])
async def test_the_loop_never_stops_for_long_over_seals(settings: Settings, seals: int, size: int) -> None:
    settings = settings.model_copy(update={"seal_keys": (SecretStr(KEY),)})
    sealer = Sealer("default", [KEY.encode()])
    texts = [sealer.seal(REASONING, sealed.reasoning(f"{n} " + "word " * (size // 5))) for n in range(seals)]
    items = [{"type": "reasoning", "summary": [], "encrypted_content": text} for text in texts]
    body = fresh(lambda word: {"input": [*items, {"role": "user", "content": word}]})
    async with serving(settings, scripted([answer("Fine.")])) as inside:
        stall = await least_stall(inside.port, body)
    assert stall < 1

"""A server that serves another model than before: what was learnt of the one before is asked again."""

import json
from typing import Any

import msgspec
import pytest

from service.engine.port import ChatRequest, Generation, Sampling, Transcript
from service.engine.servers.kind import ServerTerms
from service.features.chat_servers.servers import LlamaByChat
from service.features.llama.servers import Llama

SAID = Transcript(b'[{"role": "user", "content": "<|im_end|>"}]')


@pytest.mark.parametrize("kind", [Llama(shared=False), LlamaByChat(shared=False)])
async def test_a_server_whose_model_was_changed_is_asked_about_marks_again(kind: Llama | LlamaByChat) -> None:
    marks, prompts = list[str](), list[str]()

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        said: dict[str, Any] = json.loads(body or b"{}")
        listed = {"data": [{"id": "qwen", "meta": {"n_vocab": 1000, "n_ctx": 8192}}]}
        cut = [{"id": 5, "piece": each} for each in str(said.get("content")).split("\n") if each in marks]
        answers = {"/v1/models": listed, "/props": {}, "/tokenize": {"tokens": cut}}
        if path == "/tokenize" and not said["with_pieces"]:
            return 200, b'{"tokens": []}'
        prompts.append(str(said.get("messages")))
        return 200, msgspec.json.encode(answers.get(path, {"prompt": prompts[-1]}))

    async def words() -> str:
        facts = await kind.facts(ask, ServerTerms)
        if isinstance(kind, Llama):
            await kind.render(ask, facts, SAID)
            return prompts[-1]
        asked = Generation("g", [], Sampling(8), asks=ChatRequest(SAID))
        made = (await kind.disarm(ask, facts, asked)).asks
        return made.transcript.messages.decode() if made else ""

    assert "<|im_end|>" in await words()
    marks.append("<|im_end|>")
    assert "<|im_end|>" not in await words()

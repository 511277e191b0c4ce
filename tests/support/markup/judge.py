"""Reads transcripts with vLLM's own parsers, which judge ours. Run by the Python of .venv-vllm, as a program: JSON
cases come in, JSON readings go out.

A case has a markup, its tokens as pairs of id and text, the special tokens of its vocabulary, the tools, and whether
the prompt ended inside of reasoning. A reading has the reasoning, the content and the calls, streamed token by token.
"""

import json
import os
import sys
from typing import Any

PARSERS: dict[str, tuple[str | None, str | None]] = {
    "think": (None, "qwen3"),
    "hermes": ("hermes", "deepseek_r1"),
    "qwen": ("hermes", "qwen3"),
    "qwen-coder": ("qwen3_coder", "qwen3"),
    "glm": ("glm45", "glm45"),
    "deepseek-v3": ("deepseek_v3", "deepseek_r1"),
    "deepseek-v3.1": ("deepseek_v31", "deepseek_r1"),
    "deepseek-v3.2": ("deepseek_v32", "deepseek_r1"),
    "deepseek-v4": ("deepseek_v4", "deepseek_v4"),
    "deepseek-v4.1": ("deepseek_v41", "deepseek_v41"),
    "kimi": ("kimi_k2", "kimi_k2"),
    "minimax": ("minimax_m2", "minimax_m2"),
    "seed": ("seed_oss", "seed_oss"),
}
"""The names of vLLM's parsers for calls and for reasoning."""


class Vocabulary:
    """As much of a tokenizer as the parsers ask for."""

    def __init__(self, special: dict[str, int], texts: dict[int, str]) -> None:
        self._special = special
        self._texts = texts
        self.all_special_tokens = list(special)
        self.all_special_ids = list(special.values())
        self.chat_template = ""

    def get_vocab(self) -> dict[str, int]:
        return dict(self._special)

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self._texts[id] for id in ids)

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self._special[text]] if text in self._special else []

    def convert_tokens_to_ids(self, text: str) -> int | None:
        return self._special.get(text)


def reading(case: dict[str, Any]) -> dict[str, Any]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    tool, reasoning = PARSERS[case["markup"]]
    special: dict[str, int] = case["special"]
    texts = {id: spelling for spelling, id in special.items()} | dict(case["tokens"])
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in case["tools"].items()
    ]
    request = ChatCompletionRequest(model="m", messages=[], tools=tools, tool_choice="auto")
    options = {} if case["thinking"] or case["reasons"] else {"enable_thinking": False, "thinking": False}
    made = ParserManager.get_parser(tool, reasoning, enable_auto_tools=True)
    parser = made(Vocabulary(special, texts), request.tools, chat_template_kwargs=options)
    request = parser.adjust_request(request) or request
    prompt = [] if case["thinking"] or case["reasons"] else [special[mark] for mark in ("<think>", "</think>")]
    out = {"reasoning": "", "content": "", "calls": []}
    calls: list[dict[str, str]] = out["calls"]
    for place, (id, text) in enumerate(case["tokens"]):
        last = place + 1 == len(case["tokens"])
        delta = parser.parse_delta(text, [id], request, prompt if place == 0 else None, finished=last)
        if delta is None:
            continue
        out["reasoning"] += delta.reasoning or ""
        out["content"] += delta.content or ""
        for each in delta.tool_calls or ():
            while len(calls) <= each.index:
                calls.append({"name": "", "arguments": ""})
            if each.function:
                calls[each.index]["name"] += each.function.name or ""
                calls[each.index]["arguments"] += each.function.arguments or ""
    return out


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # vLLM logs to where the answer goes
    readings: dict[str, Any] = {}
    for name, case in json.load(sys.stdin).items():
        readings[name] = reading(case)
    os.write(out, json.dumps(readings).encode())


if __name__ == "__main__":
    main()

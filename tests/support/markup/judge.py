"""How vLLM's parsers read streams. Run by the Python of .venv-vllm, as a program: JSON cases come in, and for each goes
out what a parser makes of the whole text, and of one token after another.

A case has the module and the class of its parser, its tokens with their texts, the vocabulary of marks, and the tools.
"""

import importlib
import json
import sys
from typing import Any


class Vocabulary:
    """A tokenizer that knows marks, and the texts of a stream's ids."""

    def __init__(self, marks: dict[str, int], texts: dict[int, str]) -> None:
        self._marks, self._texts = marks, texts
        self.all_special_tokens, self.all_special_ids = [*marks], [*marks.values()]

    def get_vocab(self) -> dict[str, int]:
        return self._marks

    get_added_vocab = get_vocab

    def decode(self, ids: list[int], **how: Any) -> str:
        return "".join(self._texts[id] for id in ids)


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """The reading of a stream at once, and the deltas of one token after another."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    found = getattr(importlib.import_module(f"vllm.parser.{case['module']}"), case["parser"])
    function = {name: {"name": name, "parameters": schema} for name, schema in case["schemas"].items()}
    tools = [{"type": "function", "function": each} for each in function.values()]
    request = ChatCompletionRequest(messages=[{"role": "user", "content": ""}], model="", tools=tools)

    tokens: list[tuple[int, str]] = case["tokens"]

    def parser() -> Any:
        return found(Vocabulary(case["marks"], dict(tokens)), request.tools)

    ids, text = [id for id, _ in tokens], "".join(said for _, said in tokens)
    reasoning, content, calls = parser().parse(text, request, True, ids)
    whole = [{"name": each.name, "arguments": each.arguments} for each in calls or ()]
    reader = parser()
    deltas = [
        reader.parse_delta(said, [id], request, [], finished=place == len(tokens) - 1)
        for place, (id, said) in enumerate(tokens)
    ]
    return {
        "whole": {"reasoning": reasoning or "", "content": content or "", "calls": whole},
        "deltas": [each.model_dump(exclude_none=True) for each in deltas if each is not None],
    }


if __name__ == "__main__":
    json.dump({name: judged(case) for name, case in json.load(sys.stdin).items()}, sys.stdout)

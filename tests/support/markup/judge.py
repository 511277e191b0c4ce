"""How vLLM's parsers read streams. Run by the Python of .venv-vllm, with the newer vLLM of .venv-templates before its
own, as a program: JSON cases come in, and for each goes out what a parser makes of the whole text, and of one token
after another.

A case has what `--tool-call-parser` and `--reasoning-parser` are given, "" for none, the tokens with their texts, the
vocabulary of marks, the tools, and the options of the chat template.
"""

import json
import sys
from typing import Any

UNKNOWN = 1 << 40
"""The first id of a character that no token of the stream spells."""


class Vocabulary:
    """A tokenizer that knows marks, and the texts of a stream's ids."""

    def __init__(self, marks: dict[str, int], tokens: list[tuple[int, str]]) -> None:
        self._marks, self._tokens = marks, tokens
        self._texts = {id: spelling for spelling, id in marks.items()} | dict(tokens)
        self.all_special_tokens: list[str] = []
        self.all_special_ids: list[int] = []

    def get_vocab(self) -> dict[str, int]:
        return self._marks

    get_added_vocab = get_vocab

    def decode(self, ids: list[int], **how: Any) -> str:
        return "".join(self._texts[id] for id in ids)

    def encode(self, text: str, **how: Any) -> list[int]:
        """The ids of a text: those of the first tokens in the stream that spell it."""
        for start in range(len(self._tokens)):
            said, ids = "", list[int]()
            for id, piece in self._tokens[start:]:
                said, ids = said + piece, [*ids, id]
                if said == text:
                    return ids
                if not text.startswith(said):
                    break
        return [self._marks[text]] if text in self._marks else [UNKNOWN + ord(sign) for sign in text]


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """The reading of a stream at once, and the deltas of one token after another."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import ParserManager

    found: Any = ParserManager.get_parser(case["calls"] or None, case["reasoning"] or None, enable_auto_tools=True)
    function = {name: {"name": name, "parameters": schema} for name, schema in case["schemas"].items()}
    tools = [{"type": "function", "function": each} for each in function.values()]
    request = ChatCompletionRequest(messages=[{"role": "user", "content": ""}], model="", tools=tools)
    tokens: list[tuple[int, str]] = case["tokens"]

    def parser() -> Any:
        return found(Vocabulary(case["marks"], tokens), request.tools, chat_template_kwargs=case["options"])

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

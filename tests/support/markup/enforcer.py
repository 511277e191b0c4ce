"""Whether xgrammar lets streams through a tag. Run by the Python of .venv-vllm, as a program: JSON cases come in, and
for each goes out how many of its tokens were let through, and whether the model may end there.

A case has a tag, its ids, and a vocabulary: the special tokens with their ids, and one ordinary id for each byte.
"""

import json
import sys
from typing import Any


def judged(case: dict[str, Any]) -> list[Any]:
    """How far a stream comes, and whether it may end."""
    import xgrammar

    special: dict[str, int] = case["special"]
    first: int = case["first_byte"]
    pieces: list[bytes] = [b""] * first + [bytes([byte]) for byte in range(256)]
    for spelling, id in special.items():
        pieces[id] = spelling.encode()
    stop = case["stop"]
    info = xgrammar.TokenizerInfo(pieces, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[stop])
    tag = xgrammar.StructuralTag.from_json(case["tag"])
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(info).compile_structural_tag(tag))
    for place, id in enumerate(case["ids"]):
        if not matcher.accept_token(id):
            return [place, False]
    return [len(case["ids"]), matcher.accept_token(stop)]


if __name__ == "__main__":
    json.dump({name: judged(case) for name, case in json.load(sys.stdin).items()}, sys.stdout)

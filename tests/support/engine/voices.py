"""The words of a server of each kind, and here vLLM's. For tests of what all kinds have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from service.engine.vllm.servers import TokensEndpoint
from tests.support.engine import standin_wire as vllm


@dataclass(frozen=True)
class Voice:
    """How a kind of server speaks: where it is asked, ids of which there are so many with them, an end, an error."""

    path: str
    tokens: Callable[[list[int], int], bytes]
    end: Callable[[int], bytes]
    error: Callable[[int, str], bytes]


VLLM = (lambda ids, _: vllm.tokens_event(ids), lambda _: vllm.tokens_event([], "stop"), vllm.error_event)
VOICES = {
    "vllm": Voice(TokensEndpoint.GENERATE, *VLLM),
    "vllm's completions": Voice(TokensEndpoint.COMPLETIONS, *VLLM),
}

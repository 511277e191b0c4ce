"""What a server of each kind says in its own words. For tests of what all kinds have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from service.engine.vllm.servers import TokensEndpoint
from service.features.experimental.servers import COMPLETIONS, GENERATE
from service.features.llama.servers import COMPLETION
from tests.support.engine import standin_wire as vllm
from tests.support.llama import wire as llama
from tests.support.sglang import wire as sglang
from tests.support.tensorrt import wire as tensorrt


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
    "llama": Voice(
        COMPLETION,
        lambda ids, count: llama.event("x" * len(ids), ids, count),
        llama.stop_event,
        lambda status, message: llama.sent({"error": {"code": status, "message": message}}),
    ),
    "sglang": Voice(
        GENERATE,
        sglang.event,
        lambda count: sglang.event([], count, sglang.STOP),
        lambda status, message: sglang.error(message, status),
    ),
    "tensorrt": Voice(
        COMPLETIONS,
        lambda ids, _: tensorrt.event(ids),
        lambda _: tensorrt.event([], "stop"),
        lambda status, message: tensorrt.sent({"error": {"message": message, "code": status}}),
    ),
}

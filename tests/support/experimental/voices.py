"""The words of experimental servers, for tests of what all kinds of servers have in common."""

from service.features.experimental.servers import COMPLETIONS, GENERATE
from tests.support.engine.voices import Voice
from tests.support.sglang import wire as sglang
from tests.support.tensorrt import wire as tensorrt

EXPERIMENTAL = {
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

"""The words of a llama.cpp server, for tests of what all kinds of servers have in common."""

from service.features.llama.servers import COMPLETION
from tests.support.engine.voices import Voice
from tests.support.llama import wire as llama

LLAMA = Voice(
    COMPLETION,
    lambda ids, count: llama.event("x" * len(ids), ids, count),
    llama.stop_event,
    lambda status, message: llama.sent({"error": {"code": status, "message": message}}),
)

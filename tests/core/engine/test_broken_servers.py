"""Faults of a vLLM server, which keeps its connections: the suite of all kinds."""

from tests.support.engine.broken import BrokenServers
from tests.support.engine.standin import Standin
from tests.support.engine.voices import VOICES


class TestVllm(BrokenServers):
    standin = Standin
    voice = VOICES["vllm"]

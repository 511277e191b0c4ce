"""Faults of a llama.cpp server, which keeps no connection: the suite of all kinds."""

from tests.support.engine.broken import BrokenServers
from tests.support.llama.standin import LlamaStandin
from tests.support.llama.voice import LLAMA


class TestLlama(BrokenServers):
    standin = LlamaStandin
    voice = LLAMA

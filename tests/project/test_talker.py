"""The files that the talker's builder and SmolLM2's are written for: those that are there, by their SHA-256."""

import hashlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

from tests.support import ROOT
from tests.support.llama.smol import small


def program(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "scripts" / "talker" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_those_that_the_builders_were_written_for(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = program("build")
    content = builder.WEIGHTS.read_bytes()
    assert builder.checked(content, builder.WEIGHTS_SHA256, "weights") == content
    with pytest.raises(ValueError, match="another file"):
        builder.checked(content + b"x", builder.WEIGHTS_SHA256, "weights")
    monkeypatch.setitem(sys.modules, "build", builder)
    assert hashlib.sha256(small().read_bytes()).hexdigest() == program("smol").GGUF_SHA256

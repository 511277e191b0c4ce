"""The talker's builder, as far as it goes without torch: the weights and the ranks it was written for, its tokenizer;
and what SmolLM2's is written for.

That vLLM loads what they build, and that the talker says what its README promises, is seen where vLLM runs.
"""

import hashlib
import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from service.harmony import tokens
from tests.support import ROOT
from tests.support.llama.smol import small

FOLDER = ROOT / "scripts" / "talker"
SECONDS = 60
ENCODE = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
print(json.dumps([tokenizer.encode(text, add_special_tokens=False).ids for text in json.load(sys.stdin)]))
"""
TEXTS = [
    "Hello! How can I help you today?",
    "I'll say it's 12345 o'clock;\tDON'T panic…\r\n\r\n  really  ",
    "Zażółć gęślą jaźń, 漢字かな交じり文 ก็ 🙂👩‍👩‍👧 ﷽",
    "def f(x):\n    return {'a': [1, 2.50], \"b\": None}  # ok\n",
    "<|not special|> <|end> |",
]


def program(name: str) -> ModuleType:
    spec = spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    return program("build")


def test_the_weights_are_those_that_the_builder_was_written_for(builder: ModuleType) -> None:
    content = builder.WEIGHTS.read_bytes()
    assert builder.checked(content, builder.WEIGHTS_SHA256, "weights") == content
    with pytest.raises(ValueError, match="another file"):
        builder.checked(content + b"x", builder.WEIGHTS_SHA256, "weights")


def test_smollm2_is_built_of_the_file_that_is_installed(builder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "build", builder)
    assert hashlib.sha256(small().read_bytes()).hexdigest() == program("smol").GGUF_SHA256


def test_what_is_built_is_made_once_and_anew_of_something_else(builder: ModuleType, tmp_path: Path) -> None:
    made: list[str] = []

    def placed(made_from: str) -> str:
        def write(folder: Path) -> None:
            made.append(made_from)
            (folder / "model").write_text(made_from)

        builder.place(tmp_path / "models" / "one", made_from, write)
        return (tmp_path / "models" / "one" / "model").read_text()

    assert [placed(each) for each in ("a", "a", "b", "b")] == ["a", "a", "b", "b"]
    assert made == ["a", "b"]
    assert [each.name for each in (tmp_path / "models").iterdir()] == ["one"]


@pytest.mark.vllm
def test_the_tokenizer_that_vllm_loads_makes_the_ids_that_the_service_makes() -> None:
    command = [ROOT / ".venv-vllm/bin/python", "-c", ENCODE, ROOT / ".venv-vllm/talker/tokenizer.json"]
    done = subprocess.run(command, input=json.dumps(TEXTS), capture_output=True, text=True, timeout=SECONDS, check=True)
    assert json.loads(done.stdout) == [list(tokens.encode(text)) for text in TEXTS]

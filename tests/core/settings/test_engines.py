"""The file of several engines: what it may say, and that what is wrong in it is told with its line, without a key."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.process import load_settings
from service.settings.engines import MAX_ENGINES, REPLACED, BadEngines, read_engines
from service.settings.sources import SettingsError

TWO = """\
# what we serve
[[engines]]
name = "gpt-oss-20b"
kind = "vllm"
urls = ["http://10.0.0.5:8001/v1", "https://gpu.internal:8443/"]
weights = [2, 0.5]
model = "openai/gpt-oss-20b"
aliases = ["gpt-4o-mini"]
markup = "harmony"
connections = 256

[[engines]]
name = "gpt-oss-120b"
kind = "llama"
context_tokens = 65536
max_output_tokens = 8192
"""


def write(tmp_path: Path, text: str, name: str = "engines.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def refused(path: Path) -> str:
    with pytest.raises(BadEngines) as refusal:
        read_engines(path)
    return str(refusal.value)


def test_a_file_says_which_models_there_are_and_where(tmp_path: Path) -> None:
    first, second = engines = read_engines(write(tmp_path, TWO))
    assert [(each.listed.name, each.model, each.urls) for each in engines] == [
        ("gpt-oss-20b", "openai/gpt-oss-20b", ("http://10.0.0.5:8001", "https://gpu.internal:8443")),
        ("gpt-oss-120b", "gpt-oss-120b", ("http://127.0.0.1:8080",)),
    ]
    assert first.listed.weights == (2, 0.5)
    assert (second.listed.context_tokens, second.listed.max_output_tokens) == (65_536, 8192)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('kind = "vllm"', "kind = vllm", "this is no TOML: Invalid value (at line 4, column 8)"),
        ('kind = "vllm"\n', "", "line 2: Object missing required field `kind`"),
        ("connections = 256", "conections = 256", "line 10: conections: Object contains unknown field `conections`"),
        ("connections = 256", "connections = -1", "line 10: connections: Expected `int` >= 0"),
        ('markup = "harmony"', 'markup = "latex"', "line 9: there is no markup 'latex'; it is one of auto, harmony, "),
        (
            'kind = "llama"',
            'kind = "demo"\nmarkup = "server"',
            "line 15: the demo engine has no servers that could read a model: leave it out",
        ),
        ("[2, 0.5]", "[2]\nkeeps = { a = 1 }", "line 7: keeps: Expected `bool`, got `int`"),
        ("[2, 0.5]", "[2]", "line 6: has 1 numbers for 2 servers; give one for each"),
        ('kind = "vllm"', 'kind = "vlm"', "line 4: there is no kind 'vlm' of engine; it is one of vllm, "),
        ('kind = "vllm"', 'kind = "chat"', "line 9: servers of kind 'chat' read their model themselves: leave it out"),
        ('"http://10.0.0.5:8001/v1"', '"https://gpu.internal:8443"', "line 5: names a server twice"),
        ("65536", "100", "line 15: should be 0, or at least 1,024"),
        ("8192", "3", "line 16: should be 0, or at least 16"),
        (
            '"gpt-oss-120b"\nkind = "llama"',
            '"demo"\nkind = "demo"\nurls = ["http://a"]',
            "line 14: the demo engine has",
        ),
        ('kind = "llama"', 'kind = "demo"', "line 13: 'gpt-oss-120b' is a model's name, and the demo engine has no"),
        ('kind = "llama"', 'kind = "llama"\napi_key_env = "NO_KEY_HERE"', "line 15: the environment has no variable"),
        ('kind = "llama"', 'kind = "llama"\napi_key_env = "HARMONIUM_X"', "line 15: names that begin with HARMONIUM_"),
        (
            'kind = "llama"',
            'kind = "llama"\napi_key_file = "/no/file"',
            "line 15: /no/file can't be read: No such file",
        ),
        ('kind = "llama"', 'kind = "llama"\napi_key_file = "a"\napi_key_env = "A"', "line 15: give api_key_env or"),
        (
            '"http://10.0.0.5:8001/v1"',
            '"http://a:b@gpu"',
            "line 5: should have no user, password or query; put the key",
        ),
        ('"gpt-oss-120b"', '"gpt 120"', "line 13: 'gpt 120' is no name of a model"),
        ('"gpt-oss-120b"', '"gpt-oss-20b"', "line 13: 'gpt-oss-20b' is a name of the engine 'gpt-oss-20b' already"),
        (TWO, '[[engines]]\nname = "a"\nkind = "demo"\n' * 65, f"has 65 engines, at most {MAX_ENGINES} are possible"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, told: str, tmp_path: Path) -> None:
    assert old in TWO
    assert refused(write(tmp_path, TWO.replace(old, new, 1))).startswith(told)


def test_other_options_that_keep_reasoning_are_another_engine(tmp_path: Path) -> None:
    first, kept, untold = (
        read_engines(write(tmp_path, TWO.replace("weights", f"{said}weights", 1)))[0]
        for said in ("keeps = { preserve_thinking = true }\n", "keeps = {}\n", "")
    )
    assert (first.listed.keeps, kept.listed.keeps, untold.listed.keeps) == ({"preserve_thinking": True}, {}, None)
    assert len({first.key, kept.key, untold.key}) == 3


def test_a_file_that_is_not_there_or_no_text_or_too_large_is_told(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.toml") == "can't be read: No such file or directory"
    path = tmp_path / "engines.toml"
    path.write_bytes(b"\xff\xfe")
    assert refused(path) == "is no text in UTF-8"
    path.write_bytes(b"#" * ((1 << 20) + 1))
    assert refused(path) == "has more than 1,048,576 bytes"
    path.write_text(f"[[engines]]\nconnections = {'9' * 5000}")
    assert "Exceeds the limit" in refused(path)
    (tmp_path / "engines.json").write_text("[" * 100_000)
    assert refused(tmp_path / "engines.json").startswith("this is no JSON")
    path.unlink()
    os.mkfifo(path)
    assert "is a pipe" in refused(path)


def test_a_key_comes_from_a_file_or_the_environment_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = write(tmp_path, "sk-secret\n", "key")
    monkeypatch.setenv("GPU_KEY", "sk-other")
    text = (
        '[[engines]]\nname = "a"\nkind = "vllm"\n{}\n[[engines]]\nname = "b"\nkind = "vllm"\napi_key_env = "GPU_KEY"\n'
    )
    first, second = engines = read_engines(write(tmp_path, text.format(f'api_key_file = "{key}"')))
    assert [each.api_key.get_secret_value() for each in engines] == ["sk-secret", "sk-other"]
    assert "secret" not in repr(first)
    assert "other" not in repr(second)
    key.write_text("sk-secret with a space")
    told = refused(write(tmp_path, text.format(f'api_key_file = "{key}"')))
    assert told == "line 4: the key has to be 1 to 512 printable ASCII characters, no space"


@given(st.text(max_size=200), st.booleans())
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str, as_json: bool) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{'json' if as_json else 'toml'}"
    path.write_bytes(text.encode(errors="replace"))
    with pytest.raises(BadEngines):
        read_engines(path)


def test_a_setting_of_the_one_engine_beside_the_file_is_refused(tmp_path: Path) -> None:
    for name in REPLACED:
        value = {"engine": "vllm", "engine_url": "http://a", "context_tokens": 2048}.get(name, "word")
        with pytest.raises(SettingsError, match=rf"HARMONIUM_{name.upper()} is for one engine"):
            load_settings(engines=str(write(tmp_path, TWO)), **{name: value})


def test_what_is_read_again_is_as_the_file_is_now_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    settings = load_settings(engines=str(path))
    assert settings.rereads
    path.write_text(TWO.replace("gpt-oss-120b", "tiny"))
    assert [each.listed.name for each in settings.reread().listed_engines] == ["gpt-oss-20b", "tiny"]
    assert [each.listed.name for each in settings.listed_engines] == ["gpt-oss-20b", "gpt-oss-120b"]
    path.write_text("")
    with pytest.raises(SettingsError, match="has to be a list of engines"):
        settings.reread()

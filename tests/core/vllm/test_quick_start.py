"""Section "With a real engine" of docs/deploy.md, run as pasted: it shows what a real vLLM and the service print."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.support.documents import blocks, read, section, shows
from tests.support.service.process import CoreProcess

pytestmark = [pytest.mark.vllm, pytest.mark.full]

ADDRESS = "http://localhost:8000"
SECONDS = 60


@pytest.fixture(scope="module")
def url(vllm_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service over the real server."""
    service = CoreProcess(tmp_path_factory.mktemp("service"), engine="vllm", engine_url=vllm_url)
    yield service.url
    service.stop()


def shown(label: str) -> tuple[str, str]:
    """The section's one block with this label that has an output, and the output."""
    found = blocks(section(read("docs/deploy.md"), "With a real engine"))
    (pair,) = [(text, after.text) for (kind, text), after in pairwise(found) if kind == label and after.label == "text"]
    return pair


def run(argv: list[str], url: str) -> str:
    """What a command prints, with the section's address replaced."""
    argv = [part.replace(ADDRESS, url) for part in argv]
    return subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="the section's shell part needs curl")
def test_its_shell_prints_what_the_section_shows(url: str) -> None:
    command, output = shown("bash")
    assert shows(output.replace("\n", ""), run(["bash", "-c", command], url))


def test_its_python_prints_what_the_section_shows(url: str) -> None:
    code, output = shown("python")
    assert run([sys.executable, "-c", code], url).rstrip("\n") == output

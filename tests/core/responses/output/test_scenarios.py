"""Each transcript in scenarios/ still comes out as it is written; see transcripts.py."""

from pathlib import Path

import pytest

from tests.support.responses.transcripts import SCENARIOS, transcript

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_transcript_comes_out_as_it_is_written(path: Path) -> None:
    written = path.read_text("utf-8")

    assert transcript(written) == written

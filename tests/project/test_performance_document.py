"""`scripts/bench document`: the verdicts of the benchmarks, in the document that has their commands."""

from pathlib import Path
from subprocess import CalledProcessError

from bench._document import DOCUMENT as PERFORMANCE
from bench._document import commands, rewrite, written

DOCUMENT = """In short:

<!-- of peers -->

| What | ours |
| --- | --- |
| creates | 1 |

## peers

```console
$ scripts/bench peers --check
```

Words.

## start

```console
$ scripts/bench start --check
```
"""


def with_verdicts(when: str, *verdicts: str) -> str:
    """The document with verdicts of `peers`."""
    return DOCUMENT.replace("peers --check\n", "".join(f"{line}\n" for line in ("peers --check", when, *verdicts)))


def test_the_verdicts_of_a_command_are_written_behind_it_and_the_table_in_front() -> None:
    assert commands(DOCUMENT) == ["peers --check", "start --check"]
    met, table = "met: a: 1 (target <= 2)", "| What | ours |\n| --- | --- |\n| creates | 2 |"
    once = written(DOCUMENT, "peers --check", f"{table}\n\n  1.0 ms\n{met}\n", "today")
    assert once == with_verdicts("today", met).replace("| creates | 1 |", "| creates | 2 |", 1)
    twice = written(once, "peers --check", "peers: all met", "tomorrow")
    assert twice == with_verdicts("tomorrow", "peers: all met").replace("| creates | 1 |", "| creates | 2 |", 1)
    assert commands(twice) == commands(DOCUMENT)


def test_the_document_is_one_that_can_be_written() -> None:
    text = PERFORMANCE.read_text()
    assert text.count("$ scripts/bench ") == len(commands(text))
    for command in commands(text):
        again = written(text, command, "met: all (target 1)\n| a | b |", "on a day")
        assert f"```console\n$ scripts/bench {command}\non a day\nmet: all (target 1)\n```\n" in again
        assert ("| a | b |\n\n## peers" in again) == command.startswith("peers")


def test_a_command_that_fails_is_told_and_the_others_are_written(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(DOCUMENT)

    def run(command: str) -> str:
        if command.startswith("peers"):
            raise CalledProcessError(2, command)
        return "start: 2 s\n"

    assert rewrite([], run, document) == ["peers --check"]
    assert "start: 2 s" in document.read_text()
    assert rewrite(["start"], lambda _: "start: 1 s", document) == []
    assert "start: 2 s" not in document.read_text()

"""`scripts/bench document`: what the benchmarks print, in the document that has their commands."""

from pathlib import Path
from subprocess import CalledProcessError, check_call

from bench._document import DOCUMENT as PERFORMANCE
from bench._document import commands, commit, rewrite, written

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


def with_output(told: str, when: str) -> str:
    """The document with what `peers` told."""
    fold = f"<details>\n<summary>{when}</summary>\n\n```text\n{told}\n```\n\n</details>\n"
    return DOCUMENT.replace("peers --check\n```\n", f"peers --check\n```\n\n{fold}")


def test_what_a_command_prints_is_written_below_it_and_the_table_in_front() -> None:
    assert commands(DOCUMENT) == ["peers --check", "start --check"]
    table = "| What | ours |\n| --- | --- |\n| creates | 2 |"
    once = written(DOCUMENT, "peers --check", f"{table}\n\nmet: a\n", "today")
    assert once == with_output(f"{table}\n\nmet: a", "today").replace("| creates | 1 |", "| creates | 2 |", 1)
    twice = written(once, "peers --check", "met: b", "tomorrow")
    assert twice == with_output("met: b", "tomorrow").replace("| creates | 1 |", "| creates | 2 |", 1)
    assert commands(twice) == commands(DOCUMENT)


def test_the_document_is_one_that_can_be_written() -> None:
    text = PERFORMANCE.read_text()
    assert text.count("$ scripts/bench ") == len(commands(text))
    for command in commands(text):
        again = written(text, command, "met: all\n| a | b |", "on a day")
        assert "<summary>on a day</summary>\n\n```text\nmet: all" in again
        assert ("| a | b |\n\n## peers" in again) == command.startswith("peers")


def test_a_command_that_fails_is_told_and_the_others_are_written(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(DOCUMENT)

    def run(command: str) -> str:
        if command.startswith("peers"):
            raise CalledProcessError(2, command)
        return "missed: a start\n"

    assert rewrite([], run, document) == ["peers --check"]
    assert "missed: a start" in document.read_text()
    assert rewrite(["start"], lambda _: "met: a start", document) == []
    assert "missed" not in document.read_text()


def test_a_commit_is_dirty_by_what_is_measured_and_not_by_what_was_written(tmp_path: Path) -> None:
    def git(*said: str) -> None:
        check_call(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *said], cwd=tmp_path)

    program, document = tmp_path / "program.py", tmp_path / "docs/performance.md"
    document.parent.mkdir()
    for each in (program, document):
        each.write_text("once\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "all of it")
    clean = commit(tmp_path)
    document.write_text("twice\n")
    assert commit(tmp_path) == clean
    program.write_text("twice\n")
    assert commit(tmp_path) == f"{clean}-dirty"

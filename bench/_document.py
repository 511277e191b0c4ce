"""docs/performance.md with the figures of now: behind each command its verdicts, and in front the table of `peers`.

    scripts/bench document [NAME ...]

Runs the commands of the document one after the other, or those of the sections that are named, and writes each one's
verdicts into it as soon as it has ended. All other text and tables stay as people wrote them. All of it takes some
hours, an hour of them `soak` and half of one `archive`, and wants a machine on which nothing else runs.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path
from platform import machine, python_version

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/performance.md"

_COMMAND = re.compile(r"^```console\n\$ scripts/bench (?P<command>[^\n]+)\n.*?^```\n", re.DOTALL | re.MULTILINE)
"""A command in the document, and its verdicts from the last time that it ran for it."""

_SHORT = re.compile(r"(?<=<!-- of peers -->\n\n)(\|[^\n]*\n)+")
"""The table in front."""


def commands(text: str) -> list[str]:
    """What the document runs, each after `scripts/bench`."""
    return [found["command"] for found in _COMMAND.finditer(text)]


def written(text: str, command: str, told: str, where: str) -> str:
    """The document with the verdicts of a command's output, below `where`: when, of what, and on which machine."""
    name = command.split()[0]
    verdicts = [line for line in told.splitlines() if line.startswith(f"{name}: ") or "(target" in line]

    def one(found: re.Match[str]) -> str:
        if found["command"] != command:
            return found[0]
        return "\n".join(["```console", f"$ scripts/bench {command}", where, *verdicts, "```\n"])

    text = _COMMAND.sub(one, text)
    rows = [line for line in told.splitlines() if line.startswith("| ")]
    if name == "peers" and rows:
        text = _SHORT.sub(lambda _: "".join(f"{row}\n" for row in rows), text)
    return text


def printed(command: str) -> str:
    """What a command prints. Without --check it only fails if it breaks: that a target is missed is part of the output.
    Raises CalledProcessError.
    """
    said = [word for word in shlex.split(command) if word != "--check"]
    done = subprocess.run(["scripts/bench", *said], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.replace(f"{ROOT}/", "")


def here() -> str:
    """When, of what, and on which machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), machine())
    return f"{datetime.now(UTC):%Y-%m-%d}, at {commit()}, on {cpu_count()} cores of {model}, Python {python_version()}"


def commit(root: Path = ROOT) -> str:
    """The commit, and `-dirty` where other files than documents were changed since: this one is, by what ran before."""

    def git(*said: str) -> str:
        return subprocess.check_output(["git", *said], cwd=root, text=True).strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return git("describe", "--always") + ("-dirty" if changed else "")


def rewrite(names: Sequence[str], run: Callable[[str], str] = printed, document: Path = DOCUMENT) -> list[str]:
    """Run the commands of these benchmarks, of all where none is named, and write the document; those that failed."""
    failed: list[str] = []
    for command in commands(document.read_text()):
        if names and command.split()[0] not in names:
            continue
        print(f"scripts/bench {command}", file=sys.stderr, flush=True)
        try:
            told = run(command)
        except subprocess.CalledProcessError:
            failed.append(command)
            continue
        document.write_text(written(document.read_text(), command, told, here()))
    return failed


def main() -> int:
    """0, or 1 where a command failed."""
    parser = argparse.ArgumentParser(description="docs/performance.md with the figures of now")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these benchmarks")
    options = parser.parse_args()
    known = {command.split()[0] for command in commands(DOCUMENT.read_text())}
    if unknown := set(options.names) - known:
        parser.error(f"the document has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
    failed = rewrite(options.names)
    for command in failed:
        print(f"failed: scripts/bench {command}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

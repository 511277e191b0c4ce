"""Guards of the code, broken one after the other to see that a test falls for each: `scripts/test --mutants [GUARD…]`.

Each is broken in a copy of the tree, where the tests that hold it run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

SECONDS = 600
"""How long tests may take."""

FAILED = 1
"""pytest's exit status where tests fail; any other one says that they could not run."""


class Mutant(NamedTuple):
    """A guard: a text in a file, which is there once, another one that lets all through, and the tests that hold it."""

    guard: str
    file: str
    before: str
    after: str
    tests: str


JOBS, LIMITS, FORGET = (
    "tests/store/jobs/test_jobs.py",
    "tests/features/tenants/test_stored_limits.py",
    "tests/store/history/test_forget.py",
)
AUTH, ERRORS, SEALING = (
    "tests/core/web/test_auth.py",
    "tests/core/web/test_errors.py",
    "tests/core/responses/test_sealing.py",
)
ADDRESSES, HISTORIES = "tests/features/webhooks/test_addresses.py", "tests/features/chats/test_histories.py"

MUTANTS = (
    Mutant("fence", "store/redis/lua/journal.lua", "if holder ~= token then", "if false then", JOBS),
    Mutant("lease", "store/redis/lua/claim.lua", "leases, '-inf', now_ms,", "leases, '-inf', '+inf',", JOBS),
    Mutant("pin", "store/redis/lua/pins.lua", "'(' .. now_ms, '+inf') > 0", "'(' .. now_ms, '+inf') < 0", FORGET),
    Mutant("tombstone", "store/redis/lua/chain.lua", "if not root or deleted or", "if not root or", FORGET),
    Mutant("limit", "store/redis/lua/admit.lua", "if worst then", "if false then", LIMITS),
    Mutant("budget", "store/redis/lua/limits.lua", "math.max(0, used + amount)", "math.max(0, used)", LIMITS),
    Mutant("tenant", "service/entrance.py", "        return Entry(tenant)", '        return Entry("acme")', AUTH),
    Mutant("header", "service/web/auth.py", "names.count(name) > 1", "False", ERRORS),
    Mutant("seal", "service/responses/seal.py", "_derive(tenant,", '_derive("",', SEALING),
    Mutant("speaker", "service/features/chats/recognise.py", "speaker.key, *speaker.names", '""', HISTORIES),
    Mutant("twin", "store/redis/lua/said.lua", "call('HSETNX', index, name, digits) == 0", "false", HISTORIES),
    Mutant(
        "fork",
        "store/redis/lua/recognise.lua",
        "(forks == '1' or not has_next(found, root, children, continued))",
        "true",
        HISTORIES,
    ),
    Mutant("claim", "service/responses/parent.py", "if seen.claims < place else", "if seen else", HISTORIES),
    Mutant("address", "service/ssrf.py", "not (may_reach or is_public)(address)", "not address", ADDRESSES),
)


def copy(folder: Path) -> None:
    """Copy the tree as it is, but for what git ignores, with the times of its files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def fallen(folder: Path, *tests: str) -> list[str]:
    """The first test that falls in a copy of the tree, if any. Raises RuntimeError where tests can't run."""
    # before what is installed, of which this checkout is a part
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    options = ("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-m", "not full")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode not in (0, FAILED):
        raise RuntimeError(done.stdout + done.stderr)
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]


def fallen_without(folder: Path, mutant: Mutant, number: int) -> list[str]:
    """The first test that falls while a guard is broken."""
    path = folder / mutant.file
    text = path.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.file} has {mutant.before!r} not once"
    path.write_text(text.replace(mutant.before, mutant.after))
    os.utime(path, (number, number))  # so that nothing is taken for it that was compiled of another text of its size
    try:
        return fallen(folder, mutant.tests)
    finally:
        shutil.copy2(ROOT / mutant.file, path)


def main(*guards: str) -> int:
    """Break guards and show what falls; 1 where nothing does for one of them, or something falls without."""
    chosen = [each for each in MUTANTS if not guards or each.guard in guards]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        if before := fallen(folder, *dict.fromkeys(each.tests for each in chosen)):
            print(f"no guard is broken, and yet {before[0]} falls")
            return 1
        status = 0
        for number, mutant in enumerate(chosen, 1):
            fell = fallen_without(folder, mutant, number)
            print(f"{mutant.guard:10} {mutant.file:30} {', '.join(fell) or 'NO TEST FALLS'}", flush=True)
            status = status if fell else 1
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

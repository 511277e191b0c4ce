"""What Python in a sandbox costs: the first cell, the next one, memory of a session, and many sessions at once.

    scripts/bench sandbox [--check] [--sessions N]

A sandbox of this process, its proof passed; each session is forked from a process that has imported NumPy, pandas and
Matplotlib. *First*: from `open` to the Cell of `1 + 1`. *Next*: one more cell of the same session. *At once*: N
sessions are opened together, each runs one cell, then all run one more. A session's memory is what it has by itself
(its private pages) after its cells, beside the process that it is a copy of.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from service.sandbox.local import LocalSandbox, Places
from service.sandbox.port import Limits

TENANT = "bench"
FIRSTS, NEXTS = 40, 300
WARM_UPS = 3

MS, MIB = 1e3, 1024.0
TARGETS = {"first": 10.0, "next": 2.0, "MiB a session": 15.0}
"""The most milliseconds at the median, and the most memory."""


def private_mib(pid: int) -> float:
    """The memory of a process that no other has."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_")) / MIB


def shown(name: str, seconds: list[float]) -> float:
    """Print the median and the worst, in milliseconds; the median."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    print(f"{name:<28}{median(ordered) * MS:8.2f}{p99 * MS:8.2f}{ordered[0] * MS:8.2f}")
    return median(ordered) * MS


async def timed(sandbox: LocalSandbox, name: str, call: str, *, opening: bool) -> float:
    """How long a cell took, and its session before it where that is to be opened."""
    begun = time.perf_counter()
    if opening:
        await sandbox.open(name, TENANT, Limits())
    cell = await sandbox.run(name, call, "1 + 1")
    taken = time.perf_counter() - begun
    assert cell.logs == "2\n", cell
    return taken


async def alone(sandbox: LocalSandbox) -> dict[str, float]:
    """One session after the other, then one cell after the other."""
    firsts: list[float] = []
    for n in range(FIRSTS + WARM_UPS):
        firsts.append(await timed(sandbox, f"first-{n}", "call", opening=True))
        await sandbox.close(f"first-{n}")
    await sandbox.open("one", TENANT, Limits())
    nexts = [await timed(sandbox, "one", f"call-{n}", opening=False) for n in range(NEXTS + WARM_UPS)]
    memory = private_mib(sandbox.session("one").pid)
    await sandbox.close("one")
    return {
        "first": shown("first cell", firsts[WARM_UPS:]),
        "next": shown("next cell", nexts[WARM_UPS:]),
        "MiB a session": memory,
    }


async def together(sandbox: LocalSandbox, sessions: int) -> None:
    """Many at once."""
    names = [f"many-{n}" for n in range(sessions)]
    shown(
        f"first cell, {sessions} at once", await asyncio.gather(*(timed(sandbox, n, "1", opening=True) for n in names))
    )
    shown(
        f"next cell, {sessions} at once", await asyncio.gather(*(timed(sandbox, n, "2", opening=False) for n in names))
    )
    each = [private_mib(sandbox.session(name).pid) for name in names]
    print(f"memory of {sessions} sessions: {sum(each):,.0f} MiB, {median(each):.1f} each")
    begun = time.perf_counter()
    await asyncio.gather(*(sandbox.close(name) for name in names))
    print(f"closed within {(time.perf_counter() - begun) * MS:.0f} ms")


async def measured(folder: Path, sessions: int) -> dict[str, float]:
    """All figures, of a sandbox whose folders lie in `folder`."""
    places = max(sessions, 8)
    sandbox = LocalSandbox(Places(places, places), Limits(), folder)
    begun = time.perf_counter()
    await sandbox.start()
    print(f"ready, with its proof, after {time.perf_counter() - begun:.2f} s")
    try:
        print(f"{'milliseconds':<28}{'median':>8}{'p99':>8}{'least':>8}")
        found = await alone(sandbox)
        print(f"memory of a session: {found['MiB a session']:.1f} MiB")
        await together(sandbox, sessions)
    finally:
        await sandbox.aclose()
    return found


def main() -> None:
    """Measure, and compare with the targets."""
    parser = argparse.ArgumentParser(prog="scripts/bench sandbox", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    parser.add_argument("--sessions", type=int, default=100, help="how many at once (default %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harmonium-bench-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        found = asyncio.run(measured(folder, options.sessions))
    missed = {name: most for name, most in TARGETS.items() if found[name] > most}
    for name, most in missed.items():
        print(f"{name}: {found[name]:.2f}, not {most:g} or less")
    if options.check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()

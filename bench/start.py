"""How long a start takes, and what memory it comes to: of a service that was there before, and from `git clone` to the
first answer.

    scripts/bench start [--check] [--starts N] [--fresh]

Starts of `harmonium serve` on a data folder that has responses, each until `/ready` says that it serves. Then what a
process holds in memory before a server over HTTP, at rest and with a thousand streams (_streams.py). With --fresh also
a clone of this checkout's commit for a user who has nothing yet, no package in any cache: `git clone`, `scripts/serve`,
and README's request, once where there is only pip, and once with uv, which is taken from this environment. That
downloads 75 MB each time.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench._harness import HOST, cpu_seconds, free_port
from bench._streams import STREAMS, held

ROOT = Path(__file__).parent.parent
READY_TARGET, CPU_TARGET = 1.0, 0.8
"""The most seconds of a start, and the most of CPU in them."""

REST_TARGET, STREAMS_TARGET = 190, 260
"""The most MB of a process at rest, and of one with STREAMS streams."""

FRESH_TARGETS = {"pip": 30.0, "uv": 20.0}
"""The most seconds, with each installer."""

REQUEST = {"model": "gpt-oss-20b", "input": "Count to 3.", "reasoning": {"effort": "low"}}
RESPONSES = 100
"""What the data folder has."""

MOST_SECONDS = 600.0
POLL_SECONDS = 0.005
STOP_SECONDS = 30.0


def environment(home: Path, **more: str) -> dict[str, str]:
    """That of a user whose home this is, who has set nothing of harmonium or Python."""
    own = ("HARMONIUM_", "PYTHON", "VIRTUAL_ENV", "XDG_", "UV_CACHE")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)} | {"HOME": str(home)} | more


@contextmanager
def serving(command: Sequence[str], env: dict[str, str], folder: Path) -> Generator[tuple[int, int]]:
    """A service that is ready, with its port and its process; what it says goes to a file."""
    port = free_port()
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen([*command, "--port", str(port)], env=env, stdout=log, stderr=log)
        try:
            _wait(process, port, log.name)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)


def _wait(process: "subprocess.Popen[bytes]", port: int, log: str) -> None:
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"it ended with status {process.returncode}:\n{Path(log).read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(POLL_SECONDS)
    sys.exit(f"it is not ready after {MOST_SECONDS:g} s")


def ask(port: int) -> str:
    """The text of an answer to README's request."""
    request = urllib.request.Request(
        f"http://{HOST}:{port}/v1/responses",
        json.dumps(REQUEST).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["output"][-1]["content"][0]["text"])


def rss(process: int) -> float:
    """The memory of a process, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def again(starts: int, folder: Path) -> list[tuple[float, float, float]]:
    """Seconds until it is ready, its CPU in them, and the MB that it has then, of each start but the first, which fills
    the folder.
    """
    command = [sys.executable, "-m", "service", "serve", "--data-dir", str(folder / "data")]
    env = environment(folder, PYTHONPATH=str(ROOT))
    with serving(command, env, folder) as (port, _):
        for _ in range(RESPONSES):
            ask(port)
    found: list[tuple[float, float, float]] = []
    for _ in range(starts):
        begun = time.perf_counter()
        with serving(command, env, folder) as (_, process):
            found.append((time.perf_counter() - begun, cpu_seconds(process), rss(process)))
    return found


def fresh(installer: str, folder: Path) -> tuple[float, float, float]:
    """Seconds of the clone, seconds until the first answer, and the MB of the environment."""
    home, programs = folder / "home", folder / "programs"
    home.mkdir()
    programs.mkdir()
    places = [each for each in os.environ["PATH"].split(":") if not Path(each, "uv").exists()]
    if installer == "uv":
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        (programs / "uv").symlink_to(uv or sys.exit("there is no uv; run scripts/setup dev"))
    env = environment(home, PATH=":".join([str(programs), *places]))
    begun = time.perf_counter()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], env=env, check=True)
    cloned = time.perf_counter() - begun
    with serving([str(folder / "clone/scripts/serve")], env, folder) as (port, _):
        assert ask(port) == "1\n2\n3"
        took = time.perf_counter() - begun
        files = [each for each in (folder / "clone/.venv").rglob("*") if each.is_file() and not each.is_symlink()]
        return cloned, took, sum(each.stat().st_size for each in files) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--fresh", action="store_true", help="from git clone too, which downloads")
    arguments = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as folder:
        found = again(arguments.starts, Path(folder))
    seconds, cpu, held_mb = zip(*found, strict=True)
    print(f"ready again, s: {' '.join(f'{each:.2f}' for each in seconds)}; {median(held_mb):.0f} MB")
    if arguments.fresh:
        for installer, target in FRESH_TARGETS.items():
            with tempfile.TemporaryDirectory() as folder:
                cloned, took, size = fresh(installer, Path(folder))
            print(
                f"from git clone to the first answer with {installer}: {took:.1f} s (target at most {target:g}), ",
                end="",
            )
            print(f"of it {cloned:.1f} for the clone; {size:.0f} MB in .venv")
            met = met and took <= target
    memory = asyncio.run(held())
    print(f"at rest: {memory.at_rest:.0f} MB (target at most {REST_TARGET})")
    print(f"with {STREAMS:,} streams: {memory.streaming:.0f} MB (target at most {STREAMS_TARGET})", end="")
    print(f"; {memory.after:.0f} MB when they have ended")
    met = met and memory.at_rest <= REST_TARGET and memory.streaming <= STREAMS_TARGET
    print(f"start: {median(seconds):.2f} s (target at most {READY_TARGET:g})")
    print(f"start: {median(cpu):.2f} s of CPU (target at most {CPU_TARGET:g})")
    if arguments.check and not (met and median(seconds) <= READY_TARGET and median(cpu) <= CPU_TARGET):
        sys.exit(1)


if __name__ == "__main__":
    main()

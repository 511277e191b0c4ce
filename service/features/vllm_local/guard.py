"""The guard of vLLM's core: a small process that ends the core once we are gone, however that happened.

A core doesn't watch its parent. Left alone it would keep the model's memory, and no other would find room. The embedded
store has the kernel tell it; a core would have to ask for that itself, and that is vLLM's code.

This file is both sides: a class for us, and, run as a script, the guard. Import only Python's own library here.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import IO, cast

PATIENCE_SECONDS = 15.0
"""The time that vLLM's core gets to end by itself."""


class EngineGuard:
    """A guard, from its making to `dismiss`. Linux alone can have one; elsewhere this does nothing.

    `patience_seconds` is the time that a core gets to end by itself, before it is killed.
    """

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._guarded: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        if hasattr(os, "pidfd_open"):
            # a session of its own: signals from a terminal must not reach it
            command = [sys.executable, "-I", "-S", __file__, str(patience_seconds)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def watch(self, pids: Iterable[int]) -> None:
        """Adds these cores, if it doesn't know them yet. They have to be alive."""
        for pid in pids:
            if self._process is not None and pid not in self._guarded:
                self._guarded.add(pid)
                words = cast(IO[bytes], self._process.stdin)
                words.write(b"%d\n" % pid)
                words.flush()

    def dismiss(self) -> None:
        """Ends the guard, as nothing is left to guard."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def main() -> None:
    """Note each core that is named, until the input ends; then end them."""
    cores: list[int] = []
    for pid in sys.stdin:
        try:
            cores.append(os.pidfd_open(int(pid)))  # unlike a number, this never comes to mean another process
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + float(sys.argv[1])
    for core in cores:
        _send(core, signal.SIGTERM)
    for core in cores:
        ended, _, _ = select.select([core], [], [], max(0.0, deadline - time.monotonic()))
        if not ended:
            _send(core, signal.SIGKILL)


def _send(core: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(core, number)
    except ProcessLookupError:
        return  # it ended by itself


if __name__ == "__main__":
    main()

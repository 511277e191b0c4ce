"""`harmonium` at a terminal: a real process whose terminal is ours, in which keys can be pressed.

Everything goes through the terminal, so Ctrl-C reaches whatever the kernel sends it to. Never send a signal instead.
"""

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from service.settings.sources import PREFIX, variable
from tests.support import ROOT
from tests.support.service.process import HARMONIUM
from tests.support.waiting import wait_until

CTRL_C = b"\x03"
COLUMNS, ROWS = 100, 40
START_SECONDS = 30.0

OTHERS = {"NO_COLOR", "COLUMNS", "LINES"}
"""Variables that would speak of another terminal."""

_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A command and the terminal that it runs in."""

    def __init__(self, folder: Path, program: Sequence[str], *command: str, **settings: object) -> None:
        """Starts it in `folder`; `settings` are those of service/settings/."""
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX) and name not in OTHERS}
        own = {variable(name): str(value) for name, value in settings.items()}
        self.process = subprocess.Popen(
            [*program, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=kept | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | own,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._shown = b""
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        """All that was shown, colours included."""
        return self._shown.decode()

    @property
    def text(self) -> str:
        """All that was shown, as a person reads it."""
        return _STYLES.sub("", self.raw).replace("\r\n", "\n")

    def shows(self, text: str) -> None:
        wait_until(lambda: self.text, START_SECONDS, f"no {text!r}", wanted=lambda shown: text in shown)

    def catches(self, number: int) -> bool:
        """Whether the process has a handler for a signal."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)

    def has_loaded(self, library: str) -> bool:
        """Whether a file of such a name is in the process's memory."""
        return library in Path(f"/proc/{self.process.pid}/maps").read_text()

    def reads_keys(self) -> bool:
        """Whether the process is in a system call on its stdin. Python sees a Ctrl-C that comes just before the call
        only with the next key.
        """
        return Path(f"/proc/{self.process.pid}/syscall").read_text().split()[1:2] == ["0x0"]

    def children(self) -> list[int]:
        """The processes that it has started."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float) -> tuple[int, float]:
        """Its exit status, and how many seconds passed until then."""
        begun = time.monotonic()
        status = self.process.wait(seconds)
        self._reader.join(seconds)
        return status, time.monotonic() - begun

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # nobody has the other side open any more
                return
            self._shown += piece


@contextmanager
def at_a_terminal(
    folder: Path, *command: str, program: Sequence[str] = (str(HARMONIUM),), **settings: object
) -> Generator[Terminal]:
    """A command at a terminal, which is certainly gone afterwards."""
    terminal = Terminal(folder, program, *command, **settings)
    try:
        yield terminal
    finally:
        terminal.close()

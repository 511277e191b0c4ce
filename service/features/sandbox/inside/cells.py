"""Runs cells of Python one after the other in one namespace, as a notebook does, and returns their output.

It talks to the service over one file: frames of a length and JSON, a cell in, its result out, with the bytes of its
figures behind. The code that runs here can do whatever it likes with this module, this file and its own process. Nobody
believes its frames (`session` on the other side bounds them), and only its own session is lost.
"""

import ast
import contextlib
import io
import json
import linecache
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, BinaryIO, cast

LENGTH = struct.Struct(">I")
"""The prefix of each frame: its length in bytes."""

MAX_IMAGES = 4
MAX_IMAGE_BYTES = 2 << 20
"""The most figures that one cell may show; words stand for the rest."""

SOURCES_KEPT = 64
"""Cells whose lines later tracebacks can show."""


class PrintedText(io.TextIOBase):
    """The printed text of a cell: of a long text the beginning and the end, as much of both."""

    def __init__(self, chars: int) -> None:
        self._half = max(chars // 2, 1)
        self._head = ""
        self._tail: list[str] = []
        self._tail_chars = 0
        self._chars = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._chars += len(text)
        room = self._half - len(self._head)
        self._head += text[:room]
        if rest := text[room:]:
            self._tail.append(rest[-self._half :])
            self._tail_chars += len(self._tail[-1])
        if self._tail_chars > 2 * self._half:
            self._tail = ["".join(self._tail)[-self._half :]]
            self._tail_chars = self._half
        return len(text)

    def text(self) -> str:
        """All of it, or both ends with how much lies between them."""
        tail = "".join(self._tail)[-self._half :]
        cut = self._chars - len(self._head) - len(tail)
        middle = f"\n… {cut:,} characters left out …\n" if cut else ""
        return self._head + middle + tail


class Interrupts:
    """Delivers a SIGINT to the cell that runs; between cells to the next, as it may be sent before its cell has begun.
    A SIGINT whose cell had ended just before is forgotten, when the service says so.
    """

    def __init__(self) -> None:
        self._of_cells: Any = signal.default_int_handler
        """The cells' handler of SIGINT. They may change it."""
        self._noted = False
        signal.signal(signal.SIGINT, self._of_cells)  # a program that a shell runs in the background has it ignored
        self._keep_out()

    def attempt(self, action: Callable[[], None]) -> BaseException | None:
        """Run an action that may be interrupted, and return the exception that it raised."""
        raised: BaseException | None = None
        try:
            try:
                self._let_in()
                action()
            finally:
                self._keep_out()
        except BaseException as error:
            raised = error
        self._keep_out()  # where one came when the first did
        return raised

    def forget(self) -> None:
        """Forget a noted SIGINT: its cell has ended."""
        self._noted = False

    def _let_in(self) -> None:
        signal.signal(signal.SIGINT, self._of_cells)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if self._noted:
            self._noted = False
            signal.raise_signal(signal.SIGINT)

    def _keep_out(self) -> None:
        while signal.getsignal(signal.SIGINT) != self._note:
            with contextlib.suppress(KeyboardInterrupt):
                self._of_cells = signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True


class Cells:
    """The cells of one session: the variables that they share, and how many there were."""

    def __init__(self, output_chars: int) -> None:
        self._chars = output_chars
        self._space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
        self._count = 0
        self.interrupts = Interrupts()

    def run(self, code: str) -> tuple[dict[str, object], list[bytes]]:
        """Run a cell to its end, or until it is interrupted. Returns its output, whether it raised, and its figures."""
        shown, images = PrintedText(self._chars), list[bytes]()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            error = self.interrupts.attempt(lambda: self._execute(code))
            error = error or self.interrupts.attempt(lambda: _show_figures(images, shown))
            if error is not None:
                _tell(error, shown)
        sizes = [len(each) for each in images]
        return {"raised": error is not None, "logs": _sound(shown.text()), "images": sizes}, images

    def _execute(self, code: str) -> None:
        """The code, and the value of its last expression as Python's prompt shows it."""
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        linecache.cache.pop(f"<cell {self._count - SOURCES_KEPT}>", None)
        tree = ast.parse(code, name)
        last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(cast(ast.Expr, tree.body.pop()).value)
        exec(compile(tree, name, "exec"), self._space)
        if last is not None:
            value = eval(compile(last, name, "eval"), self._space)
            if value is not None:
                self._space["_"] = value
                sys.stdout.write(f"{value!r}\n")


def _tell(error: BaseException, shown: PrintedText) -> None:
    """The traceback from the cell on. An exception may be of the cell's own making, and fail to tell of itself."""
    place = error.__traceback__
    while place is not None and not place.tb_frame.f_code.co_filename.startswith("<cell "):
        place = place.tb_next
    try:
        traceback.print_exception(type(error), error, place, file=shown)
    except BaseException as another:
        shown.write(f"{type(error).__name__}, which can't be shown: {type(another).__name__}\n")


def _show_figures(images: list[bytes], shown: PrintedText) -> None:
    """The open figures of matplotlib, if it is there, as PNG. They are closed."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    numbers = pyplot.get_fignums()
    for number in numbers[:MAX_IMAGES]:
        made = io.BytesIO()
        pyplot.figure(number).savefig(made, format="png")
        if len(made.getvalue()) > MAX_IMAGE_BYTES:
            shown.write(f"Figure {number} is too large to be shown: more than {MAX_IMAGE_BYTES >> 20} MiB as PNG\n")
        else:
            images.append(made.getvalue())
    if len(numbers) > MAX_IMAGES:
        shown.write(f"{len(numbers) - MAX_IMAGES} more figures are not shown: a cell shows {MAX_IMAGES}\n")
    pyplot.close("all")


def _sound(text: str) -> str:
    """A text that UTF-8 can encode: half a surrogate pair is replaced."""
    return text.encode("utf-8", "replace").decode()


def serve(channel: int, output_chars: int) -> None:
    """Run the cells that come over `channel` until it ends; a message without one says that no interrupt is to come."""
    cells = Cells(output_chars)
    send(channel, {"ready": True})
    with open(channel, "rb", closefd=False) as asked:
        while (request := receive(asked)) is not None:
            if "code" in request:
                send(channel, *cells.run(request["code"]))
            else:
                cells.interrupts.forget()
                send(channel, {"ready": True})


def send(channel: int, message: dict[str, object], behind: list[bytes] | None = None) -> None:
    """Send one frame, and the bytes behind it."""
    body = json.dumps(message).encode()
    waiting = memoryview(b"".join((LENGTH.pack(len(body)), body, *(behind or ()))))
    while waiting:
        waiting = waiting[os.write(channel, waiting) :]


def receive(channel: BinaryIO) -> dict[str, Any] | None:
    """The next frame; None at the end. It comes from the service, which bounds what it sends."""
    head = channel.read(LENGTH.size)
    return json.loads(channel.read(*LENGTH.unpack(head))) if head else None

"""Structured logs: one line an event, for people or as JSON, written to stderr by a thread of its own.

An event is a fixed message and fields: `event(logger, logging.INFO, "response completed", tokens=64, ms=12)`.
The message says what happened and the fields say to what, so that lines can be searched and counted. Never
log what users wrote, what a model answered, or a key: ids, counts, sizes, times and names belong here.

Nothing here may stop the event loop. Lines wait in a bounded queue while stderr is slow; when it is full
they are dropped, and a line says how many. A value can't break out of its line: newlines,
control characters and everything beyond ASCII are escaped.
"""

import json
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from time import monotonic
from typing import Literal, TextIO, cast

QUEUE_LINES = 4096
"""Lines that wait for a slow stderr: a MB of ordinary ones, 32 MB of the longest."""

MAX_VALUE_CHARS = 8192
"""The longest value that a line shows; a traceback fits, a request body doesn't."""

GATHER_SECONDS = 0.01
"""How long lines gather before they are written together."""

CLOSE_SECONDS = 2.0
"""How long a process that ends waits for its last lines to be written."""

Format = Literal["text", "json"]
Value = str | int | float | bool | None

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request that is being served; set by the middleware, added to each line."""

logger = logging.getLogger(__name__)

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")


def event(logger: logging.Logger, level: int, message: str, /, **fields: Value) -> None:
    """Log `message`, a fixed text, with `fields`. Units go in names: `ms`, `bytes`, `tokens`."""
    if logger.isEnabledFor(level):  # Logger.log would look for the line of code that calls it, which no line here tells
        logger.handle(_record(logger, level, message, fields))


def _record(logger: logging.Logger, level: int, message: str, fields: Mapping[str, Value]) -> logging.LogRecord:
    return logger.makeRecord(logger.name, level, "", 0, message, (), None, extra={"fields": fields})


def configure(level: str, form: Format | logging.Formatter, stream: TextIO | None = None) -> Callable[[], None]:
    """Send everything that this process logs, warnings included, to `stream` (stderr).

    `level` is the name of the least that is logged; what uvicorn tells of its own doings is for `debug`. Called once
    a process; the result, when called, writes what still waits, for at most CLOSE_SECONDS, and takes the handler and
    the level away again.
    """
    handler = QueuedHandler(stream or sys.stderr)
    formatter = form if isinstance(form, logging.Formatter) else _FORMATTERS[form]()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    before = root.level
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # no line tells them
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = name != "uvicorn.access"  # requests are logged once, by the service
    logging.getLogger("uvicorn").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)

    def close() -> None:
        root.removeHandler(handler)
        root.setLevel(before)
        logging.captureWarnings(False)
        handler.close()

    return close


class TextFormatter(logging.Formatter):
    """`2026-11-20T08:41:00.123Z INFO  response completed response_id=… ms=12`: for people and grep."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f" {_known(name)}={log_value(value)}" for name, value in fields_of(self, record).items()]
        return f"{_time(record)} {record.levelname:<7} {_known(record.getMessage())}{''.join(fields)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Value] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_VALUE_CHARS],
        }
        fields = {name: value for name, value in fields_of(self, record).items() if name not in line}
        return json.dumps(line | fields, default=str)


_FORMATTERS: dict[Format, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


class QueuedHandler(logging.Handler):
    """Formats a record where it is logged and writes the line from a thread, so that callers never wait.

    The thread lets lines gather for a moment: to wake it for each takes a busy process longer than to write them.
    """

    def __init__(self, stream: TextIO, lines: int = QUEUE_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._most = lines
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._writer = threading.Thread(target=self._write, name="log writer", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # a line that can't be formatted is reported by logging's own rule, and nothing else fails
            self.handleError(record)
            return
        if self._lines.qsize() < self._most:  # logging calls this under the handler's lock
            self._lines.put(line)
        else:
            self._dropped += 1

    def close(self) -> None:
        if self._writer.is_alive():
            self._lines.put(None)
            self._writer.join(CLOSE_SECONDS)
        super().close()

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # stderr is closed: nothing can be logged, and serving goes on
            while self._write_some():
                pass

    def _write_some(self) -> bool:
        """Write what waits, once there is something; whether more may come."""
        lines = [self._lines.get()]
        if lines[0] is not None:
            time.sleep(GATHER_SECONDS)
        lines += [self._lines.get() for _ in range(self._lines.qsize())]
        self._stream.write("".join(f"{line}\n" for line in lines if line is not None))
        self._write_loss()
        self._stream.flush()
        return None not in lines

    def _write_loss(self) -> None:
        self.acquire()  # `emit` counts under this lock
        dropped, self._dropped = self._dropped, 0
        self.release()
        if dropped:
            record = _record(logger, logging.WARNING, "log lines dropped", {"dropped_lines": dropped})
            self._stream.write(self.format(record) + "\n")


def fields_of(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Value]:
    """The fields of `record`, then the request it belongs to, then the traceback of what was raised."""
    given = record.__dict__.get("fields")
    fields = dict(cast("Mapping[str, Value]", given)) if isinstance(given, Mapping) else {}
    if (current := request_id.get()) is not None:
        fields.setdefault("request_id", current)
    if record.exc_info:
        fields["traceback"] = formatter.formatException(record.exc_info)
    return {name: _cut(value) for name, value in fields.items() if value is not None}


def _cut(value: Value) -> Value:
    if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
        return f"{value[:MAX_VALUE_CHARS]}… ({len(value)} characters)"
    return round(value, 3) if isinstance(value, float) else value


def log_value(value: Value) -> str:
    """A value as it stands after `name=`: bare where that is unambiguous, else quoted and escaped."""
    if not isinstance(value, str):
        return str(value) if isinstance(value, (int, float)) else escape(str(value))
    return value if _PLAIN.fullmatch(value) else json.dumps(value)


def escape(text: str) -> str:
    """`text` in printable ASCII, on one line."""
    return text[:MAX_VALUE_CHARS].encode("unicode_escape").decode("ascii")


_known = lru_cache(maxsize=256)(escape)
"""The names of fields and the messages of events, of which there are few."""


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}{int(record.msecs):03d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")


class Ration:
    """A limit of lines in some seconds, which counts those left out: a stranger without a key can't fill the log."""

    def __init__(self, a_second: int, now: Callable[[], float] = monotonic, *, seconds: float = 1.0) -> None:
        self._a_second = a_second
        self._now = now
        self._seconds = seconds
        self._second = -1
        self._given = self._without = 0

    def take(self) -> int | None:
        """How many went without since the last one that didn't; None where this one does."""
        second = int(self._now() / self._seconds)
        if second != self._second:
            self._second, self._given = second, 0
        if self._given >= self._a_second:
            self._without += 1
            return None
        self._given += 1
        without, self._without = self._without, 0
        return without

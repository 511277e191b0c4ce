"""The terminal's view for a person: a card when the service answers, and one short line a request.

A reader of a pipe, or of JSON, gets every field instead (service/logs.py). A line here leaves out what a person
doesn't look for, shortens ids, and fits LINE_CHARS. Never show a key here, or what users wrote.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

from service import logs
from service.build import this_build
from service.commands.arguments import many
from service.settings.core import DEFAULT_TENANT, CoreSettings
from service.settings.engines import DEMO, DEMO_MODEL, ENGINE_NAMES
from service.settings.group import display
from service.settings.sources import variable
from service.web.exchange import CREATE

LINE_CHARS = 100

ID_END = 4
"""How much of an id is shown: enough to find it among those of the last minutes."""

TENANT_CHARS = 16
LABEL_CHARS = 14

_ID = re.compile(r"\b([a-z]+_)[0-9A-Za-z]{12,}\b")
_LEVELS = {logging.WARNING: "yellow", logging.ERROR: "bold red", logging.CRITICAL: "bold red"}
_LEFT_OUT = frozenset({"request_id", "traceback"})
"""Fields that a line for a person leaves out, or shows below."""


class LinePart(NamedTuple):
    text: str
    style: str = ""


class TerminalFormatter(logging.Formatter):
    """`16:20:00 POST /v1/responses 200 7 ms 72→25 tokens resp_…7750`; of other events the message and its fields."""

    def __init__(self, console: Console) -> None:
        """A formatter in colour, where the terminal has it and the person wants it."""
        super().__init__()
        self._colors = ColorSystem.STANDARD if console.color_system and not console.no_color else None

    def format(self, record: logging.LogRecord) -> str:
        fields = logs.fields_of(self, record)
        message = record.getMessage()
        parts = [LinePart(datetime.fromtimestamp(record.created).strftime("%H:%M:%S"), "dim")]
        if message == "request" and {"method", "path", "status", "ms"} <= fields.keys():
            parts += _fitting(parts, _request(fields))
        elif message == "attempt":
            parts += _attempt(fields)
        else:
            parts += _event(record, message, fields)
        lines = [" ".join(Style.parse(part.style).render(part.text, color_system=self._colors) for part in parts)]
        lines += [f"    {logs.escape(line)}" for line in str(fields.get("traceback", "")).splitlines()]
        return "\n".join(lines)


def _request(fields: Mapping[str, logs.Value]) -> list[LinePart]:
    """The pieces about a request; the path is the second."""
    status, method = int(str(fields["status"])), str(fields["method"])
    parts = [
        LinePart("WebSocket" if method == CREATE else logs.escape(method), "bold"),
        LinePart(_short(logs.escape(str(fields["path"])))),
        LinePart(
            str(status), "green" if status < 300 else "cyan" if status < 400 else "yellow" if status < 500 else "red"
        ),
        LinePart(f"{float(str(fields['ms'])):,.0f} ms", "dim"),
    ]
    parts += _tenant(fields)
    if "input_tokens" in fields:
        made = f"→{fields['output_tokens']}" if "output_tokens" in fields else ""
        cached = f" ({fields['cached_tokens']} cached)" if fields.get("cached_tokens") else ""
        parts.append(LinePart(f"{fields['input_tokens']}{made} tokens{cached}"))
    if (status := fields.get("response_status")) not in (None, "completed"):
        parts.append(LinePart(logs.escape(str(status)), "red" if status == "failed" else "yellow"))
    if "broke_off" in fields:
        parts.append(LinePart("broken off", "yellow"))
    parts += [
        LinePart(logs.escape(str(fields[name])), "yellow") for name in ("code", "param", "client") if name in fields
    ]
    if "response_id" in fields:
        parts.append(LinePart(_short(logs.escape(str(fields["response_id"]))), "dim"))
    return parts


def _attempt(fields: Mapping[str, logs.Value]) -> list[LinePart]:
    """The pieces about a worker's attempt at a background response, with its status, or how the attempt ended."""
    status = str(fields.get("response_status") or fields.get("outcome"))
    style = {"completed": "green", "failed": "red"}.get(status, "yellow")
    response = LinePart(_short(logs.escape(str(fields.get("response_id")))), "dim")
    return [
        LinePart("background", "bold"),
        LinePart(logs.escape(status).replace("_", " "), style),
        *_tenant(fields),
        response,
    ]


def _tenant(fields: Mapping[str, logs.Value]) -> list[LinePart]:
    """The tenant, where it isn't the only one without a name."""
    if fields.get("tenant") in (None, DEFAULT_TENANT):
        return []
    return [LinePart(logs.escape(str(fields["tenant"])[:TENANT_CHARS]), "magenta")]


def _fitting(before: list[LinePart], parts: list[LinePart]) -> list[LinePart]:
    """The pieces with a shorter path, where the line would be too long; and then without the last ones."""
    method, path, *rest = parts
    room = LINE_CHARS - sum(len(part.text) + 1 for part in (*before, method, *rest))
    if len(path.text) > room:
        path = LinePart(f"{path.text[: max(room - 1, 11)]}…", path.style)
    kept = [method, path]
    for part in rest:
        if sum(len(each.text) + 1 for each in (*before, *kept)) + len(part.text) <= LINE_CHARS:
            kept.append(part)
    return kept


def _event(record: logging.LogRecord, message: str, fields: Mapping[str, logs.Value]) -> list[LinePart]:
    style = _LEVELS.get(record.levelno, "")
    parts = [LinePart(record.levelname, style)] if style else []
    parts.append(LinePart(logs.escape(message), style))
    return parts + [
        LinePart(f"{logs.escape(name)}={logs.log_value(value)}", "" if name == "remedy" else "dim")
        for name, value in fields.items()
        if name not in _LEFT_OUT
    ]


def _short(text: str) -> str:
    """`text` with only the ends of the ids in it."""
    return _ID.sub(lambda found: f"{found[1]}…{found[0][-ID_END:]}", text)


def card(
    settings: CoreSettings,
    url: str,
    stored: int | None,
    env_file: Path | None,
    amiss: str = "",
    beside: str = "",
    warnings: Sequence[str] = (),
) -> Text:
    """Where the service is, what answers, what it keeps and who can reach it, and a request to paste.

    `stored` is how many responses there are, None where the store doesn't say; `amiss` is why it can't serve yet,
    `beside` the URL of a vLLM server that isn't served, and `warnings` those of the start.
    """
    where = display(settings)["redis_url"] or settings.data_dir
    kept = many(stored, "response") if stored is not None else "which doesn't answer now"
    rows = {
        "not ready": amiss,
        "harmonium": f"{this_build().version} at {url}/v1",
        "engine": _engine(settings),
        "beside it": f"vLLM at {beside}, which --engine vllm serves" if beside else "",
        "conversations": f"in {where}, {kept}" if settings.store else f"are not kept: {variable('store')} is false",
        "warning": f"\n{' ' * (LABEL_CHARS + 3)}".join(warnings),
        "settings": f"also from {env_file}" if env_file else "",
        "access": _access(settings),
        "console": f"{url}/console",
        "documents": f"{url}/docs",
        "stop": "Ctrl-C",
    }
    text = Text("\n")
    for label, value in rows.items():
        if value:
            red = "bold red" if value is amiss else ""
            text.append(f"  {label:<{LABEL_CHARS}} ", red or ("bold" if label == "harmonium" else "dim"))
            warns = "no real model" in value or label in ("beside it", "warning")
            text.append(f"{value}\n", red or ("yellow" if warns else ""))
    text.append("\n  try it\n", "dim")
    return text.append(f"{_request_to_paste(settings, url)}\n", "cyan")


def _engine(settings: CoreSettings) -> str:
    if settings.engines:
        names = [each.listed.name for each in settings.listed_engines]
        return f"{', '.join(names)}, as {settings.engines} says"
    if settings.engine == DEMO:
        return f"demo, a {f'stand-in for {DEMO_MODEL}' if settings.stands_in else 'stand-in'}: no real model"
    if settings.engine == "vllm-local":
        return f"vLLM in this process, with {settings.loaded_model}"
    if settings.engine == "llama-local":
        return f"llama.cpp beside this process, with {settings.loaded_model}"
    return f"{ENGINE_NAMES[settings.engine]} at {', '.join(settings.engine_urls)}"


def _access(settings: CoreSettings) -> str:
    if not settings.has_keys:
        return f"this machine; for others {variable('api_keys')} and --host 0.0.0.0"
    keys, tenants = len(settings.api_keys), len(settings.tenants)
    given = f"with {keys} key{'' if keys == 1 else 's'} of {tenants} tenant{'' if tenants == 1 else 's'}"
    made = f", which the key in {variable('admin_key')} makes" if settings.admin_key.get_secret_value() else ""
    return ", or ".join([given] * bool(keys) + [f"with keys of projects{made}"] * settings.has_projects)


def _request_to_paste(settings: CoreSettings, url: str) -> str:
    """A request that works, on lines of their own as a terminal would break it within a header; where only the server
    knows the model's name, one that asks for it.
    """
    first = next((each.listed.name for each in settings.listed_engines), "")
    model = (
        first
        or settings.model
        or {DEMO: DEMO, "vllm-local": settings.loaded_model, "llama-local": Path(settings.loaded_model).stem}.get(
            settings.engine
        )
    )
    lines = [f"curl {url}/v1/models" if model is None else f"curl {url}/v1/responses"]
    if settings.has_keys:
        lines.append("-H 'Authorization: Bearer YOUR_KEY'")
    if model is not None:
        lines += ["-H 'Content-Type: application/json'", f"""-d '{{"model": "{model}", "input": "Count to 3."}}'"""]
    return " \\\n  ".join(lines)

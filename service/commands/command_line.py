"""The command line: `harmonium serve`, `worker`, `settings` and `--version`, and the commands of features."""

import re

from service.commands.arguments import RUN
from service.commands.options import AsJson, load, show
from service.commands.running import app
from service.process import Settings, features
from service.settings.group import display
from service.settings.sources import variable
from service.settings.urls import MASK


@app.command("settings", rich_help_panel=RUN)
def print_settings(as_json: AsJson = False) -> None:
    """Print every setting with its value and meaning: a .env file to start from. Secrets are masked."""
    shown, lines = display(load()), list[str]()
    for heading, names in Settings.by_heading().items():
        lines.append(f"# --- {heading} ---\n")
        for name in names:
            line = f"{variable(name)}={_quote(shown[name])}"
            masked = MASK in line  # then it must not be read back: the mask would become the secret
            lines.append(f"# {Settings.description(name)}\n{'# ' if masked else ''}{line}\n")
    show(shown, lines, as_json=as_json)


def _quote(value: str | int | float | bool) -> str:
    """A value as `.env` wants it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if re.fullmatch(r"[\w.,:/@%+-]*", text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


for feature in features():
    feature.commands(app)

"""All commands that open the store, side by side: their options, and how they end where there is none."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from service.commands.command_line import app

pytestmark = pytest.mark.usefixtures("own_folder")

COMMANDS = {
    "archive accept": "",
    "archive catalogue": "",
    "archive erase": "--tenant acme",
    "archive export": "--tenant acme turns.jsonl",
    "archive hold": "--tenant acme",
    "archive restore": "--into-memory",
    "archive status": "",
    "archive verify": "",
    "audit": "",
    "backup": "one.hm",
    "fsck": "",
    "keys create": "proj_x",
    "keys create-admin": "Ada",
    "keys list": "proj_x",
    "keys list-admin": "",
    "keys revoke": "proj_x key_x --yes",
    "keys revoke-admin": "key_x --yes",
    "projects archive": "proj_x --yes",
    "projects create": "Chat",
    "projects limits": "proj_x",
    "projects list": "",
    "projects models": "proj_x",
    "projects update": "proj_x --name Talk",
    "restore": "one.hm",
    "usage": "",
}
"""Their arguments."""

OTHERS = {"completion", "doctor", "sandbox", "serve", "settings", "worker"}
"""Commands that neither talk to a service nor end where there is no store."""


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of a group, and of those in it, by their words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_each_has_the_options_that_name_the_store() -> None:
    options = {name: {each.name for each in command.params} for name, command in commands(get_command(app))}
    operators = {name for name, has in options.items() if "key_env" not in has} - OTHERS
    assert operators == COMMANDS.keys()
    assert {name for name in COMMANDS if {"redis_url", "data_dir"} <= options[name]} == COMMANDS.keys()

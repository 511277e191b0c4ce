"""The help has each command, also one that a feature added and no panel names."""

from typer.testing import CliRunner

from service.commands.arguments import command_line
from service.commands.command_line import InPanels


def test_a_command_that_no_panel_names_is_in_the_help_behind_the_others() -> None:
    app = command_line(InPanels)
    for name in ("motto", "fsck", "serve"):
        app.command(name)(lambda: None)
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert -1 < shown.find("serve") < shown.find("fsck") < shown.find("motto")

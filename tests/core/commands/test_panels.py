"""The help has each command, also one that is in no panel."""

from typer.testing import CliRunner

from service.commands.arguments import KEEP, RUN, command_line
from service.commands.running import InPanels


def test_a_command_of_no_panel_is_in_the_help_behind_the_others() -> None:
    app = command_line(InPanels)
    for name, panel in (("motto", None), ("fsck", KEEP), ("serve", RUN)):
        app.command(name, rich_help_panel=panel)(lambda: None)
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert -1 < shown.find("serve") < shown.find("fsck") < shown.find("motto")

"""The calls of a response, where they can't be made."""

from service.api.tools.callee import Hosted
from service.api.tools.outcome import HostedCall
from service.responses.tools.toolbox import Toolbox, no_server
from service.settings.mcp import Connection

CALL = HostedCall("mcp_1", Hosted("maths", "add", False), "{}")


async def test_a_process_without_servers_says_so_where_another_one_planned_a_call() -> None:
    run = Toolbox({}, (), no_server, allowing="").run([Connection("maths", "https://a.example/mcp")])
    outcome = await run.call(CALL)
    await run.aclose()

    assert (outcome.status, outcome.told) == ("failed", "Error: This process may ask no server, 'maths' included.")


async def test_a_server_that_the_operator_took_away_meanwhile_fails_the_call() -> None:
    outcome = await Toolbox({}, (), no_server, allowing="").run().call(CALL)

    assert "no server 'maths' any more" in outcome.told

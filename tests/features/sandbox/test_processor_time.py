"""The bound of a session's processor time, which runs alone: a session gives way to all else on a machine."""

from msgspec.structs import replace

from service.features.sandbox.port import SessionLimits
from tests.support.sandbox.sandboxes import MOST, PLACES, TENANT, folder_for_all, local


async def test_processor_time_has_a_bound_of_its_own() -> None:
    with folder_for_all() as base:
        sandbox = local(base, PLACES, replace(MOST, seconds=100))
        await sandbox.start()
        await sandbox.open("busy", TENANT, SessionLimits(seconds=100, cpu_seconds=1))
        lost = await sandbox.run("busy", "call", "while True: pass")
        await sandbox.aclose()
    assert lost.ended == "lost"
    assert "it took more processor time than it may" in lost.logs

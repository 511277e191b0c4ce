"""Starts a sandbox in a process of its own, and prints what came of it as JSON: `python -m … FOLDER [as-user]`.

As a user: root becomes nobody first, in a mount namespace where nobody can read this Python, too.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from service.sandbox.inside import mounts
from service.sandbox.inside.zygote import python_folders
from service.sandbox.port import Unusable
from tests.support import ROOT
from tests.support.sandbox.sandboxes import MOST, TENANT, local

NOBODY = 65_534
CODE = "import os\nopen('x', 'w').write(str(6 * 7))\nos.getuid(), open('x').read()"


def become_nobody(base: Path) -> None:
    """Give up being root."""
    os.chown(base, NOBODY, NOBODY)
    needed = [*python_folders(), str(Path(sys.base_prefix, "bin")), str(ROOT)]
    mounts.view(needed)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


async def tried(base: Path) -> dict[str, object]:
    """What a session says, or why there is none."""
    sandbox = local(base)
    try:
        await sandbox.start()
        folder = await sandbox.open("one", TENANT, MOST)
        cell = await sandbox.run("one", "call", CODE)
        return {"folder": folder, "ended": cell.ended, "logs": cell.logs, "files": cell.files}
    except Unusable as error:
        return {"unusable": str(error)}
    finally:
        await sandbox.aclose()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if "as-user" in sys.argv[2:]:
        become_nobody(place)
    print(json.dumps(asyncio.run(tried(place))))

"""Puts the scripts together of their files and of those that they share, as the server gets them.

    python -m tests.support.lua.write

They are in store/redis/lua/composed/. A test says where one is no longer what its files say.
"""

from typing import Any

from store.redis import scripts
from store.redis.scripts import Script, lua
from tests.support import ROOT
from tests.support.lua.composing import composed

FOLDER = ROOT / "store" / "redis" / "lua" / "composed"


def source(script: Script[Any, Any]) -> str:
    """A script as its files say."""
    given = script.given
    bound = "; ".join(f"local {name} = {value}" for name, value in given.items())
    return "\n".join([script.flags, bound, composed(map(lua, script.includes), lua(script.name), given)])


def main() -> None:
    """Write all of them, and remove what is none."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    for script in scripts.ALL:
        (FOLDER / f"{script.name}.lua").write_text(source(script))


if __name__ == "__main__":
    main()

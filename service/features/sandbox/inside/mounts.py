"""A view of the file system for all sessions, where the kernel lets us have one: /mnt/data, and a Python for everybody.

Models know their files as /mnt/data, and each session has another folder. A link at that path is enough: it leads to
the file of number FOLDER of the process that follows it. An image can have the link. Else it is laid into a mount
namespace, which root may make, and on some systems every user. Where neither is possible sessions are told the
folder's own path.
"""

import os
import stat
from pathlib import Path

from service.features.sandbox.inside.confine import LIBC, check

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18

FOLDER = 100
"""The number of the file that is a session's folder."""

LINK = Path("/mnt/data")
TARGET = f"/proc/self/fd/{FOLDER}"


def is_linked() -> bool:
    """Whether /mnt/data leads to the session's folder."""
    try:
        return os.readlink(LINK) == TARGET
    except OSError:
        return False


def view(needed: list[str]) -> bool:
    """Make the view that sessions share, in which they reach the folders `needed`. Returns whether it has /mnt/data.

    It changes nothing for other processes. A part that can't be made is left out: the confinement doesn't rest on it.
    """
    hidden = _closed_to_others(needed) if os.getuid() == 0 else None
    if is_linked() and hidden is None:
        return True
    try:
        _own_namespace()
        if hidden is not None:
            _open_up(hidden, needed)
        if (
            not is_linked()
            and LINK.parent.is_dir()
            and not any(Path(each).is_relative_to(LINK.parent) for each in needed)
        ):
            _mount("tmpfs", LINK.parent, "tmpfs", 0, "mode=755,size=64k")
            LINK.symlink_to(TARGET)
    except OSError:
        return is_linked()
    return is_linked()


def _closed_to_others(needed: list[str]) -> Path | None:
    """The highest folder, of those above the `needed` ones, that only its owner may enter, such as /root."""
    for each in needed:
        for folder in reversed(Path(each).parents):
            if folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
                return folder
    return None


def _own_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    if user == 0:
        check("unshare", LIBC.unshare(_CLONE_NEWNS))
    else:
        check("unshare", LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWUSER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE, None)


def _open_up(hidden: Path, needed: list[str]) -> None:
    """Lay an empty folder over the hidden one that has nothing but the needed folders, at their places."""
    below = [each for each in needed if Path(each).is_relative_to(hidden) and Path(each).is_dir()]
    kept = {each: os.open(each, os.O_PATH | os.O_DIRECTORY) for each in below}
    _mount("tmpfs", hidden, "tmpfs", 0, "mode=755,size=64k")
    for each, place in kept.items():
        Path(each).mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{place}", Path(each), None, _MS_BIND, None)
        os.close(place)


def _mount(source: str | None, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    texts = [None if each is None else each.encode() for each in (source, str(target), kind, options)]
    check("mount", LIBC.mount(texts[0], texts[1], texts[2], flags, texts[3]))

"""Memory that a process gives back once it has loaded everything."""

import gc

from service.app import settle


def test_what_is_there_is_no_longer_looked_at_for_garbage() -> None:
    kept: list[object] = [[]]
    settle()
    try:
        assert not any(each is kept for each in gc.get_objects())
    finally:
        gc.unfreeze()

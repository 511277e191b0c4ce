"""Last uses after a refill: in their order, as they were where they are recent, and never close to expiring."""

from hypothesis import given
from hypothesis import strategies as st

from store.backup.upkeep.refilling import capped_use

DAY = 86_400_000_000
NOW = 20_000 * DAY


@given(st.lists(st.integers(1, NOW + DAY), min_size=1, max_size=20), st.sampled_from([0, DAY, 30 * DAY]))
def test_the_order_survives_and_no_age_is_more_than_half_of_what_may_be(uses: list[int], idle: int) -> None:
    found = [capped_use(used, NOW, idle) for used in sorted(uses)]
    assert found == sorted(found)
    if idle:
        assert all(used >= NOW - idle // 2 for used in found)


@given(st.integers(NOW - 7 * DAY, NOW + DAY))
def test_a_recent_use_is_as_it_was(used: int) -> None:
    assert capped_use(used, NOW, 30 * DAY) == used


def test_where_nothing_expires_all_uses_are_as_they_were_and_else_old_ones_stay_apart() -> None:
    assert capped_use(1, NOW, 0) == 1
    assert capped_use(NOW - 401 * DAY, NOW, 30 * DAY) < capped_use(NOW - 400 * DAY, NOW, 30 * DAY) < NOW - 14 * DAY

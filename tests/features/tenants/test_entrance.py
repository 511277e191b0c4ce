"""The port of tenants: each entrance knows a key of the settings, and no other; the plain one limits nothing."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from service.entrance import Entrance, Entry, WrongKey
from service.errors import ApiError
from service.features.tenants.entrance import CountingEntrance, LimitingEntrance, ProjectEntrance
from service.process import Settings
from service.settings.core import ApiKey
from service.settings.keys import Keys
from store.spent import Over, Spent
from store.turn import Expense
from tests.support.chaos.inside import opened
from tests.support.service.background import changed

KEY = "key-of-ada-0123456789"


@pytest.fixture(params=[Entrance, CountingEntrance, LimitingEntrance, ProjectEntrance])
async def entrance(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Entrance]:
    """Each of the entrances. The settings choose which of a feature's it is."""
    keyed = changed(settings, api_keys=(ApiKey("ada", SecretStr(KEY)),))
    more = {LimitingEntrance: {"tenant_limits": {"max_requests_per_1_minute": 9}}, ProjectEntrance: {"projects": True}}
    async with opened(changed(keyed, **more.get(request.param, {}))) as service:
        found = Entrance(Keys(keyed)) if request.param is Entrance else service.tenants.entrance
        assert type(found) is request.param
        yield found


async def test_a_key_of_the_settings_lets_its_tenant_in_and_it_may_do_all_but_administer(entrance: Entrance) -> None:
    entry = await entrance.holder(KEY.encode(), "")
    assert (entry.tenant, entry.key, entry.administers) == ("ada", "", False)
    assert entry.may_use(["any"])
    entry.require("api.responses.write")


async def test_another_key_opens_nothing(entrance: Entrance) -> None:
    for key in (b"", b"key-of-bob", KEY.encode()[:-1]):
        with pytest.raises(WrongKey):
            await entrance.holder(key, "")
    entrance.wrong_key("req_1", "127.0.0.1")


async def test_work_within_limits_begins_and_what_it_took_is_counted(entrance: Entrance) -> None:
    entry = await entrance.holder(KEY.encode(), "")
    await entrance.refuse_exhausted(entry, "m")
    async with entrance.reserving(entry, "m", "resp_" + "0" * 48, reads=1, writes=1) as reservation:
        assert (reservation is not None) == (type(entrance) is LimitingEntrance)
    entrance.settle("ada", Over("resp_" + "0" * 48, Spent(1, 1)))
    await entrance.count("ada", "resp_" + "0" * 48, Expense("", "m", 1, 0, 1))
    await entrance.note(entry, "response.deleted", "resp_1")
    assert (await entrance.returning("ada", "")).tenant == "ada"
    assert entrance.weight("ada") is None


@pytest.mark.parametrize("what", ["requests", "tokens"])
@pytest.mark.parametrize("window", ["minute", "month"])
async def test_where_nothing_may_begin_nothing_does(settings: Settings, what: str, window: str) -> None:
    async with opened(changed(settings, tenant_limits={f"max_{what}_per_1_{window}": 0})) as service:
        with pytest.raises(ApiError, match=f"{what} per {window[:3]}"):
            await service.tenants.entrance.refuse_exhausted(Entry("default"), "m")

"""The port of tenants: each entrance knows a key of the settings, and no other; the plain one limits nothing."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from service.entrance import Entrance, Entry, WrongKey
from service.errors import ApiError
from service.features.tenants.entrance import CountingEntrance, LimitingEntrance, ProjectEntrance
from service.process import Settings
from service.responses.service import Service
from service.settings.core import ApiKey
from service.settings.keys import Keys
from store.spent import Over, Spent
from store.turn import Expense
from tests.support.chaos.inside import opened
from tests.support.service.background import changed

KEY = "key-of-ada-0123456789"
LIMITS = {"max_requests_per_1_minute": 0}


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Service]:
    async with opened(changed(settings, api_keys=(ApiKey("ada", SecretStr(KEY)),))) as service:
        yield service


@pytest.fixture(params=["plain", "counting", "limiting", "projects"])
async def entrance(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Entrance]:
    keyed = changed(settings, api_keys=(ApiKey("ada", SecretStr(KEY)),))
    more = {"limiting": {"tenant_limits": {"max_requests_per_1_minute": 9}}, "projects": {"projects": True}}
    async with opened(changed(keyed, **more.get(request.param, {}))) as service:
        yield Entrance(Keys(keyed)) if request.param == "plain" else service.tenants.entrance


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


async def test_the_settings_choose(settings: Settings, service: Service) -> None:
    assert type(service.tenants.entrance) is CountingEntrance
    for more, kind in (({"tenant_limits": LIMITS}, LimitingEntrance), ({"projects": True}, ProjectEntrance)):
        async with opened(changed(settings, **more)) as other:
            assert type(other.tenants.entrance) is kind


async def test_where_nothing_may_begin_nothing_does(settings: Settings) -> None:
    async with opened(changed(settings, tenant_limits=LIMITS)) as service:
        with pytest.raises(ApiError, match="requests per min"):
            await service.tenants.entrance.refuse_exhausted(Entry("default"), "m")

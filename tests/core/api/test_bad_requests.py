"""Bad requests of every kind, as the readers refuse them; web/test_bad_input.py sends a dozen of each kind."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from service.errors import ApiError
from service.process import close_service, load_settings, open_service
from tests.support.bad.requests import READ, REPLAYED, SMALL, TABLES, over_http, refusal
from tests.support.bad.table import Bad
from tests.support.service.inside import scripted

Refuse = Callable[[Bad], ApiError | None]
PREFIX = "refuse"


@contextmanager
def readers(redis_url: str, **settings: Any) -> Iterator[Refuse]:
    """The readers of a service over an empty store, which stays empty but for the key that seals."""
    with asyncio.Runner() as runner:
        service = open_service(load_settings(redis_url=redis_url, redis_prefix=PREFIX, **settings), scripted([]))

        yield lambda bad: runner.run(refusal(service, bad))
        runner.run(close_service(service))
    with Redis.from_url(redis_url) as redis:
        assert [key for key in redis.keys(f"{PREFIX}*") if not key.endswith(b":secret")] == []


@pytest.fixture(scope="module")
def refuse(redis_url: str) -> Iterator[Refuse]:
    with readers(redis_url) as refuse:
        yield refuse


@pytest.fixture(scope="module")
def refuse_all(redis_url: str) -> Iterator[Refuse]:
    """The same, which refuse also what they may leave out."""
    with readers(redis_url, unsupported="refuse") as refuse:
        yield refuse


def test_a_bad_request_is_refused_by_name(refuse: Refuse, refuse_all: Refuse) -> None:
    for name, bad in READ.items():
        error = refuse(bad)
        if name in REPLAYED:
            assert error is None or error.message.startswith("'input' is empty"), (name, error)
            error = refuse_all(bad)
        assert error is not None, name
        assert (error.status, error.type) == (bad.status, "invalid_request_error"), (name, error)
        assert (error.code, error.param) == (bad.code, bad.param), (name, error)
        assert bad.words in error.message, (name, error)
        assert len(error.message) < 1000, name
        assert not error.retry, name


def test_the_tables_are_long_enough_and_have_no_name_twice() -> None:
    assert len(SMALL) == sum(map(len, TABLES)) >= 190
    assert len(READ) >= 165
    assert SMALL.keys() == READ.keys() | REPLAYED | over_http().keys()

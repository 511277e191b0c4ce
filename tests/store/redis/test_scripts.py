"""Scripts: the head of each tells the truth, no value can go missing, and a server that lost them gets them again."""

import re
from pathlib import Path

from redis.asyncio import Redis

import store
from store.history.history import ConversationHistoryStore
from store.redis import scripts
from store.redis.scripts import AT_ONCE, LIBRARY, MOST_BUILDS, files_of, lua
from tests.support.store.sample import TENANT, grow, said, turn

FOLDER = Path(store.__file__).parent / "redis" / "lua"
ALL = scripts.ALL


def test_no_script_counts_its_keys_or_arguments() -> None:
    assert [path.stem for path in FOLDER.glob("*.lua") if re.search(r"\b(KEYS|ARGV)\b", path.read_text())] == []


def test_what_a_shared_file_keeps_of_one_call_begins_anew_with_each() -> None:
    """Locals without a value, which functions set, are set by its `begin_FILE`, too."""
    for name in sorted({file for script in ALL for file in files_of(script.file)[:-1]}):
        text = lua(name)
        states = [each for line in re.findall(r"^local ([\w, ]+?)(?: --.*)?$", text, re.M) for each in line.split(", ")]
        begin = re.search(rf"^local function begin_{name}\(\)\n(.*?)^end$", text, re.M | re.S)
        assert all(begin is not None and re.search(rf"\b{state}\b.* = ", begin[1]) for state in states), name
        calls = re.findall(r"^local (?!function).*\bcall\(|^call\(", text, re.M)
        assert not calls, f"{name}: what is asked when a library is loaded is asked once"


def test_no_argument_has_the_name_of_what_an_included_file_defines() -> None:
    for script in ALL:
        included = "\n".join(map(lua, files_of(script.file)[:-1]))
        defined = set(re.findall(r"^local function (\w+)", included, re.M))
        defined |= {
            name for line in re.findall(r"^local ([\w, ]+?)(?: [=-].*)?$", included, re.M) for name in line.split(", ")
        }
        assert not defined & {*script.arguments, *script.keys, "turns", "tenant", "digits"}, script.name
        filled = set(re.findall(r"^local (\w+) = \{\}", included, re.M))
        assert filled <= {"job_repairs"}, f"{script.name}: it would be filled by each call"


def test_every_lua_file_is_a_declared_script_or_shared_by_some() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == {file for script in ALL for file in files_of(script.file)}
    assert len(ALL) == len({script.function for script in ALL})


def test_what_only_reads_is_permitted_no_write_and_only_what_adds_something_needs_memory() -> None:
    reads = "lineage recognise look page inspect_turns gauge describe sum_up tips climb jobs_of"
    adds = "append submit succeed steer restore amend keep_piece keep_record take_keyed"
    assert {each.name for each in ALL if "no-writes" in each.flags} == set(reads.split())
    assert {each.name for each in ALL if "allow-oom" not in each.flags} == set(adds.split())


async def test_a_server_that_lost_the_scripts_gets_them_again(store: ConversationHistoryStore, redis: Redis) -> None:
    (root,) = await grow(store, "one")
    await redis.function_flush()
    child = store.new_id(root)
    await store.append(TENANT, turn(child, root, text="two"))
    await redis.function_flush()
    assert await said(store, child) == ["one", "two"]


async def libraries(redis: Redis) -> set[str]:
    """The names of the store's libraries that a server has."""
    listed = [dict(zip(each[::2], each[1::2], strict=True)) for each in await redis.function_list(f"{LIBRARY}*")]
    return {each[b"library_name"].decode() for each in listed}


async def test_a_server_gets_what_it_is_asked_for_and_what_it_could_not_take_later(
    store: ConversationHistoryStore, redis: Redis
) -> None:
    await redis.function_flush()
    (root,) = await grow(store, "one")
    first = {each.function for each in (scripts.append, *AT_ONCE)}
    assert await libraries(redis) == first
    await store.chain(TENANT, root, pin=store.token())
    assert await libraries(redis) == first | {scripts.chain.function}


async def test_a_server_that_takes_no_library_runs_the_script_all_the_same(
    store: ConversationHistoryStore, redis: Redis
) -> None:
    ids = await grow(store, "one", "two")
    await redis.function_flush()
    await redis.config_set("maxmemory", 1)
    try:
        assert await said(store, ids[-1]) == ["one", "two"]
        await store.forget(TENANT, ids[0])
        assert await libraries(redis) == set()
    finally:
        await redis.config_set("maxmemory", 0)


async def test_libraries_of_other_builds_are_bounded(store: ConversationHistoryStore, redis: Redis) -> None:
    await redis.function_flush()
    for number in range(MOST_BUILDS * len(ALL)):
        name = f"{LIBRARY}older_{number}"
        await redis.function_load(f"#!lua name={name}\nredis.register_function('{name}', function() end)")
    (root,) = await grow(store, "one")
    assert await said(store, root) == ["one"]
    names = {script.function for script in ALL}
    assert await libraries(redis) <= names

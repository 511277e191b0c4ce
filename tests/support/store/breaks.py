"""Ways to break a store and its jobs behind its back, one for everything that fsck can find."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from store.turn import digest_of
from tests.support.store.sample import TENANT


@dataclass
class Broken:
    """A store with every shape of tree, and the ways to its keys."""

    redis: Redis
    prefix: str
    ids: dict[str, str]

    def key(self, family: str, name: str) -> str:
        return f"{self.shared('t')}:{TENANT}:{family}:{self.digits(name)}"

    def shared(self, name: str) -> str:
        return f"{self.prefix}:{{00}}:{name}"

    @property
    def leaves(self) -> str:
        return self.shared(f"leaves:{TENANT}")

    @property
    def said(self) -> str:
        return self.shared(f"said:{TENANT}")

    @property
    def listed(self) -> str:
        return self.shared(f"conversations:{TENANT}")

    @property
    def trees(self) -> str:
        return self.shared(f"trees:{TENANT}")

    def digits(self, name: str) -> str:
        return self.ids[name].partition("_")[2]

    def member(self, name: str) -> str:
        return f"{TENANT}/{self.digits(name)}"

    def picture(self, data: bytes) -> str:
        return f"{self.shared('t')}:{TENANT}:picture:{digest_of(data).hex()}"

    async def set(self, name: str, **fields: Any) -> None:
        await self.redis.hset(self.key("node", name), mapping=fields)

    async def set_job(self, name: str, **fields: Any) -> None:
        await self.redis.hset(self.key("job", name), mapping=fields)

    async def put(self, order: str, member: str, score: float | str = 1) -> None:
        await self.redis.zadd(order, {member: score})

    async def drop(self, family: str, name: str) -> None:
        await self.redis.delete(self.key(family, name))

    async def lose(self, name: str, *fields: str) -> None:
        await self.redis.hdel(self.key("node", name), *fields)


async def _instead(broken: Broken, key: str, command: str, value: str) -> None:
    await broken.redis.delete(key)
    await broken.redis.execute_command(command, key, value)


def _line(broken: Broken, level: str = "2") -> str:
    """Where the jobs of a level wait; of the level that all that wait here have."""
    return broken.shared(f"line:{level}:{TENANT}")


async def _unknown_beginning(broken: Broken) -> None:
    await broken.set("talk", created="")
    await broken.redis.zrem(broken.listed, broken.digits("talk"))


async def _pinned_for_ages(broken: Broken) -> None:
    await broken.put(broken.key("pins", "pinned"), "run", 9e15)
    await broken.redis.persist(broken.key("pins", "pinned"))


async def _words_said_thrice(broken: Broken) -> None:
    for name in ("leaf", "root"):
        await broken.set(name, said=WORDS)
    await broken.redis.hset(broken.said, mapping={WORDS[:8]: "#2"})


async def _changed_and_not_queued(broken: Broken) -> None:
    await broken.put(broken.shared(f"changes:{broken.member('root')}"), f"+{broken.digits('leaf')}")


Damage = tuple[str, Callable[[Broken], Awaitable[Any]], *tuple[str, ...]]
"""Something that somebody does behind the store's back: the word for it, how, and which turns are unknown after a
repair.
"""

NOBODY = "0" * 48
ROOT = ("root", "middle", "leaf", "fork", "end")
CAT, DOG = b"cat" * 1_000, b"dog" * 2_000
"""Pictures: one that two turns show, and one that one of them does."""
WORDS = b"words of a turn.".ljust(16)
"""The digest of the words of one turn."""

STAYS = {
    "a response that is gone": {"no-response", "length"},
    "a wrong length of messages": {"length"},
    "a picture that is gone": {"no-picture"},
    "a picture that is a string": {"no-picture"},
    "a picture that a turn shows twice": {"no-picture"},
    "a picture that nobody shows": {"picture"},
}
"""The faults that are left without an archive: nothing else in the store has what was lost."""

BREAKS: dict[str, Damage] = {
    "keys without a node": ("no-node", lambda b: b.drop("node", "single"), "single"),
    "a place without a turn": ("no-node", lambda b: b.put(b.leaves, NOBODY)),
    "a root that is gone": ("no-parent", lambda b: b.drop("node", "root"), *ROOT),
    "messages that are gone": ("no-messages", lambda b: b.drop("messages", "middle"), "middle", "leaf"),
    "messages that are none": ("no-messages", lambda b: b.redis.set(b.key("messages", "root"), b"\0"), *ROOT),
    "a node without a digest": ("damaged", lambda b: b.lose("fork", "digest"), "fork", "end"),
    "a parent that is no id": ("damaged", lambda b: b.set("fork", parent="x y"), "fork", "end"),
    "a node that is a string": ("mistyped", lambda b: b.redis.set(b.key("node", "root"), "x"), *ROOT),
    "leaves of a tree that are a list": ("mistyped", lambda b: _instead(b, b.key("tree", "root"), "rpush", "x")),
    "a wrong depth": ("lineage", lambda b: b.set("middle", depth=9)),
    "a wrong number of messages": ("lineage", lambda b: b.set("top", chain_messages=77)),
    "a wrong path": ("lineage", lambda b: b.set("path", path="0" * 48 * 32)),
    "a circle": ("lineage", lambda b: b.set("top", parent=b.digits("deep")), "top", "path", "deep"),
    "a response that is gone": ("no-response", lambda b: b.drop("response", "root"), "root"),
    "a response that is none": ("no-response", lambda b: b.redis.set(b.key("response", "leaf"), b""), "leaf", "middle"),
    "a response of a deleted turn": ("kept-response", lambda b: b.redis.set(b.key("response", "middle"), b"\1x")),
    "a tree that was erased in silence": ("not-marked", lambda b: b.lose("root", "has_erased")),
    "a wrong length of messages": ("length", lambda b: b.set("leaf", messages_bytes=1)),
    "wrong bytes held": ("held", lambda b: b.set("leaf", held=10**9)),
    "a child too many": ("children", lambda b: b.set("root", children=3)),
    "no children": ("children", lambda b: b.lose("deep", "children")),
    "a leaf without a place": ("leaf", lambda b: b.redis.zrem(b.leaves, b.digits("leaf"))),
    "a tombstone among what is used": ("leaf", lambda b: b.put(b.leaves, b.digits("pinned"))),
    "a tombstone that would stay for ever": ("leaf", lambda b: b.put(b.shared("tombstones"), b.member("pinned"), 2e15)),
    "a leaf among tombstones": ("leaf", lambda b: b.put(b.shared("tombstones"), b.member("leaf"), 2e12)),
    "a leaf that its tree lacks": ("leaf", lambda b: b.redis.srem(b.key("tree", "root"), b.digits("leaf"))),
    "no last use": ("leaf", lambda b: b.lose("leaf", "touched")),
    "no leaves": ("leaf", lambda b: b.redis.delete(b.leaves)),
    "a tree without a place": ("tree", lambda b: b.redis.zrem(b.shared("trees"), b.member("root"))),
    "a forgotten tree that is known": ("tree", lambda b: b.set("single", abandoned="token"), "single"),
    "a tree that its tenant lacks": ("index", lambda b: b.redis.zrem(b.trees, b.digits("root"))),
    "a tree that its tenant has at a later use": ("index", lambda b: b.put(b.trees, b.digits("root"), 2e15)),
    "a tree of a tenant that has none": ("no-node", lambda b: b.put(b.shared("trees:nobody"), b.digits("root"))),
    "no time at which it was made": ("created", lambda b: b.lose("leaf", "created")),
    "a conversation that began at no time and is not listed": ("created", _unknown_beginning),
    "a conversation that is not listed": ("list", lambda b: b.redis.zrem(b.listed, b.digits("talk"))),
    "a deleted conversation that is listed": ("list", lambda b: b.put(b.listed, b.digits("over"))),
    "a conversation whose turn is gone": ("no-parent", lambda b: b.drop("node", "first")),
    "a leaf of another tree": ("stray", lambda b: b.redis.sadd(b.key("tree", "single"), b.digits("leaf"))),
    "words that the index lacks": ("said", lambda b: b.redis.delete(b.said)),
    "words that the index has of another turn": (
        "said",
        lambda b: b.redis.hset(b.said, mapping={WORDS[:8]: b.digits("leaf")}),
    ),
    "words that two turns have": ("said", lambda b: b.set("leaf", said=WORDS)),
    "words that count too many turns": ("words", lambda b: b.redis.hset(b.said, mapping={WORDS[:8]: "#7"})),
    "words that count turns that are gone": ("words", lambda b: b.redis.hset(b.said, mapping={b"x" * 8: "#2"})),
    "words that three turns have, one after the other": ("words", _words_said_thrice),
    "words that no turn can have, and that count some": (
        "stray-place",
        lambda b: b.redis.hset(b.said, mapping={b"": "#2", b"x y": "#2"}),
    ),
    "nonsense among words": ("stray-place", lambda b: b.redis.hset(b.said, mapping={b"": b"", b"x y": b"z"})),
    "a picture that is gone": ("no-picture", lambda b: b.redis.delete(b.picture(CAT))),
    "a picture that is a string": ("no-picture", lambda b: _instead(b, b.picture(CAT), "set", "x")),
    "a picture that a turn shows twice": ("no-picture", lambda b: b.set("single", pictures=2 * digest_of(CAT).hex())),
    "a picture that nobody shows": (
        "picture",
        lambda b: b.redis.hset(b.picture(b"x"), mapping={"bytes": "x", "turns": 1}),
    ),
    "a picture that counts too many turns": ("picture", lambda b: b.redis.hset(b.picture(CAT), "turns", 7)),
    "a picture of another length": ("usage", lambda b: b.redis.hset(b.picture(DOG), "bytes", "x")),
    "nonsense among leaves": ("misnamed", lambda b: b.put(b.leaves, "x y")),
    "nonsense in a tree": ("misnamed", lambda b: b.redis.sadd(b.key("tree", "root"), "x y")),
    "a pin that outlasts its key": ("endless-pin", lambda b: b.put(b.key("pins", "pinned"), "run", 9e15)),
    "a pin that would end some day": ("endless-pin", _pinned_for_ages),
    "a tree that would never be archived": ("not-queued", _changed_and_not_queued),
    "no clock": ("clock", lambda b: b.redis.delete(b.shared("clock"))),
    "a clock that is behind": ("clock", lambda b: b.redis.set(b.shared("clock"), "12")),
    "a usage that is a set": ("shared-type", lambda b: _instead(b, b.shared("usage"), "sadd", "x")),
    "no usage": ("usage", lambda b: b.redis.delete(b.shared("usage"))),
    "a wrong counter": ("usage", lambda b: b.redis.hincrby(b.shared("usage"), "responses", 1)),
    "a lost counter of a tenant": ("usage", lambda b: b.redis.zrem(b.shared("usage:responses"), TENANT)),
}

JOB_BREAKS: dict[str, Damage] = {
    "a job that is gone": ("no-job", lambda b: b.drop("job", "waiting")),
    "a job at a level that is none": ("no-job", lambda b: b.set_job("waiting", level=7)),
    "a job that is a string": ("mistyped", lambda b: b.redis.set(b.key("job", "running"), "x")),
    "a spec that is gone": ("no-work", lambda b: b.drop("spec", "waiting")),
    "a spec that is empty": ("no-work", lambda b: b.redis.set(b.key("spec", "running"), b"")),
    "a job out of the queue": ("no-place", lambda b: b.redis.zrem(b.shared("queued:2"), b.member("waiting"))),
    "a job out of its line": ("no-place", lambda b: b.redis.zrem(_line(b), b.digits("waiting"))),
    "a tenant without a turn": ("no-place", lambda b: b.redis.zrem(b.shared("turn:2"), TENANT)),
    "no queue": ("no-place", lambda b: b.redis.delete(b.shared("queued:2"))),
    "a lease that is gone": ("no-place", lambda b: b.redis.zrem(b.shared("leases"), b.member("running"))),
    "a lease that never ends": ("no-place", lambda b: b.put(b.shared("leases"), b.member("running"), "inf")),
    "a job that waits and is held": ("no-place", lambda b: b.set_job("running", level=2)),
    "a job of a digest of its own": ("standing", lambda b: b.set("running", digest="0" * 32)),
    "a job without its submission": ("standing", lambda b: b.lose("waiting", "submission")),
    "a job that may be continued": ("standing", lambda b: b.set("running", continuable=1)),
    "a job that has ended by its status": ("standing", lambda b: b.set("running", status="completed")),
    "a running job that never started": ("standing", lambda b: b.redis.hdel(b.key("job", "running"), "started")),
    "an end that is none": ("standing", lambda b: b.set("ended", status="in_progress")),
    "a fleeting response to be continued": ("standing", lambda b: b.set("fleeting", continuable=1)),
    "a log that is gone": ("events", lambda b: b.drop("log", "running")),
    "a log that is noted nowhere": ("events", lambda b: b.lose("ended", "log_bytes")),
    "a log that would stay for ever": ("events", lambda b: b.redis.zrem(b.shared("logs"), b.member("ended"))),
    "an event that is gone": ("events", lambda b: b.redis.xtrim(b.key("log", "running"), maxlen=1, approximate=False)),
    "a wrong number of the last event": ("events", lambda b: b.set_job("running", last=1)),
    "wrong bytes of events": ("events", lambda b: b.set_job("running", log_bytes=1)),
    "a snapshot that is gone": ("events", lambda b: b.drop("snapshot", "running")),
    "a job of what has ended": ("stray-job", lambda b: b.redis.hset(b.key("job", "ended"), "own", 1)),
    "a spec of what has ended": ("stray-job", lambda b: b.redis.set(b.key("spec", "plain"), "x")),
    "a job without a node": ("no-node", lambda b: b.drop("node", "single"), "single"),
    "nobody in a queue": ("stray-place", lambda b: b.put(b.shared("queued:1"), f"{TENANT}/{NOBODY}")),
    "a job without hours that has some": ("stray-place", lambda b: b.put(b.shared("accepted:5"), b.member("waiting"))),
    "groups for ever": ("endless-note", lambda b: b.put(b.shared("groups:someone"), "x")),
    "a lease of what has ended": ("stray-place", lambda b: b.put(b.shared("leases"), b.member("ended"))),
    "a job in two queues": ("stray-place", lambda b: b.put(b.shared("queued:1"), b.member("waiting"))),
    "a tree with a job too many": ("jobs", lambda b: b.set("root", jobs=5)),
    "a tree with a job too few": ("jobs", lambda b: b.set("root", jobs=1)),
    "a tree with no job that counts none": ("jobs", lambda b: b.set("ended", jobs=0)),
    "a job that is a leaf": ("leaf", lambda b: b.put(b.leaves, b.digits("running"))),
    "a job among the leaves of its tree": ("leaf", lambda b: b.redis.sadd(b.key("tree", "root"), b.digits("running"))),
    "wrong bytes held by a job": ("held", lambda b: b.set("waiting", held=1)),
    "nonsense in a queue": ("misnamed", lambda b: b.put(b.shared("queued:3"), "x y")),
    "leases that are a string": ("shared-type", lambda b: b.redis.set(b.shared("leases"), "x")),
    "wrong bytes of all events": ("usage", lambda b: b.redis.incrby(b.shared("logged"), 5)),
    "a secret that is cut": ("secret", lambda b: b.redis.set(b.shared("secret"), "x")),
    "a secret that is a set": ("shared-type", lambda b: b.redis.sadd(b.shared("secret"), "x")),
    "a note for ever": ("endless-note", lambda b: b.redis.set(b.shared("claim:00ff"), "x")),
    "approvals used up that are a string": ("endless-note", lambda b: b.redis.set(b.shared("approved:someone"), "x")),
}

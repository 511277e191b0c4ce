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

BREAKS: dict[str, Damage] = {
    "keys without a node": ("no-node", lambda b: b.drop("node", "single"), "single"),
    "a place without a turn": ("no-node", lambda b: b.put(b.leaves, NOBODY)),
    "a tombstone without a turn": ("no-node", lambda b: b.put(b.shared("tombstones"), f"{TENANT}/{NOBODY}")),
    "a tree without a turn": ("no-node", lambda b: b.put(b.shared("trees"), f"{TENANT}/{NOBODY}")),
    "a root that is gone": ("no-parent", lambda b: b.drop("node", "root"), *ROOT),
    "messages that are gone": ("no-messages", lambda b: b.drop("messages", "middle"), "middle", "leaf"),
    "messages that are none": ("no-messages", lambda b: b.redis.set(b.key("messages", "root"), b"\0"), *ROOT),
    "a node without a digest": ("damaged", lambda b: b.lose("fork", "digest"), "fork", "end"),
    "a node without its parent": ("damaged", lambda b: b.lose("fork", "parent"), "fork", "end"),
    "a parent that is no id": ("damaged", lambda b: b.set("fork", parent="x y"), "fork", "end"),
    "a node that is a string": ("mistyped", lambda b: b.redis.set(b.key("node", "root"), "x"), *ROOT),
    "pins that are a string": ("mistyped", lambda b: b.redis.set(b.key("pins", "leaf"), "x")),
    "leaves of a tree that are a list": ("mistyped", lambda b: _instead(b, b.key("tree", "root"), "rpush", "x")),
    "a wrong depth": ("lineage", lambda b: b.set("middle", depth=9)),
    "a wrong root": ("lineage", lambda b: b.set("end", root=b.digits("single"))),
    "no root": ("lineage", lambda b: b.lose("leaf", "root")),
    "wrong bytes of a chain": ("lineage", lambda b: b.set("root", chain_bytes=1)),
    "a wrong number of messages": ("lineage", lambda b: b.set("top", chain_messages=77)),
    "a wrong path": ("lineage", lambda b: b.set("path", path="0" * 48 * 32)),
    "a circle": ("lineage", lambda b: b.set("top", parent=b.digits("deep")), "top", "path", "deep"),
    "a response that is gone": ("no-response", lambda b: b.drop("response", "root"), "root"),
    "a response that is none": ("no-response", lambda b: b.redis.set(b.key("response", "leaf"), b""), "leaf", "middle"),
    "a response of a deleted turn": ("kept-response", lambda b: b.redis.set(b.key("response", "middle"), b"\1x")),
    "a tree that was erased in silence": ("not-marked", lambda b: b.lose("root", "has_erased")),
    "a wrong length of messages": ("length", lambda b: b.set("leaf", messages_bytes=1)),
    "no length of a response": ("length", lambda b: b.lose("leaf", "response_bytes")),
    "wrong bytes held": ("held", lambda b: b.set("leaf", held=10**9)),
    "no bytes held": ("held", lambda b: b.lose("root", "held")),
    "a child too many": ("children", lambda b: b.set("root", children=3)),
    "a child too few": ("children", lambda b: b.set("root", children=1)),
    "no children": ("children", lambda b: b.lose("deep", "children")),
    "children without a number": ("children", lambda b: b.set("top", children="inf")),
    "a child of a leaf": ("children", lambda b: b.set("leaf", children=1)),
    "a leaf without a place": ("leaf", lambda b: b.redis.zrem(b.leaves, b.digits("leaf"))),
    "a leaf at a wrong place": ("leaf", lambda b: b.put(b.leaves, b.digits("leaf"))),
    "a tombstone among what is used": ("leaf", lambda b: b.put(b.leaves, b.digits("pinned"))),
    "a tombstone that would stay for ever": ("leaf", lambda b: b.put(b.shared("tombstones"), b.member("pinned"), 2e15)),
    "a tombstone before its pin ends": ("leaf", lambda b: b.put(b.shared("tombstones"), b.member("pinned"), 0)),
    "a leaf among tombstones": ("leaf", lambda b: b.put(b.shared("tombstones"), b.member("leaf"), 2e12)),
    "a leaf at a later place": ("leaf", lambda b: b.put(b.leaves, b.digits("leaf"), 2e15)),
    "a leaf that its tree lacks": ("leaf", lambda b: b.redis.srem(b.key("tree", "root"), b.digits("leaf"))),
    "an inner turn as a leaf": ("leaf", lambda b: b.put(b.leaves, b.digits("root"))),
    "no last use": ("leaf", lambda b: b.lose("leaf", "touched")),
    "a last use that is none": ("leaf", lambda b: b.set("leaf", touched="nan")),
    "no leaves": ("leaf", lambda b: b.redis.delete(b.leaves)),
    "a tree without a place": ("tree", lambda b: b.redis.zrem(b.shared("trees"), b.member("root"))),
    "a tree used before its root": ("tree", lambda b: b.put(b.shared("trees"), b.member("root"))),
    "a forgotten tree that is known": ("tree", lambda b: b.set("single", abandoned="token"), "single"),
    "a tree of an inner turn": ("tree", lambda b: b.put(b.shared("trees"), b.member("leaf"))),
    "a tree that its tenant lacks": ("index", lambda b: b.redis.zrem(b.trees, b.digits("root"))),
    "a tree that its tenant has at an earlier use": ("index", lambda b: b.put(b.trees, b.digits("root"))),
    "a tree that its tenant has at a later use": ("index", lambda b: b.put(b.trees, b.digits("root"), 2e15)),
    "an inner turn among the trees of its tenant": ("index", lambda b: b.put(b.trees, b.digits("leaf"))),
    "no trees of a tenant": ("index", lambda b: b.redis.delete(b.trees)),
    "a tree of a tenant that there isn't": ("no-node", lambda b: b.put(b.trees, NOBODY)),
    "a tree of a tenant that has none": ("no-node", lambda b: b.put(b.shared("trees:nobody"), b.digits("root"))),
    "nonsense among the trees of a tenant": ("misnamed", lambda b: b.put(b.trees, "x y")),
    "trees of a tenant that are a string": ("shared-type", lambda b: b.redis.set(b.trees, "x")),
    "no time at which it was made": ("created", lambda b: b.lose("leaf", "created")),
    "a conversation without the time at which it began": ("created", lambda b: b.lose("talk", "created")),
    "a conversation that began at no time": ("created", lambda b: b.set("talk", created="1e5")),
    "a conversation that began at no time and is not listed": ("created", _unknown_beginning),
    "a conversation that is not listed": ("list", lambda b: b.redis.zrem(b.listed, b.digits("talk"))),
    "a conversation that began at another time": ("list", lambda b: b.put(b.listed, b.digits("talk"))),
    "a deleted conversation that is listed": ("list", lambda b: b.put(b.listed, b.digits("over"))),
    "a response among conversations": ("list", lambda b: b.put(b.listed, b.digits("root"))),
    "no list of conversations": ("list", lambda b: b.redis.delete(b.listed)),
    "a listed conversation that there isn't": ("no-node", lambda b: b.put(b.listed, NOBODY)),
    "nonsense among conversations": ("misnamed", lambda b: b.put(b.listed, "x y")),
    "conversations that are a string": ("shared-type", lambda b: b.redis.set(b.listed, "x")),
    "a conversation without its shown form": ("no-response", lambda b: b.drop("response", "talk")),
    "a conversation whose turn is gone": ("no-parent", lambda b: b.drop("node", "first")),
    "a leaf of another tree": ("stray", lambda b: b.redis.sadd(b.key("tree", "single"), b.digits("leaf"))),
    "a leaf that is nowhere": ("stray", lambda b: b.redis.sadd(b.key("tree", "single"), NOBODY)),
    "words that the index lacks": ("said", lambda b: b.redis.delete(b.said)),
    "words that the index has of another turn": (
        "said",
        lambda b: b.redis.hset(b.said, mapping={WORDS[:8]: bytes.fromhex(b.digits("leaf"))}),
    ),
    "words that two turns have": ("said", lambda b: b.set("leaf", said=WORDS)),
    "words of a deleted turn": ("said", lambda b: b.set("middle", said=b"m" * 16)),
    "words of another length": ("said", lambda b: b.set("leaf", said=b"short")),
    "words of a turn that isn't there": (
        "stray-place",
        lambda b: b.redis.hset(b.said, mapping={b"nobody's": bytes(24)}),
    ),
    "words of a turn that has none": (
        "stray-place",
        lambda b: b.redis.hset(b.said, mapping={b"nobody's": bytes.fromhex(b.digits("leaf"))}),
    ),
    "nonsense among words": ("stray-place", lambda b: b.redis.hset(b.said, mapping={b"": b"", b"x y": b"z"})),
    "an index of words that is a string": ("said", lambda b: _instead(b, b.said, "set", "x")),
    "a picture that is gone": ("no-picture", lambda b: b.redis.delete(b.picture(CAT))),
    "a picture without bytes": ("no-picture", lambda b: b.redis.hdel(b.picture(DOG), "bytes")),
    "a picture that is a string": ("no-picture", lambda b: _instead(b, b.picture(CAT), "set", "x")),
    "a picture that a turn shows twice": ("no-picture", lambda b: b.set("single", pictures=2 * digest_of(CAT).hex())),
    "pictures that are none": ("no-picture", lambda b: b.set("leaf", pictures="x y")),
    "a picture that nobody shows": (
        "picture",
        lambda b: b.redis.hset(b.picture(b"x"), mapping={"bytes": "x", "turns": 1}),
    ),
    "a picture that counts too many turns": ("picture", lambda b: b.redis.hset(b.picture(CAT), "turns", 7)),
    "a picture that counts none": ("picture", lambda b: b.redis.hset(b.picture(CAT), "turns", "inf")),
    "pictures that a turn lacks": ("picture", lambda b: b.lose("leaf", "pictures")),
    "a picture of another length": ("usage", lambda b: b.redis.hset(b.picture(DOG), "bytes", "x")),
    "nonsense among leaves": ("misnamed", lambda b: b.put(b.leaves, "x y")),
    "nonsense among tombstones": ("misnamed", lambda b: b.put(b.shared("tombstones"), "x")),
    "nonsense among trees": ("misnamed", lambda b: b.put(b.shared("trees"), "x")),
    "nonsense in a tree": ("misnamed", lambda b: b.redis.sadd(b.key("tree", "root"), "x y")),
    "a pin that outlasts its key": ("endless-pin", lambda b: b.put(b.key("pins", "pinned"), "run", 9e15)),
    "a pin of a conversation that outlasts its key": (
        "endless-pin",
        lambda b: b.put(b.key("pins", "over"), "run", "inf"),
    ),
    "a pin that would end some day": ("endless-pin", _pinned_for_ages),
    "a pin for ever": ("endless-pin", lambda b: b.redis.persist(b.key("pins", "pinned"))),
    "no clock": ("clock", lambda b: b.redis.delete(b.shared("clock"))),
    "a clock that is behind": ("clock", lambda b: b.redis.set(b.shared("clock"), "12")),
    "leaves that are a string": ("shared-type", lambda b: b.redis.set(b.leaves, "x")),
    "tombstones that are a string": ("shared-type", lambda b: b.redis.set(b.shared("tombstones"), "x")),
    "counters that are a string": ("shared-type", lambda b: b.redis.set(b.shared("usage:bytes"), "x")),
    "a usage that is a set": ("shared-type", lambda b: _instead(b, b.shared("usage"), "sadd", "x")),
    "no usage": ("usage", lambda b: b.redis.delete(b.shared("usage"))),
    "a wrong counter": ("usage", lambda b: b.redis.hincrby(b.shared("usage"), "responses", 1)),
    "a wrong counter of a tenant": ("usage", lambda b: b.redis.zincrby(b.shared("usage:bytes"), 0.5, TENANT)),
    "a lost counter of a tenant": ("usage", lambda b: b.redis.zrem(b.shared("usage:responses"), TENANT)),
    "a counter of nobody": ("usage", lambda b: b.put(b.shared("usage:trees"), "nobody", 3)),
}

JOB_BREAKS: dict[str, Damage] = {
    "a job that is gone": ("no-job", lambda b: b.drop("job", "waiting")),
    "a running job that is gone": ("no-job", lambda b: b.drop("job", "running")),
    "a job without its epoch": ("no-job", lambda b: b.redis.hdel(b.key("job", "running"), "epoch")),
    "a job with tries that are none": ("no-job", lambda b: b.set_job("waiting", tries="many")),
    "a job at a level that is none": ("no-job", lambda b: b.set_job("waiting", level=7)),
    "a job without its last event": ("no-job", lambda b: b.redis.hdel(b.key("job", "resumed"), "last")),
    "a job that is a string": ("mistyped", lambda b: b.redis.set(b.key("job", "running"), "x")),
    "a spec that is gone": ("no-work", lambda b: b.drop("spec", "waiting")),
    "a spec that is empty": ("no-work", lambda b: b.redis.set(b.key("spec", "running"), b"")),
    "a cancelled job without a spec": ("no-work", lambda b: b.drop("spec", "cancelled")),
    "a response of a job that is gone": ("no-response", lambda b: b.drop("response", "running"), "running"),
    "messages of a job that are gone": ("no-messages", lambda b: b.drop("messages", "running"), "running"),
    "a root above jobs that is gone": (
        "no-parent",
        lambda b: b.drop("node", "root"),
        "root",
        "waiting",
        "running",
        "ended",
    ),
    "a job out of the queue": ("no-place", lambda b: b.redis.zrem(b.shared("queued:2"), b.member("waiting"))),
    "a job out of its line": ("no-place", lambda b: b.redis.zrem(_line(b), b.digits("waiting"))),
    "a job at another place in its line": ("no-place", lambda b: b.put(_line(b), b.digits("waiting"))),
    "a tenant without a turn": ("no-place", lambda b: b.redis.zrem(b.shared("turn:2"), TENANT)),
    "a turn that never comes": ("no-place", lambda b: b.put(b.shared("turn:2"), TENANT, "inf")),
    "no queue": ("no-place", lambda b: b.redis.delete(b.shared("queued:2"))),
    "a lease that is gone": ("no-place", lambda b: b.redis.zrem(b.shared("leases"), b.member("running"))),
    "a lease that never ends": ("no-place", lambda b: b.put(b.shared("leases"), b.member("running"), "inf")),
    "a job that waits and is held": ("no-place", lambda b: b.set_job("running", level=2)),
    "a job that neither waits nor is held": ("no-place", lambda b: b.set_job("running", token="")),
    "a job of a digest of its own": ("standing", lambda b: b.set("running", digest="0" * 32)),
    "a job without its submission": ("standing", lambda b: b.lose("waiting", "submission")),
    "a job without its mode": ("standing", lambda b: b.lose("waiting", "background")),
    "a job that may be continued": ("standing", lambda b: b.set("running", continuable=1)),
    "a job that has ended by its status": ("standing", lambda b: b.set("running", status="completed")),
    "a queued job that has started": ("standing", lambda b: b.set("running", status="queued")),
    "a running job that never started": ("standing", lambda b: b.redis.hdel(b.key("job", "running"), "started")),
    "an end that is none": ("standing", lambda b: b.set("ended", status="in_progress")),
    "a fleeting response to be continued": ("standing", lambda b: b.set("fleeting", continuable=1)),
    "a log that is gone": ("events", lambda b: b.drop("log", "running")),
    "a log of what has ended that is gone": ("events", lambda b: b.drop("log", "ended")),
    "a log that is noted nowhere": ("events", lambda b: b.lose("ended", "log_bytes")),
    "a log that would stay for ever": ("events", lambda b: b.redis.zrem(b.shared("logs"), b.member("ended"))),
    "a log that ends in a thousand years": ("events", lambda b: b.put(b.shared("logs"), b.member("ended"), 4e13)),
    "an event that is gone": ("events", lambda b: b.redis.xtrim(b.key("log", "running"), maxlen=1, approximate=False)),
    "an event of somebody else's": ("events", lambda b: b.redis.xadd(b.key("log", "running"), {"b": "x"})),
    "a wrong number of the last event": ("events", lambda b: b.set_job("running", last=1)),
    "wrong bytes of events": ("events", lambda b: b.set_job("running", log_bytes=1)),
    "wrong bytes of events of what has ended": ("events", lambda b: b.set("ended", log_bytes="many")),
    "a snapshot that is gone": ("events", lambda b: b.drop("snapshot", "running")),
    "a snapshot that is none": ("events", lambda b: b.redis.set(b.key("snapshot", "running"), b"\1")),
    "a snapshot of what has ended": ("events", lambda b: b.redis.set(b.key("snapshot", "ended"), b"1 x")),
    "a log that is a string": ("mistyped", lambda b: b.redis.set(b.key("log", "running"), "x")),
    "a job of what has ended": ("stray-job", lambda b: b.redis.hset(b.key("job", "ended"), "own", 1)),
    "a spec of what has ended": ("stray-job", lambda b: b.redis.set(b.key("spec", "plain"), "x")),
    "a job of a deleted turn": ("stray-job", lambda b: b.redis.hset(b.key("job", "deleted"), "own", 1)),
    "a job without a node": ("no-node", lambda b: b.drop("node", "single"), "single"),
    "a log without a node": ("no-node", lambda b: b.redis.xadd(b.shared(f"t:{TENANT}:log:{NOBODY}"), {"b": "x"})),
    "nobody in a queue": ("stray-place", lambda b: b.put(b.shared("queued:1"), f"{TENANT}/{NOBODY}")),
    "nobody with hours": ("stray-place", lambda b: b.put(b.shared("accepted:4"), f"{TENANT}/{NOBODY}")),
    "a job without hours that has some": ("stray-place", lambda b: b.put(b.shared("accepted:5"), b.member("waiting"))),
    "hours that are a string": ("shared-type", lambda b: b.redis.set(b.shared("accepted:4"), "x")),
    "groups for ever": ("endless-note", lambda b: b.put(b.shared("groups:someone"), "x")),
    "nobody in a line": ("stray-place", lambda b: b.put(_line(b, "3"), NOBODY)),
    "nobody with a lease": ("stray-place", lambda b: b.put(b.shared("leases"), f"{TENANT}/{NOBODY}")),
    "nobody among logs": ("stray-place", lambda b: b.put(b.shared("logs"), f"{TENANT}/{NOBODY}")),
    "a lease of what has ended": ("stray-place", lambda b: b.put(b.shared("leases"), b.member("ended"))),
    "a log of a job among those to go": ("stray-place", lambda b: b.put(b.shared("logs"), b.member("running"))),
    "a job in two queues": ("stray-place", lambda b: b.put(b.shared("queued:1"), b.member("waiting"))),
    "a tree with a job too many": ("jobs", lambda b: b.set("root", jobs=5)),
    "a tree with a job too few": ("jobs", lambda b: b.set("root", jobs=1)),
    "a tree without its jobs": ("jobs", lambda b: b.lose("root", "jobs")),
    "a tree with no job that counts none": ("jobs", lambda b: b.set("ended", jobs=0)),
    "a tree with a number of jobs that is none": ("jobs", lambda b: b.set("root", jobs="x")),
    "a job that is a leaf": ("leaf", lambda b: b.put(b.leaves, b.digits("running"))),
    "a job among the leaves of its tree": ("leaf", lambda b: b.redis.sadd(b.key("tree", "root"), b.digits("running"))),
    "wrong bytes held by a job": ("held", lambda b: b.set("waiting", held=1)),
    "nonsense in a queue": ("misnamed", lambda b: b.put(b.shared("queued:3"), "x y")),
    "nonsense in a line": ("misnamed", lambda b: b.put(_line(b), "x y")),
    "nonsense among leases": ("misnamed", lambda b: b.put(b.shared("leases"), "x")),
    "nonsense among logs": ("misnamed", lambda b: b.put(b.shared("logs"), "x")),
    "leases that are a string": ("shared-type", lambda b: b.redis.set(b.shared("leases"), "x")),
    "a queue that is a set": ("shared-type", lambda b: _instead(b, b.shared("queued:2"), "sadd", "x")),
    "a line that is a list": ("shared-type", lambda b: _instead(b, _line(b), "rpush", "x")),
    "an outbox that is a string": ("shared-type", lambda b: b.redis.set(b.shared("outbox"), "x")),
    "wrong bytes of all events": ("usage", lambda b: b.redis.incrby(b.shared("logged"), 5)),
    "bytes of all events that are none": ("usage", lambda b: b.redis.set(b.shared("logged"), "")),
    "no bytes of all events": ("usage", lambda b: b.redis.delete(b.shared("logged"))),
    "a secret that is cut": ("secret", lambda b: b.redis.set(b.shared("secret"), "x")),
    "a secret that is a set": ("shared-type", lambda b: b.redis.sadd(b.shared("secret"), "x")),
    "containers for ever": ("endless-note", lambda b: b.redis.hset(b.shared("containers:someone"), "x", "1")),
    "keyed requests for ever": ("endless-note", lambda b: b.redis.hset(b.shared("keyed:someone"), "x", "1")),
    "their ends for ever": ("endless-note", lambda b: b.put(b.shared("keyed-until:someone"), "x")),
    "an hour's usage for ever": ("endless-note", lambda b: b.redis.hset(b.shared("spent:5"), "a//m", "1 1 1 1 1")),
    "a note for ever": ("endless-note", lambda b: b.redis.set(b.shared("claim:00ff"), "x")),
    "approvals for ever": ("endless-note", lambda b: b.put(b.shared("approvals:someone"), "x")),
    "approvals used up that are a string": ("endless-note", lambda b: b.redis.set(b.shared("approved:someone"), "x")),
}

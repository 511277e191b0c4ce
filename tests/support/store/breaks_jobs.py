"""Ways to break jobs behind the store's back, one for everything that fsck can find about them; as breaks.py."""

from tests.support.store.breaks import Break, Broken
from tests.support.store.sample import TENANT

NOBODY = "0" * 48
WAITING = "2"
"""The level at which "waiting" and "other" wait."""


def _line(b: Broken, level: str = WAITING) -> str:
    return b.shared(f"line:{level}:{TENANT}")


async def _job(b: Broken, name: str, **fields: object) -> None:
    await b.redis.hset(b.key("job", name), mapping=fields)


async def _instead(b: Broken, key: str, *command: str) -> None:
    await b.redis.delete(key)
    await b.redis.execute_command(command[0], key, *command[1:])


JOB_BREAKS: dict[str, tuple[str, Break, tuple[str, ...]]] = {
    "a job that is gone": ("no-job", lambda b: b.redis.delete(b.key("job", "waiting")), ()),
    "a running job that is gone": ("no-job", lambda b: b.redis.delete(b.key("job", "running")), ()),
    "a job without its epoch": ("no-job", lambda b: b.redis.hdel(b.key("job", "running"), "epoch"), ()),
    "a job with tries that are none": ("no-job", lambda b: _job(b, "waiting", tries="many"), ()),
    "a job at a level that is none": ("no-job", lambda b: _job(b, "waiting", level=7), ()),
    "a job without its last event": ("no-job", lambda b: b.redis.hdel(b.key("job", "resumed"), "last"), ()),
    "a job that is a string": ("mistyped", lambda b: b.redis.set(b.key("job", "running"), "x"), ()),
    "a spec that is gone": ("no-work", lambda b: b.redis.delete(b.key("spec", "waiting")), ()),
    "a spec that is empty": ("no-work", lambda b: b.redis.set(b.key("spec", "running"), b""), ()),
    "a cancelled job without a spec": ("no-work", lambda b: b.redis.delete(b.key("spec", "cancelled")), ()),
    "a response of a job that is gone": (
        "no-response",
        lambda b: b.redis.delete(b.key("response", "running")),
        ("running",),
    ),
    "messages of a job that are gone": (
        "no-messages",
        lambda b: b.redis.delete(b.key("messages", "running")),
        ("running",),
    ),
    "a root above jobs that is gone": (
        "no-parent",
        lambda b: b.redis.delete(b.key("node", "root")),
        ("root", "waiting", "running", "ended"),
    ),
    "a job out of the queue": (
        "no-place",
        lambda b: b.redis.zrem(b.shared(f"queued:{WAITING}"), b.member("waiting")),
        (),
    ),
    "a job out of its line": ("no-place", lambda b: b.redis.zrem(_line(b), b.digits("waiting")), ()),
    "a job at another place in its line": ("no-place", lambda b: b.redis.zadd(_line(b), {b.digits("waiting"): 1}), ()),
    "a tenant without a turn": ("no-place", lambda b: b.redis.zrem(b.shared(f"turn:{WAITING}"), TENANT), ()),
    "a turn that never comes": ("no-place", lambda b: b.redis.zadd(b.shared(f"turn:{WAITING}"), {TENANT: "inf"}), ()),
    "no queue": ("no-place", lambda b: b.redis.delete(b.shared(f"queued:{WAITING}")), ()),
    "a lease that is gone": ("no-place", lambda b: b.redis.zrem(b.shared("leases"), b.member("running")), ()),
    "a lease that never ends": (
        "no-place",
        lambda b: b.redis.zadd(b.shared("leases"), {b.member("running"): "inf"}),
        (),
    ),
    "a job that waits and is held": ("no-place", lambda b: _job(b, "running", level=WAITING), ()),
    "a job that neither waits nor is held": ("no-place", lambda b: _job(b, "running", token=""), ()),
    "a job of a digest of its own": ("standing", lambda b: b.set("running", digest="0" * 32), ()),
    "a job without its submission": ("standing", lambda b: b.lose("waiting", "submission"), ()),
    "a job without its mode": ("standing", lambda b: b.lose("waiting", "background"), ()),
    "a job that may be continued": ("standing", lambda b: b.set("running", continuable=1), ()),
    "a job that has ended by its status": ("standing", lambda b: b.set("running", status="completed"), ()),
    "a queued job that has started": ("standing", lambda b: b.set("running", status="queued"), ()),
    "a running job that never started": ("standing", lambda b: b.redis.hdel(b.key("job", "running"), "started"), ()),
    "an end that is none": ("standing", lambda b: b.set("ended", status="in_progress"), ()),
    "a fleeting response to be continued": ("standing", lambda b: b.set("fleeting", continuable=1), ()),
    "a log that is gone": ("events", lambda b: b.redis.delete(b.key("log", "running")), ()),
    "a log of what has ended that is gone": ("events", lambda b: b.redis.delete(b.key("log", "ended")), ()),
    "a log that is noted nowhere": ("events", lambda b: b.lose("ended", "log_bytes"), ()),
    "a log that would stay for ever": ("events", lambda b: b.redis.zrem(b.shared("logs"), b.member("ended")), ()),
    "a log that ends in a thousand years": (
        "events",
        lambda b: b.redis.zadd(b.shared("logs"), {b.member("ended"): 4e13}),
        (),
    ),
    "an event that is gone": (
        "events",
        lambda b: b.redis.xtrim(b.key("log", "running"), maxlen=1, approximate=False),
        (),
    ),
    "an event of somebody else's": ("events", lambda b: b.redis.xadd(b.key("log", "running"), {"b": "x"}), ()),
    "a wrong number of the last event": ("events", lambda b: _job(b, "running", last=1), ()),
    "wrong bytes of events": ("events", lambda b: _job(b, "running", log_bytes=1), ()),
    "wrong bytes of events of what has ended": ("events", lambda b: b.set("ended", log_bytes="many"), ()),
    "a snapshot that is gone": ("events", lambda b: b.redis.delete(b.key("snapshot", "running")), ()),
    "a snapshot that is none": ("events", lambda b: b.redis.set(b.key("snapshot", "running"), b"\1"), ()),
    "a snapshot of what has ended": ("events", lambda b: b.redis.set(b.key("snapshot", "ended"), b"1 x"), ()),
    "a log that is a string": ("mistyped", lambda b: b.redis.set(b.key("log", "running"), "x"), ()),
    "a job of what has ended": ("stray-job", lambda b: b.redis.hset(b.key("job", "ended"), "own", 1), ()),
    "a spec of what has ended": ("stray-job", lambda b: b.redis.set(b.key("spec", "plain"), "x"), ()),
    "a job of a deleted turn": ("stray-job", lambda b: b.redis.hset(b.key("job", "deleted"), "own", 1), ()),
    "a job without a node": ("no-node", lambda b: b.redis.delete(b.key("node", "single")), ("single",)),
    "a log without a node": ("no-node", lambda b: b.redis.xadd(b.shared(f"t:{TENANT}:log:{NOBODY}"), {"b": "x"}), ()),
    "nobody in a queue": ("stray-place", lambda b: b.redis.zadd(b.shared("queued:1"), {f"{TENANT}/{NOBODY}": 1}), ()),
    "nobody with hours": ("stray-place", lambda b: b.redis.zadd(b.shared("accepted:4"), {f"{TENANT}/{NOBODY}": 1}), ()),
    "a job without hours that has some": (
        "stray-place",
        lambda b: b.redis.zadd(b.shared("accepted:5"), {b.member("waiting"): 1}),
        (),
    ),
    "hours that are a string": ("shared-type", lambda b: b.redis.set(b.shared("accepted:4"), "x"), ()),
    "groups for ever": ("endless-note", lambda b: b.redis.zadd(b.shared("groups:someone"), {"x": 1}), ()),
    "nobody in a line": ("stray-place", lambda b: b.redis.zadd(_line(b, "3"), {NOBODY: 1}), ()),
    "nobody with a lease": ("stray-place", lambda b: b.redis.zadd(b.shared("leases"), {f"{TENANT}/{NOBODY}": 1}), ()),
    "nobody among logs": ("stray-place", lambda b: b.redis.zadd(b.shared("logs"), {f"{TENANT}/{NOBODY}": 1}), ()),
    "a lease of what has ended": (
        "stray-place",
        lambda b: b.redis.zadd(b.shared("leases"), {b.member("ended"): 1}),
        (),
    ),
    "a log of a job among those to go": (
        "stray-place",
        lambda b: b.redis.zadd(b.shared("logs"), {b.member("running"): 1}),
        (),
    ),
    "a job in two queues": ("stray-place", lambda b: b.redis.zadd(b.shared("queued:1"), {b.member("waiting"): 1}), ()),
    "a tree with a job too many": ("jobs", lambda b: b.set("root", jobs=5), ()),
    "a tree with a job too few": ("jobs", lambda b: b.set("root", jobs=1), ()),
    "a tree without its jobs": ("jobs", lambda b: b.lose("root", "jobs"), ()),
    "a tree with no job that counts none": ("jobs", lambda b: b.set("ended", jobs=0), ()),
    "a tree with a number of jobs that is none": ("jobs", lambda b: b.set("root", jobs="x"), ()),
    "a job that is a leaf": ("leaf", lambda b: b.redis.zadd(b.leaves, {b.digits("running"): 1}), ()),
    "a job among the leaves of its tree": (
        "leaf",
        lambda b: b.redis.sadd(b.key("tree", "root"), b.digits("running")),
        (),
    ),
    "wrong bytes held by a job": ("held", lambda b: b.set("waiting", held=1), ()),
    "nonsense in a queue": ("misnamed", lambda b: b.redis.zadd(b.shared("queued:3"), {"x y": 1}), ()),
    "nonsense in a line": ("misnamed", lambda b: b.redis.zadd(_line(b), {"x y": 1}), ()),
    "nonsense among leases": ("misnamed", lambda b: b.redis.zadd(b.shared("leases"), {"x": 1}), ()),
    "nonsense among logs": ("misnamed", lambda b: b.redis.zadd(b.shared("logs"), {"x": 1}), ()),
    "leases that are a string": ("shared-type", lambda b: b.redis.set(b.shared("leases"), "x"), ()),
    "a queue that is a set": ("shared-type", lambda b: _instead(b, b.shared(f"queued:{WAITING}"), "sadd", "x"), ()),
    "a line that is a list": ("shared-type", lambda b: _instead(b, _line(b), "rpush", "x"), ()),
    "an outbox that is a string": ("shared-type", lambda b: b.redis.set(b.shared("outbox"), "x"), ()),
    "wrong bytes of all events": ("usage", lambda b: b.redis.incrby(b.shared("logged"), 5), ()),
    "bytes of all events that are none": ("usage", lambda b: b.redis.set(b.shared("logged"), ""), ()),
    "no bytes of all events": ("usage", lambda b: b.redis.delete(b.shared("logged")), ()),
    "a secret that is cut": ("secret", lambda b: b.redis.set(b.shared("secret"), "x"), ()),
    "a secret that is a set": ("shared-type", lambda b: b.redis.sadd(b.shared("secret"), "x"), ()),
    "containers for ever": ("endless-note", lambda b: b.redis.hset(b.shared("containers:someone"), "x", "1"), ()),
    "keyed requests for ever": ("endless-note", lambda b: b.redis.hset(b.shared("keyed:someone"), "x", "1"), ()),
    "their ends for ever": ("endless-note", lambda b: b.redis.zadd(b.shared("keyed-until:someone"), {"x": 1}), ()),
    "an hour's usage for ever": ("endless-note", lambda b: b.redis.hset(b.shared("spent:5"), "a//m", "1 1 1 1 1"), ()),
    "a note for ever": ("endless-note", lambda b: b.redis.set(b.shared("claim:00ff"), "x"), ()),
    "approvals for ever": ("endless-note", lambda b: b.redis.zadd(b.shared("approvals:someone"), {"x": 1}), ()),
    "approvals used up that are a string": (
        "endless-note",
        lambda b: b.redis.set(b.shared("approved:someone"), "x"),
        (),
    ),
}
"""What somebody does behind the store's back: the word for it, how, and which responses are unknown after a repair."""

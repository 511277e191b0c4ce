"""The arguments and replies of scripts about jobs, turned from and into the values and errors of this room."""

from collections.abc import Sequence

from store.errors import LeaseLost, LogBehind, NotFound, NotSteerable, Steered, SteersFull
from store.jobs.model import Job, Lease, Priority, Steer, WaitingTenant
from store.keys import id_of
from store.turn import TERMINAL, Status, Turn


def check_end(lease: Lease, turn: Turn) -> None:
    """Raise ValueError for a turn that no job with this lease can end with."""
    if turn.id != lease.id or turn.status not in TERMINAL:
        raise ValueError(f"{lease.id} can't end with {turn.id}, which is {turn.status}")


def ids_of(steers: Sequence[Steer]) -> str:
    """The ids of steers, as a script's argument."""
    return " ".join(steer.id for steer in steers)


def number_of(after: int | None) -> str:
    """The number of an event, as a script's argument."""
    return "" if after is None else str(after)


def refuse_lease(word: bytes, detail: list[bytes], id: str) -> None:
    """Raise the error for a script's reply about the writer of a job's log, if it is a refusal."""
    if word == b"lost":
        raise LeaseLost(id)
    if word == b"behind":
        raise LogBehind(id, int(detail[0]))


def refuse_steer(word: bytes, detail: list[bytes], id: str) -> None:
    """Raise the error for a script's reply about a steer, if it is a refusal."""
    if word == b"missing":
        raise NotFound(id)
    if word in (b"ended", b"unsteerable"):
        raise NotSteerable(id, detail[0].decode() if detail else None)
    if word == b"many":
        raise SteersFull(id)


def refuse_end(word: bytes, detail: list[bytes], turn: Turn) -> None:
    """Raise the error for a script's reply about how a response ends, if it is a refusal."""
    refuse_lease(word, detail, turn.id)
    if word == b"steered":
        raise Steered(turn.id)
    if word == b"illegal":
        raise ValueError(f"{turn.id} is {detail[0].decode()} and can't become {turn.status}")
    if word == b"written":
        raise ValueError(f"the log of {turn.id} has event {detail[0].decode()}, so it can't end again")


def job_of(row: bytes, token: str) -> Job:
    member, epoch, status, own, tries, last, *spans = row.decode().split()
    tenant, _, digits = member.partition("/")
    age, run, waited = (max(0, int(span)) / 1000 for span in spans)
    lease, priority = Lease(tenant, id_of(digits), token), Priority(int(own))
    return Job(lease, int(epoch), Status(status), int(tries), int(last), age, run, waited, priority)


def waiting_of(row: str) -> WaitingTenant:
    tenant, level, jobs, ms = row.split()
    return WaitingTenant(tenant, int(level), int(jobs), max(0, int(ms)) / 1000)

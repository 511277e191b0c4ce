"""The seccomp filter of a session: which calls of the kernel it may make, and with which arguments.

The filter refuses calls that aren't listed, so it refuses those of later kernels too. Landlock rules over files alone.
This filter rules over calls that reach other processes of the same user (signals, limits, priorities, the owner of a
pipe), the network, and files past Landlock (modes and times, which it doesn't know). One process is one session: no
fork, no other program; threads are possible. Pure: it makes a program, and `confine` installs it.
"""

import struct

ARCHITECTURES = {"x86_64": 0, "aarch64": 1}
"""The column of NUMBERS that a machine has."""

_AUDIT = (0xC000003E, 0xC00000B7)
_X32_BIT = 0x40000000

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    name: (None if x86 == "-" else int(x86), None if arm == "-" else int(arm))
    for name, x86, arm in (
        entry.split()
        for entry in """
        futex 202 98; read 0 63; write 1 64; mmap 9 222; munmap 11 215; mprotect 10 226; brk 12 214; madvise 28 233;
        newfstatat 262 79; fstat 5 80; stat 4 -; lstat 6 -; lseek 8 62; close 3 57; getdents64 217 61;
        clock_gettime 228 113; rt_sigaction 13 134; rt_sigprocmask 14 135; rt_sigreturn 15 139; gettid 186 178;
        poll 7 -; pread64 17 67; pwrite64 18 68; readv 19 65; writev 20 66; access 21 -; pipe 22 -; select 23 -;
        sched_yield 24 124; mremap 25 216; msync 26 227; mincore 27 232; dup 32 23; dup2 33 -; pause 34 -;
        nanosleep 35 101; getitimer 36 102; alarm 37 -; setitimer 38 103; getpid 39 172; sendfile 40 71; exit 60 93;
        uname 63 160; flock 73 32; fsync 74 82; fdatasync 75 83; ftruncate 77 46; getdents 78 -; getcwd 79 17;
        chdir 80 49; fchdir 81 50; rename 82 -; mkdir 83 -; rmdir 84 -; creat 85 -; unlink 87 -; readlink 89 -;
        umask 95 166; gettimeofday 96 169; getrlimit 97 163; getrusage 98 165; sysinfo 99 179; times 100 153;
        getuid 102 174; getgid 104 176; geteuid 107 175; getegid 108 177; getppid 110 173; getgroups 115 158;
        getresuid 118 148; getresgid 120 150; rt_sigpending 127 136; rt_sigtimedwait 128 137; rt_sigsuspend 130 133;
        sigaltstack 131 132; statfs 137 43; fstatfs 138 44; setrlimit 160 164; epoll_create 213 -;
        set_tid_address 218 96; restart_syscall 219 128; fadvise64 221 223;
        clock_getres 229 114; clock_nanosleep 230 115; exit_group 231 94; epoll_wait 232 -; epoll_ctl 233 21;
        mkdirat 258 34; unlinkat 263 35; renameat 264 38; readlinkat 267 78; faccessat 269 48; pselect6 270 72;
        ppoll 271 73; set_robust_list 273 99; epoll_pwait 281 22; eventfd 284 -; eventfd2 290 19;
        timerfd_create 283 85; timerfd_settime 286 86; timerfd_gettime 287 87; epoll_create1 291 20; dup3 292 24;
        pipe2 293 59; preadv 295 69; pwritev 296 70; getcpu 309 168; getrandom 318 278;
        membarrier 324 283; copy_file_range 326 285; preadv2 327 286; pwritev2 328 287; statx 332 291; rseq 334 293;
        close_range 436 436; faccessat2 439 439; epoll_pwait2 441 441; futex_waitv 449 449; getsockopt 55 209;
        shutdown 48 210; recvfrom 45 207
        """.replace("\n", " ").split(";")
    )
}
"""Calls that a session may make with any arguments, those first that are made most, with their numbers."""

WITHOUT_EFFECT = (
    *((90, None), (91, 52), (268, 53), (452, 452)),  # chmod, fchmod, fchmodat, fchmodat2
    *((132, None), (235, None), (261, None), (280, 88)),  # utime, utimes, futimesat, utimensat
)
"""Modes and times of files: Landlock doesn't guard them, so a session could change those of every file of its user.
They succeed and do nothing, as libraries make them after every copy, and would fail.
"""

_FALLOCATE = (285, 47)
"""Takes any amount of the disk at once, before anybody sees it. Libraries that hear that a file can't do it write."""

_OPEN, _OPENAT = (2, None), (257, 56)
_IOCTL, _FCNTL = (16, 29), (72, 25)
_KILL, _TGKILL = (62, 129), (234, 131)
_CLONE, _CLONE3 = (56, 220), (435, 435)
_PRLIMIT, _PRCTL, _AFFINITY = (302, 261), (157, 167), (204, 123)
_SOCKETPAIR, _SENDTO = (53, 199), (44, 206)

_RENAMEAT2 = (316, 276)

_O_TRUNC, _O_ACCMODE = 0o1000, 0o3
_IOCTLS = (0x5421, 0x5451, 0x5450, 0x541B, 0x5401, 0x5413)
"""FIONBIO, FIOCLEX, FIONCLEX, FIONREAD, TCGETS, TIOCGWINSZ."""

_FCNTLS = (0, 1, 2, 3, 4, 5, 1030, 1032)
"""All that concern one's own files. F_SETOWN and F_SETSIG send signals to others."""

_LOCKS = (6, 7)
"""F_SETLK and F_SETLKW, for which sqlite asks: a process is never in its own way, so for a session they do nothing, and
would be memory of the kernel without a bound.
"""

_RENAMES = (0, 1, 2)
"""Plain, RENAME_NOREPLACE and RENAME_EXCHANGE. RENAME_WHITEOUT makes a device."""

_PRCTLS = (15, 16)
"""A thread's name. PR_SET_PDEATHSIG would let a session outlive the process that runs it."""

_CLONE_THREAD, _CLONE_FILES, _CLONE_NEW = 0x00010000, 0x00000400, 0x7E020000
_AF_UNIX = 1

_NEW_CALLS = 424
"""From here on all machines have the same numbers. glibc falls back from a new call where that says ENOSYS."""

_LOAD, _AND, _EQUALS, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS, _EOPNOTSUPP, _NOTHING = 0x00050001, 0x00050026, 0x0005005F, 0x00050000
_NUMBER, _ARCH = 0, 4

Instruction = tuple[int, int, int, int]


def program(machine: str, pid: int) -> bytes:
    """The filter of the session that is process `pid`, for `machine`, one of ARCHITECTURES."""
    column = ARCHITECTURES[machine]
    made = [(_LOAD, 0, 0, _ARCH), (_EQUALS, 1, 0, _AUDIT[column]), (_RETURN, 0, 0, _KILL_PROCESS)]
    made.append((_LOAD, 0, 0, _NUMBER))
    if machine == "x86_64":
        made += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    for numbers in NUMBERS.values():
        made += _rule(numbers[column], [(_RETURN, 0, 0, _ALLOW)])
    for numbers in WITHOUT_EFFECT:
        made += _rule(numbers[column], [(_RETURN, 0, 0, _NOTHING)])
    for numbers, body in _guarded_calls(pid):
        made += _rule(numbers[column], body)
    made += [(_AT_LEAST, 0, 1, _NEW_CALLS), (_RETURN, 0, 0, _ENOSYS), (_RETURN, 0, 0, _EPERM)]
    return b"".join(struct.pack("<HBBI", *each) for each in made)


def _guarded_calls(pid: int) -> list[tuple[tuple[int | None, int | None], list[Instruction]]]:
    """The calls that are allowed with some arguments alone."""
    own, nobody_else = _only(0, pid), _only(0, 0)
    return [
        (_OPEN, _plain_modes(1)),
        (_OPENAT, _plain_modes(2)),
        (_RENAMEAT2, _only(4, *_RENAMES)),
        (_FALLOCATE, [(_RETURN, 0, 0, _EOPNOTSUPP)]),
        (_IOCTL, _only(1, *_IOCTLS)),
        (_FCNTL, _without_locks()),
        (_KILL, own),
        (_TGKILL, own),
        (_PRLIMIT, nobody_else),
        (_AFFINITY, nobody_else),
        (_PRCTL, _only(0, *_PRCTLS)),
        (_SOCKETPAIR, _only(0, _AF_UNIX)),
        (_SENDTO, _to_nobody_by_name()),
        (_CLONE, _threads_alone()),
        (_CLONE3, [(_RETURN, 0, 0, _ENOSYS)]),  # its flags can't be read; glibc then takes clone
    ]


def _rule(number: int | None, body: list[Instruction]) -> list[Instruction]:
    """The rule for the call `number`; every body ends with a return. The number is in the accumulator."""
    return [] if number is None else [(_EQUALS, 0, len(body), number), *body]


def _argument(place: int, *, high: bool = False) -> Instruction:
    """Load a half of an argument of the call: both machines are little-endian."""
    return _LOAD, 0, 0, 16 + 8 * place + 4 * high


def _only(place: int, *values: int) -> list[Instruction]:
    """Allow it where the argument, an int, is one of these."""
    body = [_argument(place)]
    body += [(_EQUALS, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [*body, (_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]


def _plain_modes(place: int) -> list[Instruction]:
    """Refuse to open for neither reading nor writing, which Landlock has no right for, and which opens devices; and to
    empty a file that is opened to be read, which the first two versions of Landlock would let.
    """
    tests = [(_AND, 0, 0, _O_TRUNC | _O_ACCMODE), (_EQUALS, 2, 0, _O_TRUNC)]
    tests += [(_AND, 0, 0, _O_ACCMODE), (_EQUALS, 0, 1, _O_ACCMODE)]
    return [_argument(place), *tests, (_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]


def _without_locks() -> list[Instruction]:
    """Allow some of `fcntl`, and let it do nothing for locks."""
    locks = [(_argument(1))]
    for command in _LOCKS:
        locks += [(_EQUALS, 0, 1, command), (_RETURN, 0, 0, _NOTHING)]
    return [*locks, *_only(1, *_FCNTLS)]


def _to_nobody_by_name() -> list[Instruction]:
    """Allow to send where no address is named: to the other end of one's own pair."""
    halves = [(_argument(4)), (_EQUALS, 0, 3, 0), _argument(4, high=True), (_EQUALS, 0, 1, 0)]
    return [*halves, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)]


def _threads_alone() -> list[Instruction]:
    """Allow a new thread, in the same namespaces and with the same open files: nobody would know of any other."""
    tests = [
        _argument(0),
        (_ANY_BIT, 3, 0, _CLONE_NEW),
        (_ANY_BIT, 0, 2, _CLONE_THREAD),
        (_ANY_BIT, 0, 1, _CLONE_FILES),
    ]
    return [*tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)]

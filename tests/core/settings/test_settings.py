"""Settings: where they come from, what is refused and with which words, and what is never shown."""

from pathlib import Path

import pytest

from service.process import Settings, load_settings
from service.settings.core import ApiKey, is_loopback, parse_api_keys
from service.settings.group import display
from service.settings.sources import SettingsError, service_links, variable
from service.settings.units import unit_of

SECRET = "sk-very-secret"
SEAL_KEY = f"{SECRET}-{'0' * 32}"


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_override_wins_over_the_environment_which_wins_over_the_env_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("HARMONIUM_PORT=1\nHARMONIUM_WORKERS=2\nHARMONIUM_MODEL=demo-m\nOTHER=x\n")
    monkeypatch.setenv("HARMONIUM_PORT", "3")
    monkeypatch.setenv("HARMONIUM_WORKERS", "4")
    settings = load_settings(port=5, host=None)
    assert (settings.port, settings.workers, settings.model) == (5, 4, "demo-m")


def test_an_env_file_of_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HARMONIUM_PORT=1\n", encoding="utf-16")
    with pytest.raises(SettingsError, match=rf"{tmp_path}/\.env is no text in UTF-8; save it as such"):
        load_settings()


@pytest.mark.parametrize("line", ["{}: {}", '{}="{}', "{} {}", "export {}='{}"])
def test_a_line_of_an_env_file_that_cannot_be_read_is_named_and_not_passed_over(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(f"OTHER: x\nHARMONIUM_PORT=1\n{line.format('HARMONIUM_API_KEYS', SECRET)}\n")
    with pytest.raises(SettingsError, match=rf"^{tmp_path}/\.env, line 3: should be NAME=VALUE") as caught:
        load_settings()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("rest", [f"{SECRET}/more@host", f"{SECRET}[@host", f"{SECRET}@host,other:99999"])
def test_a_url_of_a_catalogue_that_cannot_be_read_is_refused_at_the_start_and_not_shown(rest: str) -> None:
    with pytest.raises(SettingsError, match=r"^--catalogue-url: should be a URL, with / ") as caught:
        load_settings(catalogue_url=f"postgresql://me:{rest}/database")
    assert SECRET not in str(caught.value)
    load_settings(catalogue_url="postgresql://me:a%2Fb@host:5432,[::1]:5433/database")


@pytest.mark.parametrize("path", ["", " "])
def test_an_empty_data_folder_is_not_the_one_in_which_the_process_runs(path: str) -> None:
    with pytest.raises(SettingsError, match=rf"^--data-dir {path}: should be a folder; name one, or leave it out$"):
        load_settings(data_dir=path)


@pytest.mark.parametrize("key", [" x", "x y", "x\t", "clé"])
def test_a_key_for_metrics_that_no_scraper_can_send_is_refused(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("HARMONIUM_METRICS_KEY", key)
    with pytest.raises(SettingsError, match=r"^HARMONIUM_METRICS_KEY: should be 1 to 512 printable ASCII characters"):
        load_settings()


def test_an_unknown_variable_is_refused_and_the_nearest_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONIUM_MAX_BODY_BITES", "1")
    with pytest.raises(SettingsError, match="BITES is not a setting; did you mean HARMONIUM_MAX_BODY_BYTES"):
        load_settings()


def test_what_is_wrong_is_named_as_it_was_given_with_its_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARMONIUM_WORKERS", "many")
    (tmp_path / ".env").write_text("HARMONIUM_ENGINE=steam\nHARMONIUM_WORKERS=2\nHARMONIUM_STORE=maybe\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(port=70_000)
    assert sorted(str(caught.value).split("; ")) == [
        "--port 70000: should be a whole number, 0 to 65,535",
        "HARMONIUM_ENGINE in .env=steam: should be demo, vllm, vllm-local, llama, llama-local or chat",
        "HARMONIUM_STORE in .env=maybe: should be true or false",
        "HARMONIUM_WORKERS=many: should be a whole number, 1 to 64",
    ]


def test_the_demo_engine_takes_no_name_of_a_model_once_something_names_an_engine() -> None:
    load_settings(engine="demo", model="demo-a")
    with pytest.raises(SettingsError, match=r"^HARMONIUM_MODEL: 'gpt-oss-20b' is a model's name"):
        load_settings(model="gpt-oss-20b")
    with pytest.raises(SettingsError, match=r"^HARMONIUM_MODEL_ALIASES: 'gpt-4o' is a model's name"):
        load_settings(engine="demo", model_aliases="demo-a,gpt-4o")


def test_servers_without_the_name_of_their_engine_are_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(engine_url="http://gpu:8000").engine == "vllm"
    monkeypatch.setenv("HARMONIUM_ENGINE_URL", "http://gpu:8000")
    assert (load_settings().engine, load_settings(engine="demo").engine) == ("vllm", "demo")


def test_sizes_and_times_take_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text, value in (
        ("max_bytes", "4GiB", 4 << 30),
        ("idle_days", "12h", 0.5),
        ("lease_seconds", "6500ms", 6.5),
        ("shutdown_seconds", "1m", 60),
    ):
        monkeypatch.setenv(variable(name), text)
        assert getattr(load_settings(), name) == value


def test_every_size_and_time_takes_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    sized = [name for name in Settings.model_fields if unit_of(name)]
    assert len(sized) >= 15
    for name in sized:
        with monkeypatch.context() as patch:
            patch.setenv(variable(name), "1parsec")
            with pytest.raises(SettingsError, match=rf"{variable(name)}=1parsec: should be a number.* with a unit: "):
                load_settings()


SERVICE_LINKS = {
    "HARMONIUM_SERVICE_HOST": "10.96.3.4",
    "HARMONIUM_SERVICE_PORT": "8000",
    "HARMONIUM_SERVICE_PORT_HTTP": "8000",
    "HARMONIUM_PORT": "tcp://10.96.3.4:8000",
    "HARMONIUM_PORT_8000_TCP": "tcp://10.96.3.4:8000",
    "HARMONIUM_PORT_8000_TCP_PROTO": "tcp",
    "HARMONIUM_PORT_8000_TCP_PORT": "8000",
    "HARMONIUM_PORT_8000_TCP_ADDR": "10.96.3.4",
    "HARMONIUM_REDIS_SERVICE_HOST": "10.96.3.5",
    "HARMONIUM_WORKER_SERVICE_PORT_METRICS": "9000",
    "HARMONIUM_WORKER_PORT": "tcp://10.96.3.6:9000",
    "HARMONIUM_DNS_PORT_53_UDP": "udp://10.96.3.7:53",
}
"""What Kubernetes puts into pods for Services named harmonium, harmonium-redis, -worker and -dns."""


def test_what_kubernetes_puts_into_a_pod_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HARMONIUM_WORKER_PORT=9001\n")
    for name, value in SERVICE_LINKS.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.port, settings.worker_port) == (8000, 9001)
    assert service_links() == sorted(SERVICE_LINKS)


def test_a_name_that_only_looks_like_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PORT": "tcp:8000", "PORTS": "tcp://10.96.3.4:8000", "REDIS_PORT": "6379"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(f"HARMONIUM_{name}", value)
            with pytest.raises(SettingsError, match=f"HARMONIUM_{name}"):
                load_settings()


def test_a_host_that_others_can_reach_needs_a_key_and_loopback_none() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert load_settings(host=host).host == host
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com", ""):
        assert not is_loopback(host)
        with pytest.raises(SettingsError, match="set HARMONIUM_API_KEYS"):
            load_settings(host=host)
        assert load_settings(host=host, api_keys=SECRET).host == host


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"engine_url": "10.0.0.5:8000"}, "--engine-url: should be URLs that begin with http://"),
        ({"engine_url": f"http://me:{SECRET}@10.0.0.5"}, "put the key into HARMONIUM_ENGINE_API_KEY"),
        ({"engine_url": "http://a,http://a/"}, "names a server twice"),
        ({"engine": "llama-local"}, "llama-local needs HARMONIUM_LOCAL_MODEL"),
        ({"cors_origins": "https://chat.example.com"}, "CORS_ORIGINS lets web pages call the service, but no API"),
        ({"store_replicas": 1}, "--store-replicas 1 needs replicas"),
        ({"api_keys": "a:k,b:l", "priority_tenants": "b, c"}, "PRIORITY_TENANTS names c, without a key"),
        ({"context_tokens": 1023}, "--context-tokens 1023: should be 0, or at least 1024"),
        ({"tenant_weights": "default=0"}, "each tenant once and its weight from 0.01 to 1,000"),
        ({"tenant_weights": "default=1,default=2"}, "each tenant once"),
        ({"cors_origins": f"https://me:{SECRET}@b", "api_keys": "k"}, r"\*\*\*\*@b: entry 1 is no origin"),
        ({"pictures": "request=0"}, "each name once"),
        ({"admin_key": "short"}, "--admin-key: should be 20 to 512 printable"),
        ({"admin_key": f"{SECRET}{SECRET}", "api_keys": f"{SECRET}{SECRET}"}, "ADMIN_KEY is one of HARMONIUM_API_KEYS"),
        (
            {"admin_key": f"{SECRET}{SECRET}", "metrics_key": f"{SECRET}{SECRET}"},
            "ADMIN_KEY is also HARMONIUM_METRICS_KEY",
        ),
        ({"engine_api_key": f"{SECRET}\n"}, "--engine-api-key: should be 1 to 512 printable"),
        ({"local_args": "max_model_len=4096"}, "--local-args: should be a JSON object"),
        ({"engine": "vllm-local", "workers": 2}, "would load the model 2 times"),
        ({"redis_url": "localhost:6379"}, "redis://"),
        ({"redis_url": "redis+sentinel://h:26379"}, "name the service that the Sentinels watch"),
        ({"redis_url": "redis+cluster://h:6379/1"}, "a cluster has only one"),
        ({"max_bytes": 100 << 20}, "--max-bytes 104857600 has no room for 4 conversations"),
        ({"lease_seconds": 5}, "--lease-seconds 5 is too short for HARMONIUM_STORE_TIMEOUT_SECONDS=2: .* 5.25 s"),
        ({"conversation_idle_days": 29}, "--conversation-idle-days 29 is less than HARMONIUM_IDLE_DAYS=30"),
        ({"idle_days": 0.005}, "--idle-days 0.005 is 432 s, and one response may take 780 s"),
        ({"seal_keys": f"{SEAL_KEY},{SECRET}"}, "--seal-keys: entry 2: should be 32 to 512 printable"),
        ({"seal_keys": f"{SEAL_KEY},{SEAL_KEY}"}, "--seal-keys: entry 2: this key is listed twice"),
        ({"prompts_dir": "/nowhere"}, "--prompts-dir /nowhere: should be a folder that exists"),
        ({"redis_prefix": "a{b}"}, "--redis-prefix a{b}: "),
        ({"pictures": "urls=http://x"}, "HOST"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_reason(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        load_settings(**wrong)
    assert SECRET not in str(caught.value)


def test_a_key_belongs_to_the_tenant_before_the_colon_or_to_the_default_one() -> None:
    keys = [(tenant, key.get_secret_value()) for tenant, key in parse_api_keys(" one, acme:two:three ,")]
    assert keys == [("default", "one"), ("acme", "two:three")]


def test_a_malformed_key_is_refused_without_being_shown() -> None:
    twice = (f"acme:{SECRET},{SECRET}", "entry 2: this key is listed twice")
    spaced, none = (f"ok,{SECRET} x", "entry 2: a key"), (" ,,", "no key between its commas")
    for keys, reason in ((f"a b:{SECRET}", "entry 1: a tenant's name"), spaced, twice, none):
        with pytest.raises(SettingsError, match=reason) as caught:
            load_settings(api_keys=keys)
        assert SECRET not in str(caught.value)


def test_no_form_of_the_settings_shows_a_secret() -> None:
    settings = load_settings(
        api_keys=f"acme:{SECRET}",
        redis_url=f"redis://me:{SECRET}@host/0?password={SECRET}",
        seal_keys=f"{SEAL_KEY}, new-{SEAL_KEY},",
    )
    shown = display(settings)
    assert SECRET not in f"{settings!r} {settings} {shown}"
    assert shown["api_keys"] == "acme:****"
    assert shown["redis_url"] == "redis://me:****@host/0?password=****"
    assert shown["seal_keys"] == "****,****"
    assert isinstance(settings.api_keys[0], ApiKey)
    assert [key.get_secret_value() for key in settings.seal_keys] == [SEAL_KEY, f"new-{SEAL_KEY}"]


def test_no_form_of_a_url_shows_a_password() -> None:
    for url in (
        "rediss+cluster://me:****@h1:1,h2:2?x=y",
        "redis+sentinel://:****@h/s?sentinel_password=****",
        "rediss://h?ssl_password=****&db=1",
        "unix://me:****@/run/s.sock?db=1",
    ):
        assert display(load_settings(redis_url=url.replace("****", SECRET)))["redis_url"] == url

"""A group of settings: a `BaseSettings` with a heading, and the types that groups have in common.

A feature brings its own group. The text below each setting is its help and its documentation; a type says how its
values are shown. Never print a key: keys are SecretStr, and `display` masks them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from service.settings.sources import (
    ENV_FILE,
    PREFIX,
    GivenSources,
    InFile,
    SecretFileSource,
    SettingsError,
    SourcedSettings,
    Sources,
    in_files,
    option,
    variable,
)
from service.settings.units import EXAMPLES, in_unit, unit_of, with_unit
from service.settings.urls import MASK, mask_secrets
from service.stability import EXPERIMENTAL

MAX_KEY_CHARS = 512
MAX_SHOWN_CHARS = 100
KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY_CHARS}}}")


def shown_as(text: Callable[[Any], str]) -> PlainSerializer:
    """The text of a value where settings are displayed."""
    return PlainSerializer(text, return_type=str, when_used="json")


def parsed_by(parse: Callable[[str], object]) -> BeforeValidator:
    """Text is parsed; anything else is as it is."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def each_is(is_right: Callable[[str], object], wrong: str) -> AfterValidator:
    """A check of each word of a list; `wrong` is what a wrong one isn't, with what to write."""

    def check(words: tuple[str, ...]) -> tuple[str, ...]:
        for place, word in enumerate(words, start=1):
            if not is_right(word):
                raise ValueError(f"entry {place} is no {wrong}")
        return words

    return AfterValidator(check)


def with_extra(extra: str) -> str:
    """The remedy where packages of an extra are missing."""
    return f"install harmonium with the extra {extra} (docs/deploy.md#extras)"


def needs_package(package: str, extra: str, *, unless: object) -> AfterValidator:
    """A check that a package is installed, `unless` a value needs none; `extra` brings it."""

    def check(value: object) -> object:
        if value != unless and find_spec(package) is None:
            raise ValueError(f"needs the package {package}, which is not installed; {with_extra(extra)}")
        return value

    return AfterValidator(check)


def whole(path: Path) -> Path:
    return path.expanduser().absolute()


def _whole_path(value: str) -> str:
    return str(whole(Path(value))) if value else ""


def _folder(value: str) -> str:
    path = _whole_path(value)
    if path and not Path(path).is_dir():
        raise ValueError(f"should be a folder that exists; {path} is no folder")
    return path


def check_key(value: SecretStr, least: int = 1) -> SecretStr:
    """The key, of at least so many characters where there is one. Raises ValueError."""
    key = value.get_secret_value()
    if key and (len(key) < least or not KEY.fullmatch(key)):
        raise ValueError(
            f"should be {least} to {MAX_KEY_CHARS} printable ASCII characters, no space; `openssl rand -hex 32` prints "
            "such a key"
        )
    return value


def key_of(least: int) -> AfterValidator:
    """A check that a key has so many characters, where there is one."""
    return AfterValidator(partial(check_key, least=least))


def mask(secret: SecretStr) -> str:
    return MASK if secret.get_secret_value() else ""


Words = Annotated[tuple[str, ...], parsed_by(comma_separated), shown_as(",".join)]

WholePath = Annotated[str, AfterValidator(_whole_path)]
"""A path in full, whatever the folder in which the process runs later; empty for none."""

Folder = Annotated[str, AfterValidator(_folder)]
"""A folder that exists, by its whole path; empty for none."""

Secret = Annotated[SecretStr, shown_as(mask), InFile()]
"""A secret, which may be in a file."""

RenewedSecret = Annotated[SecretStr, shown_as(mask), InFile(renewed=True)]
"""A secret whose file is read again on SIGHUP."""

SecretKey = Annotated[Secret, AfterValidator(check_key)]
"""A key that is sent as a header; empty for none."""


class SettingsGroup(SourcedSettings):
    """Some of the settings. One with `repr=False` might have a secret in it: no error shows its value."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        dotenv_filtering="only_existing",
        enable_decoding=False,  # lists are no JSON here
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        defer_build=True,  # for all settings together, and not for each group of them
    )

    heading: ClassVar[str]
    _paths: Mapping[str, Path] = PrivateAttr(default_factory=dict[str, Path])

    @field_validator("*", mode="before")
    @classmethod
    def _read_units(cls, value: object, info: ValidationInfo) -> object:
        return in_unit(info.field_name or "", value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources of a service in place of pydantic's own."""
        return GivenSources(cls, init_settings()).in_order

    @classmethod
    def read(cls, sources: Sources) -> Self:
        """The settings of these sources. Raises SettingsError, whose message never holds a secret."""
        read_from: dict[str, Any] = {"_build_sources": (sources.in_order, {})}
        try:
            made = cls(**read_from)
        except ValidationError as error:
            raise SettingsError("; ".join(cls._reasons(error, sources))) from None
        made._paths = sources.paths
        return made

    def reread(self) -> Self:
        """The settings with what the files have now that may be read again. Raises SettingsError."""
        now = {name: self._paths[name] for name, mark in in_files(type(self)).items() if self._is_reread(name, mark)}
        same = {name: getattr(self, name) for name in self.model_fields_set - now.keys()}
        kept = InitSettingsSource(type(self), same)
        return self.read(Sources((kept, SecretFileSource(type(self), now)), self._paths))

    @property
    def rereads(self) -> bool:
        """Whether a file of a secret may be read again."""
        return any(self._is_reread(name, mark) for name, mark in in_files(type(self)).items())

    def _is_reread(self, name: str, mark: InFile) -> bool:
        return mark.renewed and name in self._paths

    @classmethod
    def of(cls, settings: "SettingsGroup") -> Self:
        """This group of a service's settings, which have it."""
        if not isinstance(settings, cls):
            raise TypeError(f"{type(settings).__name__} is without {cls.__name__}")
        return settings

    @classmethod
    def by_heading(cls) -> dict[str, list[str]]:
        """The names of all settings by the headings of their groups."""
        groups = (each for each in reversed(cls.__mro__) if issubclass(each, SettingsGroup) and "heading" in vars(each))
        return {each.heading: [name for name in get_annotations(each) if name in cls.model_fields] for each in groups}

    @classmethod
    def description(cls, name: str) -> str:
        """The meaning of the setting `name`, on one line: the text below it."""
        field = cls.model_fields[name]
        mark = "Experimental: " if field.json_schema_extra == EXPERIMENTAL else ""
        return mark + " ".join((field.description or "").split())

    @classmethod
    def is_flag(cls, name: str) -> bool:
        return cls.model_fields[name].annotation is bool

    @classmethod
    def is_number(cls, name: str) -> bool:
        return cls._schemas()[name].get("type") in ("integer", "number")

    @classmethod
    @cache
    def _schemas(cls) -> dict[str, dict[str, Any]]:
        return cls.model_json_schema()["properties"]

    @classmethod
    def allowed_values(cls, name: str) -> str:
        """The allowed values of the setting `name`, as a table shows them; empty where its description has them."""
        schema = cls._schemas()[name]
        least, above, most = (schema.get(each) for each in ("minimum", "exclusiveMinimum", "maximum"))
        if schema.get("type") == "boolean":
            return "`true`, `false`"
        if "enum" in schema or "const" in schema:
            return ", ".join(f"`{word}`" for word in schema.get("enum", [schema.get("const")]))
        if above is not None:
            return f"above {above:,} to {most:,}"
        if least is not None:
            return (
                f"{_number(name, least)} to {_number(name, most)}"
                if most is not None
                else f"{_number(name, least)} or more"
            )
        if "maxLength" in schema:
            return f"up to {schema['maxLength']:,} characters"
        return f"up to {schema['maxItems']:,}" if "maxItems" in schema else ""

    @classmethod
    def _reasons(cls, error: ValidationError, sources: Sources) -> Iterator[str]:
        """One phrase for each fault. It begins with the setting, by the name by which it was given."""
        for each in error.errors(include_url=False, include_input=False):
            yield cls._about_one(each, sources) if each["loc"] else cls._about_several(each, sources)

    @classmethod
    def _about_one(cls, error: ErrorDetails, sources: Sources) -> str:
        name = str(error["loc"][0])
        place, value, field = sources.place(name), sources.value(name), cls.model_fields[name]
        if value is not None and field.repr and "SecretStr" not in str(field.annotation):
            place += f"{' ' if place.startswith('--') else '='}{mask_secrets(str(value))[:MAX_SHOWN_CHARS]}"
        return f"{place}: {cls._demand(name, error)}"

    @classmethod
    def _demand(cls, name: str, error: ErrorDetails) -> str:
        """The demand on a setting that was refused, by its type, or by a rule of ours."""
        if error["type"] == "value_error":
            return error["msg"].removeprefix("Value error, ")
        kind = {"integer": "a whole number, ", "number": "a number, "}.get(cls._schemas()[name].get("type", ""), "")
        unit, allowed = unit_of(name), cls.allowed_values(name)
        if not allowed:
            return re.sub(r"^\w+ should", "should", error["msg"])
        words = re.sub(r", (`[^`]*`)$", r" or \1", allowed).replace("`", "")
        return f"should be {kind}{words}" + (f", or with a unit as in {EXAMPLES[unit]}" if unit else "")

    @classmethod
    def _about_several(cls, error: ErrorDetails, sources: Sources) -> str:
        """A rule between settings, each by the name by which it was given."""
        message = error["msg"].removeprefix("Value error, ")
        for name in cls.model_fields:
            if sources.place(name) == option(name):
                message = message.replace(f"{variable(name)}=", f"{option(name)} ")
        return message


def _number(name: str, value: float) -> str:
    return with_unit(int(value)) if unit_of(name) == "_bytes" and value >= 1024 else f"{value:,}"


def display(settings: SettingsGroup) -> dict[str, str | int | float | bool]:
    """Every setting by name, fit to be shown: keys and the passwords in URLs are masked."""
    return settings.model_dump(mode="json")

"""``ucci-stream schemas``: each command is one call and what it printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from schemas.schema_registry import SCHEMA_ID_KEY
from schemas.topics import RESULTS
from ucci_runtime.extras import require_extra
from ucci_stream.options import ConfigOption, Console, JsonFlag, settings_of

if TYPE_CHECKING:
    from ucci_stream.operate.schema_registry import Registered

schemas_app = typer.Typer(
    help="Schemas at a schema registry. Example: ucci-stream schemas register", no_args_is_help=True
)
out = Console()
err = Console(stderr=True)


@schemas_app.command("register")
def register_schemas(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Register the schemas of the topics that others write or read, FORWARD compatible; safe to repeat.

    Example: ucci-stream schemas register --config ucci.toml
    """
    require_extra("schema-registry", "ucci-stream schemas")
    from ucci_stream.operate.schema_registry import register

    settings = settings_of(config)
    done = register(settings)
    _say(done, as_json=as_json)
    results = next(one.schema_id for one in done if one.event == RESULTS.value)
    if not as_json and settings.results_schema_id != results:
        out.print("\nto have results in Confluent's wire format, in ucci.toml:", highlight=False)
        out.print(f'[schema_registry]\n"{SCHEMA_ID_KEY}" = {results}', highlight=False, markup=False)


@schemas_app.command("check")
def check_schemas(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Compare the registry with this release's schemas; writes nothing, exit code 1 where something is wrong.

    Example: ucci-stream schemas check
    """
    require_extra("schema-registry", "ucci-stream schemas")
    from ucci_stream.operate.schema_registry import faults, look_up

    settings = settings_of(config)
    found = look_up(settings)
    _say(found, as_json=as_json)
    wrong = list(faults(settings, found))
    for line in wrong:
        err.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(int(bool(wrong)))


def _say(found: list[Registered], *, as_json: bool) -> None:
    if as_json:
        out.print_json(data={"subjects": [one._asdict() for one in found]})
        return
    for one in found:
        number = "not registered" if one.schema_id is None else f"id {one.schema_id}"
        level = one.compatibility or "registry's own"
        out.print(f"{one.subject}  {one.event}  {number}  {level}", highlight=False, markup=False, soft_wrap=True)

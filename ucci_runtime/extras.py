"""Optional parts of the installation: what each extra brings, and one clear line where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from schemas.errors import ConfigError

#: The packages that an extra of the distribution brings, by its name.
EXTRAS: dict[str, tuple[str, ...]] = {
    "api": ("fastapi", "jinja2", "matplotlib", "uvicorn"),
    "demo": ("ucci_demo", "fastapi", "jinja2", "matplotlib", "uvicorn", "scipy"),
    "fit": ("scipy",),
    "schema-registry": ("attrs", "authlib", "cachetools", "certifi", "httpx2"),
    "what-moved": ("py3langid", "scipy"),
}


def require_extra(extra: str, needed_by: str) -> None:
    """Check that an extra is installed, without importing it.

    ``extra``: one of :data:`EXTRAS`. Raises ConfigError, naming what is missing and how to install it.
    """
    missing = [package for package in EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise ConfigError([f'{needed_by} needs {", ".join(missing)}: pip install "ucci-stream[{extra}]"'])

"""Templates and how they write values: times, shares, numbers, names in addresses."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from schemas.event import rfc3339

_WHOLE_FROM = 10.0


def environment(**values: object) -> Environment:
    """Return the templates' environment; ``values`` are known to each of them."""
    made = Environment(
        loader=PackageLoader("recalibrator.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"time": _time, "minute": _minute, "iso": _iso, "segment": _segment}
    made.filters |= {"percent": percent, "number": number, "rate": rate, "words": words}
    made.globals |= values
    return made


def words(value: str) -> str:
    """Return a name of the schemas as words."""
    return value.replace("_", " ")


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in [0, 1] as a percentage, a dash for none."""
    return "–" if value is None else f"{100.0 * value:.{digits}f}%"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many decimals, a dash for none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def rate(value: float) -> str:
    """Return queries a second, short: whole numbers from ten on.

    Examples
    --------
    >>> rate(12.6), rate(1.26), rate(0.0126), rate(0.0)
    ('13', '1.3', '0.013', '0')
    """
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.2g}"


def _segment(name: str) -> str:
    """Encode a name for a segment of a path: a slash within it would end the segment."""
    return quote(name, safe="")


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else moment.strftime("%d %b %H:%M:%S")


def _minute(moment: datetime | None) -> str:
    return "–" if moment is None else moment.strftime("%d %b %H:%M")


def _iso(moment: datetime | None) -> str:
    return "" if moment is None else rfc3339(moment.replace(microsecond=0))

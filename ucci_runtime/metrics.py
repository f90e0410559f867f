"""What there is to know of a metric before it counts anything: the row of a service's table.

Names follow Prometheus' conventions: base units, ``_total`` on counters, no unit without a number behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_ROW = re.compile(r"(\w+)(?:\[([\w,]+)\])? (counter|gauge|histogram) ([^:]+): (.+)")


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric."""

    #: Of the table, as in ``ucci_router_``.
    prefix: str
    #: Within the table: without the prefix and the ``_total`` of counters.
    name: str

    kind: Literal["counter", "gauge", "histogram"]
    #: What one is.
    unit: str
    #: What it counts, and what a rise means.
    help: str

    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        """The name under which it is scraped."""
        return self.prefix + self.name + ("_total" if self.kind == "counter" else "")


def metric_table(prefix: str, text: str, *labels: str) -> tuple[MetricSpec, ...]:
    """Read ``name[labels] kind unit: help`` of each line; an indented one goes on. ``labels``: those of every row.

    Examples
    --------
    >>> (sales,) = metric_table("shop_", "sales[kind] counter sale: Sales, returns apart.")
    >>> sales.exposed, sales.labels
    ('shop_sales_total', ('kind',))
    """
    made = []
    for row in text.strip().replace("\n    ", " ").splitlines():
        found = _ROW.fullmatch(row)
        assert found is not None, row
        name, own, kind, unit, said = map(str, found.groups(""))
        taken = (*labels, *filter(None, own.split(",")))
        made.append(MetricSpec(prefix, name, kind, unit, said, taken))  # type: ignore[arg-type]  # matched
    return tuple(made)

"""An explanation of one query as a page of its own, to read, to send on and to attach to a ticket. Pure.

One file without scripts and without anything to load. All that comes from queries, models and labelers is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from schemas.entities import field_values
from ucci_stream.operate.explanation import lines

_STYLE = """\
:root { --paper: #f6f6f3; --card: #fff; --ink: #1b2227; --muted: #5d6871; --line: #e1e4e6; --good: #17733f;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #121619; --card: #1a2024; --ink: #e7eaec; --muted: #9ba6af; --line: #2f383e; --good: #63cb90;
    --bad: #f3928a; }
}
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.3rem;
  margin: 1rem 0; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
p { margin: .3rem 0; }
.muted, dt, thead th { color: var(--muted); }
.good { color: var(--good); }
.bad { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; vertical-align: top; }
thead th { font-weight: 600; border-bottom: 1px solid var(--line); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .2rem 1rem; margin: 0; }
dd { margin: 0; }
"""


def explanation_page(found: Mapping[str, Any]) -> str:
    """Return an explanation as HTML."""
    title, parts = f"Query {found['query_id']}", []
    if "result" in found:
        result = found["result"]
        parts = [
            f'<p class="muted">{_text(result["workload"])}, routed {_text(result["routed_at"])}</p>',
            _section("Answers", _answers(result, found["label"])),
        ]
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in lines(found))
    parts.append(_section("What was decided, and what became of its label", f"<dl>{facts}</dl>"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{_STYLE}</style></head>\n'
        f"<body><main><h1>{_text(title)}</h1>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def _text(value: object) -> str:
    return escape(str(value))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n{content}\n</section>"


def _answers(result: Mapping[str, Any], label: Mapping[str, Any]) -> str:
    """Return both answers, what was served and what people say, a row for each field."""
    said = label["feedback"][-1]["entities"] if label["feedback"] else None
    answers = [result["small"], result["large"]]
    found = [run["entities"] if run and run["valid"] else None for run in answers]
    margins = (result["small"] or {}).get("field_margins") or {}
    columns = [("small", found[0]), ("large", found[1]), ("served", result["entities"]), ("label", said)]
    names = dict.fromkeys(name for _, entities in columns for name in entities or {})
    heads = ["field", *(name for name, _ in columns), *(["margin, small"] if margins else [])]
    rows = []
    for name in names:
        cells = [_cell(entities, name, said if column == "served" else None) for column, entities in columns]
        cells += [f"<td>{margins[name]:.3f}</td>" if name in margins else "<td></td>"] if margins else []
        rows.append(f'<tr><th scope="row">{_text(name)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in heads)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _cell(entities: Mapping[str, Any] | None, name: str, said: Mapping[str, Any] | None) -> str:
    """Return a cell; what was served is marked right or wrong where people have said what is right."""
    value = None if entities is None else entities.get(name)
    shown = "–" if value is None else ", ".join(value) if isinstance(value, list) else value
    if said is None:
        return f"<td>{_text(shown)}</td>"
    right = field_values(value) == field_values(said.get(name))
    return f'<td class="{"good" if right else "bad"}">{_text(shown)} {"✓" if right else "✗"}</td>'

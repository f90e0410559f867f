"""Whether `ucci-stream what-moved` names the right cause first, and nothing where nothing moved.

Example: python -m research.what_moved
         python -m research.what_moved --rounds 1 --quiet 20 --out bench-results/what-moved

Texts are taken from what is installed here (`research/what_moved/texts.py`), answers are made of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recalibrator.file_languages import language_identifier
from recalibrator.movement import movements
from research.__main__ import provenance
from research.results_json import receipt, write_report
from research.what_moved.cases import SHARES, Case, cases, quiet
from research.what_moved.texts import LANGUAGES, english, translated

OUT = Path("docs/results/what-moved")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write it; returns the exit code.

    ``arguments``: instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m research.what_moved",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=41, help="41 by default")
    parser.add_argument("--queries", type=int, default=1_000, help="on either side; 1,000 by default")
    parser.add_argument("--rounds", type=int, default=2, help="of all changes in all shares; 2 by default")
    parser.add_argument("--quiet", type=int, default=120, help="pairs where nothing moved; 120 by default")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    sources = english()
    others = {language: texts for language in LANGUAGES if (texts := translated(language))}
    language = cache(language_identifier())  # texts are drawn again and again
    results = {
        "sources": {name: len(texts) for name, texts in {**sources, **others}.items()},
        "queries": options.queries,
        "cases": _judged(cases(sources, others, options.seed, options.queries, options.rounds), language),
        "quiet": _judged(quiet(sources, options.seed + 1, options.queries, options.quiet), language),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    made = provenance(["-m", "research.what_moved", *(sys.argv[1:] if arguments is None else arguments)])
    write_report(options.out, results, made, page)
    sys.stderr.write(f"written: {options.out}/README.md, results.json\n")
    return 0


def _judged(drawn: Iterable[Case], language: Callable[[str], str]) -> list[dict[str, Any]]:
    judged = []
    for case in drawn:
        named = [one.what for one in movements(case.before, case.after, language)]
        is_right = named[0] in case.right if case.right and named else not case.right and not named
        judged.append({"case": case.name, "share": case.share, "named": named, "is_right": is_right})
        if not is_right:
            sys.stderr.write(f"{case.name} ({case.share:g}): {', '.join(named) or 'nothing'}\n")
    return judged


def page(results: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# What moved",
        "",
        f"Pairs of samples of {results['queries']:,} results each, in which a share of the later queries is changed in",
        "one known way. Texts are what others wrote and this machine has installed (messages of programs and their",
        "translations, docstrings, licences); answers and u are made of the texts, so that what changes them moves all",
        "the rest as well. It is right when the cause stands first, and where nothing moved, when nothing is named.",
        "",
        receipt(made),
        "",
        f"**Right cause first: {_share(results['cases'])}. Nothing named in {_share(results['quiet'])} quiet pairs.**",
        "",
        f"| change | {' | '.join(f'of {share:.0%}' for share in SHARES)} | named first instead |",
        f"|---|{'---|' * len(SHARES)}---|",
    ]
    for name, found in _by(results["cases"], "case").items():
        shares = _by(found, "share")
        wrong = sorted({(one["named"] or ["nothing"])[0] for one in found if not one["is_right"]})
        cells = [_share(shares[share]) for share in SHARES]
        lines.append(f"| {name} | {' | '.join(cells)} | {', '.join(wrong) or '–'} |")
    lines += ["", "| nothing moved | nothing named | named |", "|---|---|---|"]
    for name, found in _by(results["quiet"], "case").items():
        wrong = sorted({what for one in found for what in one["named"]})
        lines.append(f"| {name} | {_share(found)} | {', '.join(wrong) or '–'} |")
    lines += ["", "In bursts, eight queries in turn come from one source and are equally long.", ""]
    return "\n".join([*lines, f"Texts: {', '.join(f'{name} {n:,}' for name, n in results['sources'].items())}.", ""])


def _by(found: list[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    groups = defaultdict(list)
    for one in found:
        groups[one[key]].append(one)
    return groups


def _share(found: list[dict[str, Any]]) -> str:
    return f"{sum(one['is_right'] for one in found)} of {len(found)}"


if __name__ == "__main__":
    raise SystemExit(main())

"""The stored report of a campaign and a soak, as a page.

Example: python -m tests.faults.page docs/results/chaos/campaign.json docs/results/chaos/soak.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Story(NamedTuple):
    """What happens when a fault befalls the service, and the tests that show it besides the campaign."""

    what: str
    tests: str


_SHORT = "tests/faults/test_short_form.py"
_ROUTER = "tests/recovery/test_router_kill.py"
_RECALIBRATOR = "tests/recovery/test_recalibrator_kill.py"
_CONTROLS = "tests/faults/test_negative_controls.py"
_HEALTH = "tests/stream_router/model_client/test_server_health.py"
_CLIENT = "tests/stream_router/model_client/test_http_client.py"

#: By kind of fault, in the words of the operator.
STORIES: Mapping[str, Story] = {
    "kill router": Story(
        "The next process under the id fences it, ends its open transaction and reads on from the group's"
        " offsets and their done offsets; queries in flight are asked again.",
        f"{_SHORT}, {_ROUTER}, {_CONTROLS}",
    ),
    "kill join": Story(
        "The next process reads again from what is on disk, its outputs held back up to the group's offsets.",
        f"{_SHORT}, {_RECALIBRATOR}, {_CONTROLS}",
    ),
    "kill fit": Story(
        "The next process restores its snapshot and folds on; versions up to the group's offset are held back.",
        f"{_SHORT}, {_RECALIBRATOR}",
    ),
    "stop router": Story("Another router takes over after the session; what wakes up is fenced.", _CONTROLS),
    "stop join": Story(
        "Another join rebuilds its rows from the topics and goes on; what wakes up is fenced.", _CONTROLS
    ),
    "stop fit": Story(
        "Another fit folds the log and goes on; what wakes up is fenced.", "tests/conformance/test_broker.py"
    ),
    "two under one id": Story("The older process ends with exit code 1 and one line; the newer goes on.", _ROUTER),
    "rebalance storm": Story(
        "What is finished is committed before partitions go; the rest is answered by the next owner.",
        "tests/conformance/test_router_broker.py",
    ),
    "model: down": Story(
        "Small: the large model answers. Large: valid small answers are served as degraded. Both: the stream waits.",
        f"{_SHORT}, {_HEALTH}",
    ),
    "model: hanging": Story(
        "Calls end at their time-out and are repeated; then as for a server that is down.", _HEALTH
    ),
    "model: slow-loris": Story(
        "The time-out is of the whole exchange, so a reply that drips in ends like one that hangs.", _CLIENT
    ),
    "model: 500 storm": Story("Repeated within the retry budget; a server that answers nobody is down.", _HEALTH),
    "model: 503 storm": Story("The same, and fewer calls at a time.", "tests/stream_router/test_overload.py"),
    "model: 429 storm": Story("The same, and fewer calls at a time.", "tests/stream_router/test_overload.py"),
    "model: truncated body": Story("Repeated; then as for a failed call.", f"{_SHORT}, {_CLIENT}"),
    "model: truncated JSON": Story("A malformed reply: repeated, then as for a failed call.", _CLIENT),
    "model: answer is no JSON": Story(
        "An invalid answer of a healthy server: the small one escalates, the large one degrades; where "
        "both are invalid the query is a dead letter.",
        "tests/stream_router/cascade/test_query_cascade.py",
    ),
    "model: wrong model name": Story(
        "A refusal that names the setting; the server counts as down until it serves the model.", _HEALTH
    ),
    "model: 10 MB reply": Story(
        "Cut off at the limit of a reply's size: memory stays bounded, the call has failed.", _CLIENT
    ),
    "model: connection reset": Story("Repeated; then as for a failed call.", _CLIENT),
    "model: brown-out": Story(
        "The concurrency limit falls to what the server can do, and rises again after it.",
        "tests/stream_router/test_overload.py",
    ),
    "join store deleted": Story("Rebuilt from `results` and `feedback`, outputs held back.", _RECALIBRATOR),
    "join store cut": Story(
        "Set aside as damaged and rebuilt from the topics.", "tests/recalibrator/join/test_sqlite_store.py"
    ),
    "join store read-only": Story(
        "The join ends with exit code 1 and one line that names the file; it goes on where it stood once it may write.",
        "tests/recalibrator/join/test_sqlite_store.py",
    ),
    "snapshots deleted": Story("The log is folded from its beginning, versions held back.", _RECALIBRATOR),
    "snapshots cut": Story(
        "The checksum does not fit: as if it were deleted.", "tests/recalibrator/fit/test_file_snapshots.py"
    ),
    "snapshots read-only": Story(
        "The fit goes on with the former snapshot and says so once; a restart folds more.",
        "tests/recalibrator/fit/test_file_snapshots.py",
    ),
    "clock jump": Story(
        "Results carry the wrong time; the join takes the broker's where a clock is ahead.",
        "tests/recalibrator/join/test_broker_time.py",
    ),
    "broker SIGTERM": Story(
        "Routers wait and go on by themselves; transactions whose end nobody saw are settled by the group's offsets. "
        "A join or fit whose session ended during a commit may end with exit code 1, and goes on once it is restarted.",
        "tests/conformance/test_router_broker.py",
    ),
    "broker SIGKILL": Story("The same.", "tests/recovery/test_feedback_outage.py"),
    "broker 30 s away": Story(
        "The same; sessions end meanwhile, and the members join anew.", "tests/deploy/topics/test_broker_away.py"
    ),
    "broker SIGSTOP 5 s": Story("The same.", "tests/recovery/test_feedback_outage.py"),
    "retention overtakes": Story(
        "Reading goes on at the first record that is left; what was deleted unread has no consequences, "
        "everything else has exactly one.",
        "tests/faults/test_checker.py",
    ),
}


_HARMS = ("lost", "doubled", "contradictory", "other", "not recovered")
_HOW = """\
Two routers, a join and a fit run as processes under 40 queries a second, labels (repeated, corrected and withdrawn ones
too) and refits. After each kind of fault an independent checker (`tests/faults/checker.py`) reads all topics with
`read_committed`. *Lost*, *doubled* and *contradictory* are queries, labels, traffic counts and versions; *other* is
content that was altered or reordered, labels set aside, or drift reported on the stationary stream. *Recovery* runs
from the end of the fault to the next commit of the stage, process start included. *Ended* counts processes that ended
by themselves, with exit code 1 and one line, and were started again as a supervisor would."""

_HOW_SOAKED = """\
A drawn fault every 10 s, or when the one before is over. Memory is the resident set; its slope is least squares over
each process's lives without their first 30 s, or what `--warm-up` says. `router-0` is never killed."""


def page(campaign: Mapping[str, Any], soak: Mapping[str, Any] | None = None) -> str:
    total = campaign["total"]
    parts = [
        "# Faults",
        f"What {total['faults']} faults on a real broker did to the service: {_harm(total)}.",
        _HOW,
        _receipt(campaign),
        _kinds(campaign["kinds"]),
        *_findings(campaign),
        "## What happens",
        _stories(campaign["kinds"]),
        "## Where processes were killed",
        "Kills at each step (`tests/faults/fault_points.py`); *during* is a moment within the call.",
        _steps(campaign["kills_by_step"]),
        *([] if soak is None else _soak(soak)),
    ]
    return "\n\n".join(parts) + "\n"


def _harm(total: Mapping[str, Any]) -> str:
    return ", ".join(f"{total[name]} {name}" for name in _HARMS)


def _receipt(made: Mapping[str, Any]) -> str:
    return (
        f"```console\n$ {made['command']}\n```\n\nSeed {made['seed']}, {made['minutes']} minutes, {made['machine']}, "
        f"which other work shared: times are upper bounds. Commit {made['commit']}, {made['began_at'][:10]}."
    )


def _kinds(kinds: Iterable[Mapping[str, Any]]) -> str:
    columns = ("faults", *_HARMS, "ended", "queries", "dead_letters")
    heads = ("kind", *(column.replace("_", " ") for column in columns), "recovery p50", "p99")
    rows = [[one["kind"], *(str(one[column]) for column in columns), *_seconds(one["recovery_s"])] for one in kinds]
    return _table(heads, rows)


def _seconds(recovery: Mapping[str, float]) -> list[str]:
    return [f"{recovery[name]:.1f} s" if name in recovery else "–" for name in ("p50", "p99")]


def _stories(kinds: Iterable[Mapping[str, Any]]) -> str:
    rows = []
    for one in kinds:
        what, tests = STORIES[one["kind"]]
        rows.append([one["kind"], what, f"`{tests.replace(', ', '`, `')}`", _seconds(one["recovery_s"])[0]])
    return _table(("fault", "what happens", "also shown by", "recovery p50"), rows)


def _findings(made: Mapping[str, Any]) -> list[str]:
    """Return what was found, line by line; nothing where nothing was."""
    lines = [f"- {line}" for name in ("findings", "not_recovered", "ended") for line in made[name]]
    return ["## What was found", "\n".join(lines)] if lines else []


def _steps(steps: Mapping[str, int]) -> str:
    moments = ("before", "during", "after")
    split = {name: name.rpartition(", ") for name in steps}
    struck = dict.fromkeys(step for step, _, moment in split.values() if moment in moments)
    rows = [[step, *(str(steps.get(f"{step}, {moment}", "–")) for moment in moments)] for step in struck]
    other = [[name, "", "", str(count)] for name, count in steps.items() if split[name][2] not in moments]
    return _table(("step", *moments), [*rows, *other])


def _soak(soak: Mapping[str, Any]) -> list[str]:
    faults = sum(one["faults"] for one in soak["kinds"])
    return [
        "## Soak",
        f"{faults} faults, {soak['queries']} queries: {_harm(soak['total'])}.",
        _HOW_SOAKED,
        _receipt(soak),
        *_findings(soak)[1:],
        _memory(soak["memory"]),
    ]


def _memory(memory: Mapping[str, Any]) -> str:
    rows = []
    for name, one in memory.items():
        shown = "too short" if one["mib_per_minute"] is None else f"{one['mib_per_minute']:+.2f}"
        rows.append([name, shown, f"{one['minutes']:.1f}", str(one["lives"]), f"{one['last_mib']:.0f}"])
    return _table(("process", "MiB a minute", "minutes", "lives", "last MiB"), rows)


def summary(made: Mapping[str, Any]) -> str:
    """Return the tables of a campaign or a soak, with what was found, for the terminal."""
    memory = [_memory(made["memory"])] if "memory" in made else []
    title = f"{made['minutes']} minutes, seed {made['seed']}, {made['machine']}"
    return "\n\n".join([title, _kinds([*made["kinds"], made["total"]]), *memory, *_findings(made)[1:]]) + "\n"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first = list(heads)
    return "\n".join(f"| {' | '.join(line)} |" for line in (first, ["---"] * len(first), *rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults.page", description=__doc__)
    parser.add_argument("campaign", type=Path, help="what --json wrote")
    parser.add_argument("soak", type=Path, nargs="?", help="what --soak --json wrote")
    options = parser.parse_args()
    documents = [json.loads(path.read_text()) for path in (options.campaign, options.soak) if path is not None]
    sys.stdout.write(page(*documents))

"""What an act on versions came to, and how it is shown; and the table of versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from schemas.command import Action
from ucci_stream.operate.http_api import ApiFailed, RecalibratorApi
from ucci_stream.options import Outcome

_ON_TRIAL: tuple[Action, ...] = ("shadow", "canary")
_HELD = "; it holds until `ucci-stream unpin`"


class Act(NamedTuple):
    """An act as the command line gives it."""

    action: Action
    reason: str
    wait_s: float
    #: None: as :func:`perform` finds it for the action.
    version: int | None = None

    share: float | None = None
    #: Of a roll-back: until unpinned, or until the next fit.
    hold: bool | None = None


async def perform(api: RecalibratorApi, workload: str, act: Act) -> dict[str, Any]:
    """Command the fit and return the API's answer; it names the outcome.

    Raises ApiFailed when the API or the fit refuses, when no outcome came in time, or when there is no version to act
    on.
    """
    version = act.version
    if version is None and act.action in ("activate", "pin"):
        version = await _version_meant(api, workload, act.action)
    body: dict[str, Any] = {"reason": act.reason} | ({} if act.hold is None else {"hold": act.hold})
    place = "" if version is None else f"/{version}"
    what = f"{place}:{act.action.replace('_', '-')}"
    answer = await api.act(workload, what, body, wait_s=act.wait_s, share=act.share)
    outcome = answer.get("outcome")
    if outcome is None:
        raise ApiFailed(
            f"{workload}: {act.action} is in the log (command {answer.get('command_id')}), and no fit has applied it "
            f"within {act.wait_s:g} s; a fit that starts will: look at GET /v1/status and the fit's log"
        )
    if outcome["is_refused"]:
        raise ApiFailed(f"{workload}: {outcome['note']}")
    return answer


async def _version_meant(api: RecalibratorApi, workload: str, action: Action) -> int:
    """Return the version in force, to pin it; or the one before it, to roll back to."""
    current = (await api.status(workload))["calibration_version"]
    if current is None:
        raise ApiFailed(f"{workload}: no version is in force yet")
    if action == "pin":
        return int(current)
    line = next((one for one in await api.versions(workload) if one["version"] == current), None)
    parent = None if line is None else line["parent_version"]
    if parent is None:
        raise ApiFailed(f"{workload}: no version before {current} is known; name the one to roll back to")
    return int(parent)


def outcome_line(answer: Mapping[str, Any]) -> str:
    """Return one sentence about an act that was done.

    Examples
    --------
    >>> outcome = {"note": "activate of version 7", "version": 12}
    >>> outcome_line({"workload": "photo", "action": "activate", "hold": True, "outcome": outcome})
    'photo: activate of version 7: version 12 is in force; it holds until `ucci-stream unpin`'
    """
    outcome, action = answer["outcome"], answer["action"]
    version = outcome["version"]
    now = "no version is in force yet"
    if version is not None:
        now = f"version {version} is {'on trial' if action in _ON_TRIAL else 'in force'}"
    held = _HELD if action == "pin" or (action == "activate" and answer.get("hold")) else ""
    return f"{answer['workload']}: {outcome['note']}: {now}{held}"


def listed_versions(status: Mapping[str, Any], versions: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return a workload's versions, newest first, the one in force marked."""
    workload, current = status["workload"], status["calibration_version"]
    table = Table("", "version", "made", "why", "state", "u threshold", "escalation", "micro-F1 (95 %)", "labels")
    for one in versions:
        table.add_row("▸" if one["version"] == current else "", *_row(one))
    document = {"workload": workload, "calibration_version": current, "state": status["state"], "versions": versions}
    return Outcome(document, [table, f"{workload} is {status['state']}. {status['sentence']}"])


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    quality, rate = one.get("micro_f1_95") or one["micro_f1"], one["escalation_rate"]
    origin = "" if one["content_of"] is None else f" of {one['content_of']}"
    return (
        str(one["version"]),
        str(one["created_at"])[:19].replace("T", " "),
        one["trigger"] + origin,
        one["state"],
        f"{one['uncertainty_threshold']:.4f}",
        "–" if rate is None else f"{rate:.1%}",
        "–" if quality is None else f"{quality['estimate']:.3f} ({quality['lower']:.3f} to {quality['upper']:.3f})",
        str(one["labels"]),
    )

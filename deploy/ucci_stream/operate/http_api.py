"""A client for the recalibrator's HTTP API as operators' commands use it; every failure is one clear line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
from rich.table import Table

from schemas.command import Action
from schemas.errors import UcciError
from schemas.settings import Settings
from ucci_runtime.http_proxy import proxy_use
from ucci_runtime.process import url_of
from ucci_stream.options import KEY_VARIABLE, Outcome, address_of

_KEY_HEADER = "X-Api-Key"
#: For an answer beyond the time that it is asked to wait.
_MARGIN_S = 10.0

_UNAUTHORISED, _FORBIDDEN, _REFUSED = 401, 403, 400
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 where a server listens, turned into where it is
_DETAIL_CHARS = 300


class ApiFailed(UcciError):
    """The API did not answer, or refused; the line says why and what to look at."""


def api_of(settings: Settings | None, url: str | None, key: str | None) -> RecalibratorApi:
    """Return the API: where it is given, else where it is configured. Raises ConfigError when the address is none."""
    if url is None:
        options = Settings().recalibrator if settings is None else settings.recalibrator
        host = _ANY_ADDRESS.get(options.http_host, options.http_host)
        url = url_of(host, options.http_port)
    address = address_of("--url", url, "http://127.0.0.1:8080")
    return RecalibratorApi(address, key or _configured_key(settings))


def _configured_key(settings: Settings | None) -> str | None:
    """Return the key of the scope admin that stands in the configuration itself, if one does."""
    keys = () if settings is None else settings.recalibrator.api_keys.values()
    return next((one.key.get_secret_value() for one in keys if "admin" in one.scopes and one.key is not None), None)


class RecalibratorApi(NamedTuple):
    """The API of a running recalibrator: where it is, and the key to show, if any."""

    url: str
    key: str | None

    async def workloads(self) -> list[str]:
        """Return the configured workloads."""
        return [one["workload"] for one in (await self._call("GET", "/v1/status"))["workloads"]]

    async def status(self, workload: str) -> dict[str, Any]:
        """Return a workload's status."""
        return await self._call("GET", f"/v1/status/{_segment(workload)}")

    async def versions(self, workload: str) -> list[dict[str, Any]]:
        """Return a workload's versions, newest first."""
        return list((await self._call("GET", f"/v1/calibrations/{_segment(workload)}"))["versions"])

    async def act(
        self,
        workload: str,
        action: Action,
        version: int | None,
        body: Mapping[str, Any],
        *,
        wait_s: float,
        **more: float | str | None,
    ) -> dict[str, Any]:
        """Command the fit and return the API's answer; it names the outcome.

        ``version``: without one, that in force is pinned, and the one before it activated. ``more`` goes into the
        query of the address. Raises ApiFailed when the API or the fit refuses, when no outcome came in time, or when
        there is no version to act on.
        """
        if version is None and action in ("activate", "pin"):
            version = await self._version_meant(workload, action)
        place = f"{_segment(workload)}{'' if version is None else f'/{version}'}:{action.replace('_', '-')}"
        query = urlencode({"wait_s": f"{wait_s:g}"} | {name: one for name, one in more.items() if one is not None})
        answer = await self._call("POST", f"/v1/calibrations/{place}?{query}", body, timeout_s=wait_s)
        outcome = answer.get("outcome")
        if outcome is None:
            raise ApiFailed(
                f"{workload}: {action} is in the log (command {answer.get('command_id')}), and no fit has applied it "
                f"within {wait_s:g} s; a fit that starts will: look at GET /v1/status and the fit's log"
            )
        if outcome["is_refused"]:
            raise ApiFailed(f"{workload}: {outcome['note']}")
        return answer

    async def _version_meant(self, workload: str, action: Action) -> int:
        """Return the version in force, to pin it; or the one before it, to roll back to."""
        current = (await self.status(workload))["calibration_version"]
        if current is None:
            raise ApiFailed(f"{workload}: no version is in force yet")
        if action == "pin":
            return int(current)
        lines = await self.versions(workload)
        parent = next((one["parent_version"] for one in lines if one["version"] == current), None)
        if parent is None:
            raise ApiFailed(f"{workload}: no version before {current} is known; name the one to roll back to")
        return int(parent)

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = 0.0
    ) -> dict[str, Any]:
        url, key = self
        headers = None if key is None else {_KEY_HEADER: key}
        limit = aiohttp.ClientTimeout(total=timeout_s + _MARGIN_S, connect=_MARGIN_S)
        use = proxy_use(url)
        sent = {"json": body, "headers": {**(headers or {}), **use.headers}, "timeout": limit, **use.options}
        asked = aiohttp.request(method, url + path, allow_redirects=False, **sent)
        try:
            async with asked as answer:
                data, status = await answer.read(), answer.status
        except TimeoutError:
            raise ApiFailed(f"{url}: no answer within {timeout_s + _MARGIN_S:g} s") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise ApiFailed(f"{url}: is not reached ({error}); is the recalibrator's API running there?") from None
        document = _parsed(url, status, data)
        if status >= _REFUSED:
            raise ApiFailed(_refusal(url, status, document, has_key=key is not None))
        return document


def _parsed(url: str, status: int, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        shown = data[:_DETAIL_CHARS].decode("utf-8", "replace")
        raise ApiFailed(f"{url}: answered {status} and no JSON object; is it a recalibrator's API? ({shown!r})")
    return document


def _refusal(url: str, status: int, document: Mapping[str, Any], *, has_key: bool) -> str:
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    said = str(message or document)[:_DETAIL_CHARS]
    if status in (_UNAUTHORISED, _FORBIDDEN) and not has_key:
        return f"{url}: {said}; set {KEY_VARIABLE} to a key of the scope admin"
    return f"{url}: {said}"


def _segment(name: str) -> str:
    """Encode a name for a segment of a path: a slash within it would end the segment."""
    return quote(name, safe="")


_ON_TRIAL: tuple[Action, ...] = ("shadow", "canary")
_HELD = "; it holds until `ucci-stream unpin`"


def outcome_line(answer: Mapping[str, Any]) -> str:
    """Return one sentence about an act that was done."""
    outcome, action = answer["outcome"], answer["action"]
    now = "no version is in force yet"
    if outcome["version"] is not None:
        now = f"version {outcome['version']} is {'on trial' if action in _ON_TRIAL else 'in force'}"
    held = _HELD if action == "pin" or (action == "activate" and answer.get("hold")) else ""
    return f"{answer['workload']}: {outcome['note']}: {now}{held}"


def listed_versions(status: Mapping[str, Any], versions: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return a workload's versions, newest first, the one in force marked."""
    workload, current = status["workload"], status["calibration_version"]
    table = Table("", "version", "made", "why", "state", "u threshold", "escalation", "micro-F1 (95%)", "labels")
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

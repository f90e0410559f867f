"""``ucci-stream doctor``: looks at everything that a running service rests on, and says what to do about it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from schemas.errors import UcciError
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_text import settings_warnings
from stream_router.model_client.http_probe import Probed, probe_workload
from ucci_runtime.broker.kafka_settings import require_kafka
from ucci_stream.operate import findings as rules
from ucci_stream.operate.findings import Finding
from ucci_stream.operate.kafka_diagnosis import group_findings, read_reports, topic_findings

_UNANSWERED = "start the server, or correct base_url, model or api_key"
_UNUSABLE = "correct what the line names, in the configuration or at the server"


async def _probe_all(settings: Settings) -> list[Finding]:
    """Return how each configured model answers, within the longest time-out."""
    workloads = list(settings.workloads.values())
    probed = await asyncio.gather(*map(probe_workload, workloads))
    pairs = zip(workloads, probed, strict=True)
    return [found for workload, servers in pairs for one in servers for found in _of_server(workload, one)]


def _of_server(workload: WorkloadSettings, probed: Probed) -> Iterator[Finding]:
    """Yield what a probe found; a server without answer is a fault here, though services wait for it."""
    for found in probed.findings:
        is_fault = found.kind == "fault" or probed.reply is None
        remedy = _UNANSWERED if probed.reply is None else _UNUSABLE
        yield Finding("models", "fault" if is_fault else "warning", found.line, remedy)
    if not probed.findings:
        line = f"workloads.{workload.name}.{probed.role}: answers with log-probabilities in {probed.latency_s:.2f} s"
        yield Finding("models", "ok", line)


_STYLES = {"fault": "red", "warning": "yellow", "ok": "green"}


def diagnose(settings: Settings) -> list[Finding]:
    """Look at everything, in the order in which one thing rests on the other; blocks up to a minute.

    Raises ConfigError when librdkafka refuses the ``[kafka]`` table.
    """
    require_kafka(settings)
    found = [Finding("settings", "warning", line) for line in settings_warnings(settings)]
    topics = topic_findings(settings)
    found += topics
    # Without the broker, or with topics missing, every further question to it would end in the same fault.
    if all(finding.severity != "fault" for finding in topics):
        found += _guarded("groups", lambda: group_findings(settings))
        found += _guarded("versions", lambda: _of_reports(settings))
    return [*found, *asyncio.run(_probe_all(settings)), _of_disk(settings)]


def _guarded(area: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what was found, and as a fault why the rest was not."""
    found: list[Finding] = []
    try:
        found.extend(look())
    except UcciError as error:
        found.append(Finding(area, "fault", str(error), "run this again; if it stays, see the broker's log"))
    return found


def _of_reports(settings: Settings) -> Iterable[Finding]:
    reported, now = read_reports(settings), datetime.now(UTC)
    if reported.clocks is not None:
        yield from rules.of_clocks(reported.clocks)
    yield from rules.of_routers(reported.routers, now)
    for name, workload in settings.workloads.items():
        yield from rules.of_version(workload, reported.versions.get(name), now)
        yield from rules.of_status(reported.statuses.get(name), workload, now)


def _of_disk(settings: Settings) -> Finding:
    """Judge the disk of the recalibrator's state, as seen from this machine."""
    path = Path(settings.recalibrator.state_dir).absolute()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return rules.of_disk(str(path), shutil.disk_usage(there).free, os.access(there, os.W_OK))


def finding_lines(found: Iterable[Finding]) -> Iterator[Text]:
    """Yield a line for each finding and one for its remedy."""
    for finding in found:
        mark = (f"{finding.severity:<8}", _STYLES[finding.severity])
        yield Text.assemble(mark, f" {finding.area:<12} {finding.message}")
        if finding.remedy:
            yield Text(f"{'':<22}→ {finding.remedy}", style="dim")

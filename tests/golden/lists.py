"""Names and numbers that users and brokers hold on to, as the code gives them, where no generated document does.

Modules that may move are imported at the top and nowhere else: after a move only these lines change.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import recalibrator.core
import schemas
import stream_router
import ucci_runtime.broker.kafka_properties as kafka
import ucci_runtime.http_listener as router_http
from recalibrator.cli import app as recalibrator_app
from recalibrator.stage import StageName
from schemas import CalibrationMap, CalibrationVersion, Settings
from stream_router.cli import app as router_app
from tests.golden.digests import digest, rounded
from tests.support.api import make_api
from tests.support.versions import sealed_version
from ucci_stream.cli import app as operator_app
from ucci_stream.topics.access import tool_groups

ROOT = Path(__file__).parents[2]
_DECIDED = 2_000


def lists() -> dict[str, Any]:
    """Return everything but the streams, by subject."""
    return {
        "decisions": _decisions(),
        "kafka_clients": _kafka_clients(),
        "public_names": _public_names(),
        "http_of_the_recalibrator": _http_of_the_recalibrator(),
        "http_of_the_router": sorted(set(re.findall(r'"(/[a-z0-9/]+)"', Path(router_http.__file__).read_text()))),
        "commands": _commands(),
    }


def _decisions() -> dict[str, Any]:
    """Decide on the same queries by a version of each state."""
    found = {}
    for state in ("active", "infeasible", "cold_start"):
        version = _version(state)
        rows, reasons = [], Counter[str]()
        for number in range(_DECIDED):
            uncertainty = None if number % 50 == 49 else (number * 7_919 % 10_007) / 10_007
            decision = version.decide(uncertainty, f"query-{number}")
            label = version.request_label(decision, f"query-{number}")
            reasons[decision.reason] += 1
            rows.append(json.loads(decision.model_dump_json()) | {"label": json.loads(label.model_dump_json())})
        found[state] = {"reasons": dict(sorted(reasons.items())), "digest": digest(rounded(json.dumps(rows).encode()))}
    return found


def _version(state: str) -> CalibrationVersion:
    knots, values = ((), ()) if state == "cold_start" else ((0.0, 0.02, 0.1, 0.4, 1.0), (0.01, 0.03, 0.2, 0.5, 0.9))
    return sealed_version(
        workload="golden",
        version=7,
        map=CalibrationMap(uncertainty=knots, error_probability=values),
        uncertainty_threshold=-1.0 if state == "cold_start" else 0.3,
        threshold=None if state == "cold_start" else 0.4,
        exploration_probability=0.05,
        label_probability_kept=0.1,
        label_probability_escalated=0.2,
        audit_probability=0.1,
        state=state,
    )


def _kafka_clients() -> dict[str, Any]:
    """Return the properties of each kind of client for given instance ids, and what reading groups are named by."""
    properties = {"bootstrap.servers": "broker:9092", "sasl.username": "user", "linger.ms": 9}
    settings = Settings.model_validate(
        {"kafka": properties, "topics": {"prefix": "shop"}, "router": {"instance_id": "router-3"}}
    )
    router = kafka.ClientNames("router", "shop", "router-3")
    stages = kafka.ClientNames("recalibrator", "shop", "i-1")
    sync = {name: f"{tool_groups('shop')}label-studio-{name}" for name in ("requests", "told")}
    clients = {
        "router: group": kafka.group_properties(settings, router, "router"),
        "router: offsets": kafka.offsets_properties(settings, router.group_id("router")),
        "router: calibration": kafka.reader_properties(settings, router.reader_group_id("calibration")),
        "router: transactions": kafka.transactional_properties(settings, router, "router", 90_000),
        "router: heartbeat": kafka.heartbeat_properties(settings),
        "recalibrator: reader": kafka.reader_properties(settings, stages.reader_group_id("versions")),
        "recalibrator: producer": kafka.publisher_properties(settings),
        "operator: admin": kafka.admin_properties(settings),
        "operator: reader": kafka.reader_properties(settings, "shop-label-queue"),
        "label studio: requests": kafka.reader_properties(settings, sync["requests"]),
        "label studio: feedback": kafka.reader_properties(settings, sync["told"]),
    }
    for stage in ("join", "fit"):
        clients[f"{stage}: group"] = kafka.group_properties(settings, stages, stage)
        clients[f"{stage}: transactions"] = kafka.transactional_properties(settings, stages, stage, 90_000)
    names = {name: stages.reader_group_id(name) for name in ("versions", "view", "dead-letters")}
    return {
        "properties": clients,
        "reading_groups": names,
    }


def _public_names() -> dict[str, list[str]]:
    return {module.__name__: list(module.__all__) for module in (schemas, recalibrator.core, stream_router)}


def _http_of_the_recalibrator() -> dict[str, Any]:
    """Return each path with its methods and their answers, and the paths that the document leaves out."""
    app: Any = make_api().client.app
    document = app.openapi()
    described = {
        f"{method.upper()} {path}": {
            "parameters": sorted(f"{one['in']}: {one['name']}" for one in operation.get("parameters", ())),
            "bodies": sorted(operation.get("requestBody", {}).get("content", ())),
            "answers": {
                status: sorted(answer.get("content", ())) for status, answer in sorted(operation["responses"].items())
            },
        }
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    paths = (route for route in app.routes if hasattr(route, "path"))
    routes = {(route.path, method) for route in paths for method in getattr(route, "methods", None) or ["MOUNT"]}
    known = {tuple(reversed(name.split(" ", 1))) for name in described}
    others = sorted(f"{method} {path}" for path, method in routes - known)
    return {"described": dict(sorted(described.items())), "others": others}


def _commands() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commands: dict[str, Any] = {}
    for name, app in (("stream-router", router_app), ("recalibrator", recalibrator_app), ("ucci-stream", operator_app)):
        commands.update(_options(name, typer.main.get_command(app)))
    return {"scripts": project["scripts"], "options": commands, "stages": [stage.value for stage in StageName]}


def _options(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        taken = [sorted([*one.opts, *one.secondary_opts]) for one in command.params]
        yield name, sorted(" ".join(names) for names in taken)
        return
    for part in sorted(inner):
        yield from _options(f"{name} {part}", inner[part])

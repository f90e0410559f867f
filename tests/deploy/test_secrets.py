"""Secrets of the configuration, and the places where none of them may stand."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from schemas.errors import ConfigError
from schemas.routed import QueryEvent
from schemas.settings import Settings
from schemas.settings_reread import OF_GATEWAY, OF_RECALIBRATOR, Reread, running_settings
from schemas.settings_text import parse_settings, render_settings, settings_warnings
from stream_router.calibration.active_versions import ActiveVersions
from stream_router.cascade.answerer import CascadeAnswerer
from stream_router.errors import ServersDown
from stream_router.otel_tracing import OpenTelemetry
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.kafka_properties import require_kafka
from ucci_runtime.process import LogFormat, SystemClock, configure_logging

WORKLOAD = """
[workloads.photo]
prompt = "find {text}"
fields = ["camera"]
target = { micro_f1 = 0.9 }
"""
SECRETS = {
    "a property of Kafka": '[kafka]\n"sasl.password" = "hunter2-hunter2-hunter2"',
    "a key in PEM": '[kafka]\n"ssl.key.pem" = "hunter2-hunter2-hunter2"',
    "a key of the API": '[recalibrator.api_keys.ada]\nkey = "hunter2-hunter2-hunter2"',
    "a key of the gateway": '[gateway.api_keys.ada]\nkey = "hunter2-hunter2-hunter2"',
    "the signing key": '[calibration]\nsigning_key = "hunter2-hunter2-hunter2-hunter2-hunter2"',
    # Who knows the address of an incoming webhook can write there.
    "a webhook": '[notify.webhooks.ops]\nurl = "https://hooks/hunter2"\nsecret = "hunter2-hunter2-hunter2"',
    "the key of draws": '[router]\ndraw_key = "hunter2-hunter2-hunter2-hunter2-hunter2"',
    "a former signing key": f'[calibration]\nsigning_key = "{40 * "k"}"\nformer_keys = ["{5 * "hunter2-"}"]',
    "a model's key": WORKLOAD + 'small = { base_url = "http://127.0.0.1:9/v1", model = "s", api_key = "hunter2" }',
    "a model's password": WORKLOAD + 'small = { base_url = "http://u:hunter2@127.0.0.1:9/v1", model = "s" }',
}
MISTYPED = {
    "one slash": WORKLOAD + 'small = { base_url = "http:/u:hun hunter2@s/v1", model = "s" }',
    "no scheme": WORKLOAD + 'small = { base_url = "u:hunter2@s/v1", model = "s" }',
    "a key behind the path": WORKLOAD + 'small = { base_url = "http://s/v1?key=hunter2", model = "s" }',
    "a strange property": '[kafka]\n"sasl.pass" = "hunter2"',
    "a strange property's kind": '[kafka]\n"sasl.pass" = ["hunter2"]',
    "a model's key's kind": WORKLOAD + 'small = { base_url = "http://s/v1", model = "s", api_key = ["hunter2"] }',
    "too short": '[recalibrator.api_keys.ada]\nkey = "hunter2"',
    "no hash": '[recalibrator.api_keys.ada]\nkey_sha256 = "hunter2"',
    "a scope beside a key": '[recalibrator.api_keys.ada]\nkey = "hunter2-hunter2-hunter2"\nscopes = ["root"]',
    "a key's name": '[recalibrator.api_keys.ada]\nkeey = "hunter2-hunter2-hunter2"',
    "a key in place of a table": '[recalibrator.api_keys]\nada = "hunter2-hunter2-hunter2"',
    "a short signing key": '[calibration]\nsigning_key = "hunter2"',
    "an unclosed text": '[calibration]\nsigning_key = "hunter2',
}


def _logged(settings: Settings) -> str:
    """Return nothing, and write a failure's traceback, among whose variables the settings are, to the log."""
    configure_logging(LogFormat.CONSOLE)
    try:
        int("a fault")
    except ValueError as error:
        structlog.get_logger().error("request failed", exc_info=error, warnings=settings_warnings(settings))
    return ""


def _status(settings: Settings) -> str:
    return json.dumps([running_settings(settings, parts) for parts in (OF_GATEWAY, OF_RECALIBRATOR)])


def _said_on_hangup(settings: Settings) -> str:
    done = [Reread.of(*pair, OF_GATEWAY) for pair in ((Settings(), settings), (settings, Settings()))]
    return str([one[1:] for one in done])


async def _exported(settings: Settings) -> str:
    """Return all that a router lets out of queries whose model servers are away: traces, metrics, health and faults."""
    asked = {name: one.model_copy(update={"large": one.small}) for name, one in settings.workloads.items() if one.small}
    with_models = settings.model_copy(update={"workloads": asked})
    exporter, provider, metrics, said = InMemorySpanExporter(), TracerProvider(), Metrics(), []
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = OpenTelemetry(provider)
    answerer = CascadeAnswerer(
        with_models, ActiveVersions({}), SystemClock(), "r", metrics=metrics, tracing=tracing, waits=False
    )
    await answerer.start()
    for name in asked:
        with tracing.serving((), "q-1", name) as trace:
            with pytest.raises(ServersDown) as away:
                await answerer.answer(QueryEvent(query_id="q-1", text="canon"), name, trace.headers)
            trace.failed("model_servers_down", str(away.value))
        said.append("".join(traceback.format_exception(away.value)))
    said += [str(answerer.health()), generate_latest(metrics.registry).decode()]
    await answerer.close()
    return "".join([*said, *(span.to_json() for span in exporter.get_finished_spans())])


PLACES: dict[str, Callable[[Settings], Any]] = {
    "config output": render_settings,
    "status": _status,
    "logs and their tracebacks": _logged,
    "SIGHUP": _said_on_hangup,
    "traces and exports": lambda settings: asyncio.run(_exported(settings)),
    "a model's public address": lambda settings: [w.small.public_url for w in settings.workloads.values() if w.small],
}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
def test_a_secret_stands_nowhere(secret: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Config output, status (which the page draws on), logs, tracebacks, traces, metrics, and model addresses."""
    shown = str(PLACES[place](parse_settings(SECRETS[secret], {})))
    assert "hunter2" not in shown + "".join(capsys.readouterr())


@pytest.mark.parametrize("mistake", MISTYPED)
def test_a_mistyped_secret_is_printed(mistake: str) -> None:
    """By check-config, and by the log of a service whose file was read anew."""
    with pytest.raises(ConfigError) as refused:
        require_kafka(parse_settings(MISTYPED[mistake], {}))
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    assert not any("\n" in fault for fault in refused.value.faults)

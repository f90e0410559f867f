"""A Prometheus and an Alertmanager beside the demo's stack: the dashboard's queries, and an alert that is delivered.

Both are Debian's (``apt-get install prometheus prometheus-alertmanager``). Rules and dashboard are the files that
operators install; only the waiting times of the alerts (``for``) are cut to a second.

    python -m tests.deploy.ops.live_monitoring --out docs/results/dashboard.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.support.checkout import ROOT, command
from tests.support.waiting import wait_until
from tests.support.webhooks import Receiver, receiving
from tools.ops.dashboard import ROWS
from ucci_demo.recorded.traffic import load_traffic
from ucci_stream.local.kafka_node import pick_port

MONITORING = ROOT / "deploy" / "monitoring"
DEMO_SECONDS = 60
QUERIES = 300
START_S = 60.0
DEADLINE_S = 120.0
RATE_INTERVAL = "30s"
_ADDRESS = re.compile(r"✓ +(small model|large model|recalibrator|router-\d) +(http://[^\s/]+)")
_LEFT_RUNNING = "left running until"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a panel's query gives."""

    panel: str
    legend: str
    series: list[tuple[Mapping[str, str], float]]


@dataclass(slots=True)
class Demo:
    """The demo's processes, left running after its traffic."""

    process: subprocess.Popen[str]
    addresses: dict[str, str] = field(default_factory=dict)

    def await_line(self, holds: Callable[[str], bool]) -> None:
        """Read on until a line of the output holds; notes addresses on the way."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := _ADDRESS.search(line):
                self.addresses[found[1]] = found[2]
            if holds(line):
                return
        raise AssertionError(f"the demo ended with {self.process.wait()} before the line came")

    def kill_model(self, role: str) -> None:
        """End a model server as a crash would."""
        port = self.addresses[f"{role} model"].rpartition(":")[2]
        for folder in Path("/proc").iterdir():
            try:
                argv = (folder / "cmdline").read_bytes().split(b"\0")
            except (OSError, NotADirectoryError):
                continue
            if b"ucci_demo.model_server" in argv and port.encode() in argv:
                os.kill(int(folder.name), signal.SIGKILL)
                return
        raise AssertionError(f"no model server listens on port {port}")


@contextmanager
def demo(directory: Path) -> Iterator[Demo]:
    """Run the demo's traffic; yields once its services are ready, while queries flow."""
    process = subprocess.Popen(
        command("demo", "--keep", "--seconds", DEMO_SECONDS, "--directory", directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
    )
    running = Demo(process)
    try:
        running.await_line(lambda line: "calibrated" in line)
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60.0)
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus, by its API."""

    address: str

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the ``data`` of an answer."""
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def panels(self) -> list[Answer]:
        """Return what every query of every panel gives now."""
        answers = []
        for panel in (panel for row in ROWS.values() for panel in row):
            for legend, query in panel.queries.items():
                asked = query.replace("$__rate_interval", RATE_INTERVAL).replace("$workload", ".*")
                found = self.ask("query", query=asked)["result"]
                series = [(one["metric"], float(one["value"][1])) for one in found]
                answers.append(Answer(panel.title, legend, series))
        return answers

    def await_targets(self, count: int) -> None:
        """Wait until so many targets are up."""

        def health() -> list[str]:
            with suppress(OSError):  # it does not listen yet
                return [one["lastError"] or one["health"] for one in self.ask("targets")["activeTargets"]]
            return []

        wait_until(health, "all targets are up", lambda found: found == ["up"] * count, within_s=START_S)


@contextmanager
def prometheus(directory: Path, running: Demo, alertmanager: str) -> Iterator[Prometheus]:
    """Scrape the demo's services each second, and judge the rules as often."""
    rules = yaml.safe_load((MONITORING / "rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
    (directory / "rules.yml").write_text(yaml.safe_dump(rules))
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(directory / "rules.yml")]
    config["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [alertmanager]}]
    jobs = {"ucci-router": "router-", "ucci-recalibrator": "recalibrator", "model-servers": "model"}
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in jobs]
    for job in config["scrape_configs"]:
        part = jobs[job["job_name"]]
        hosts = [address.removeprefix("http://") for name, address in running.addresses.items() if part in name]
        job["static_configs"] = [{"targets": sorted(hosts)}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{pick_port()}"
    options = (f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data")
    with _running(directory, "prometheus", *options, f"--web.listen-address={address}"):
        found = Prometheus(f"http://{address}")
        found.await_targets(sum(len(job["static_configs"][0]["targets"]) for job in config["scrape_configs"]))
        yield found


@contextmanager
def alertmanager(directory: Path, webhook: Receiver) -> Iterator[str]:
    """Deliver to the webhook under the shipped configuration's routes; yields the address."""
    config = yaml.safe_load((MONITORING / "alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    config["receivers"] = [{"name": "nobody", "webhook_configs": [{"url": webhook.url}]}]
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{pick_port()}"
    options = (f"--config.file={directory}/alertmanager.yml", f"--storage.path={directory}/alerts")
    listen = (f"--web.listen-address={address}", "--cluster.listen-address=")
    with _running(directory, "prometheus-alertmanager", *options, *listen):
        yield address


@contextmanager
def _running(directory: Path, name: str, *options: str) -> Iterator[None]:
    assert shutil.which(name), f"{name} is not installed: apt-get install {name}"
    with (directory / f"{name}.log").open("w") as log:
        process = subprocess.Popen([name, *options], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30.0)


@dataclass(frozen=True, slots=True)
class Live:
    """Everything that runs, and where its files lie."""

    directory: Path
    demo: Demo
    prometheus: Prometheus
    webhook: Receiver


@contextmanager
def live(directory: Path) -> Iterator[Live]:
    """Run the demo's traffic to its end under Prometheus and Alertmanager."""
    with ExitStack() as parts:
        running, webhook = parts.enter_context(demo(directory / "demo")), parts.enter_context(receiving())
        alerts = parts.enter_context(alertmanager(directory, webhook))
        found = parts.enter_context(prometheus(directory, running, alerts))
        running.await_line(lambda line: _LEFT_RUNNING in line)
        yield Live(directory, running, found, webhook)


def page(answers: list[Answer], alert: Mapping[str, Any], delivered_s: float) -> str:
    """Return what the dashboard shows, as a table."""
    rows = []
    for one in answers:
        shown = "; ".join(f"{_label(labels)}{value:.4g}" for labels, value in one.series[:4])
        more = f"; and {len(one.series) - 4} more" if len(one.series) > 4 else ""
        legend = one.legend.replace("|", "\\|")
        rows.append(f"| {one.panel} | {legend} | {shown + more or 'no series'} |")
    return "\n".join(
        (
            "# The dashboard's queries on a live Prometheus",
            "",
            "What each query of [the dashboard](../../deploy/monitoring/dashboard.json) gives at the end of the",
            f"demo's traffic ({DEMO_SECONDS} s), scraped each second; rates over {RATE_INTERVAL}. Written by",
            "",
            "```console",
            "$ python -m tests.deploy.ops.live_monitoring --out docs/results/dashboard.md",
            "```",
            "",
            f"on 2 virtual cores, {datetime.now(UTC):%Y-%m-%d}. Then the large model's server was killed while",
            f"queries came: `{alert['labels']['alertname']}`, its waiting time cut to a second, reached a webhook",
            f"through Alertmanager {delivered_s:.1f} s later.",
            "",
            "| panel | legend | series |",
            "| --- | --- | --- |",
            *rows,
            "",
        )
    )


def _label(labels: Mapping[str, str]) -> str:
    kept = [value for name, value in sorted(labels.items()) if name not in {"__name__", "job", "workload"}]
    # Ports differ from run to run.
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", f"{', '.join(kept)}: ") if kept else ""


def lose_the_large_model(running: Live) -> tuple[dict[str, Any], float]:
    """Kill its server while queries flow; return the alert that a webhook gets, and after how many seconds.

    A router asks a server whether it is there once a call has failed: without queries nobody is missing it.
    """
    queries = running.directory / "queries.jsonl"
    sent = [{"query_id": f"after-{n}", "text": one.text} for n, one in enumerate(load_traffic()[:QUERIES])]
    queries.write_text("".join(json.dumps(one) + "\n" for one in sent))
    began_s = time.monotonic()
    running.demo.kill_model("large")
    argv = command("send", queries, "--config", running.directory / "demo" / "ucci.toml")
    subprocess.run(argv, check=True, timeout=DEADLINE_S)

    def firing() -> list[dict[str, Any]]:
        alerts = [alert for one in running.webhook.received for alert in one.document["alerts"]]
        return [one for one in alerts if (one["labels"]["alertname"], one["status"]) == ("UcciModelDown", "firing")]

    alert = wait_until(firing, "the alert is delivered", within_s=DEADLINE_S)[0]
    return alert, time.monotonic() - began_s


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the page to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, live(Path(directory)) as running:
        answers = running.prometheus.panels()
        options.out.write_text(page(answers, *lose_the_large_model(running)), encoding="utf-8")


if __name__ == "__main__":
    main()

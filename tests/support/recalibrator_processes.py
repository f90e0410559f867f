"""Recalibrators as processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.settings import Settings
from tests.support.router_processes import RouterProcess
from ucci_stream.topics.admin import create_topics

STAGES = ("join", "fit")


def recalibrator_settings(bootstrap: str, prefix: str, partitions: int = 2) -> Settings:
    """Return settings with one workload, equal to those that :func:`write_recalibrator_config` writes."""
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": bootstrap},
            "topics": {"prefix": prefix, "partitions": partitions},
            "workloads": {
                "photo": {"fields": ["camera", "lens"], "target": {"micro_f1": 0.9}, "cost": {"large": 3.0}},
            },
        }
    )


def create_all_topics(bootstrap: str, prefix: str, partitions: int = 2) -> None:
    create_topics(recalibrator_settings(bootstrap, prefix, partitions))


def write_recalibrator_config(
    path: Path, bootstrap: str, prefix: str, state_dir: Path, http_port: int = 0, **more: int
) -> Path:
    lines = [
        *("[kafka]", f'"bootstrap.servers" = "{bootstrap}"'),
        # A member that never comes back is given up after this time.
        *('"session.timeout.ms" = 6000', '"heartbeat.interval.ms" = 500'),
        *("[topics]", f'prefix = "{prefix}"'),
        *("[recalibrator]", f'state_dir = "{state_dir}"', f"http_port = {http_port}", "join_retention_s = 86400.0"),
        *(f"{key} = {value}" for key, value in more.items()),
        *("[workloads.photo]", 'fields = ["camera", "lens"]', "target = { micro_f1 = 0.9 }", "cost = { large = 3.0 }"),
    ]
    path.write_text("\n".join(lines))
    return path


@dataclass
class RecalibratorProcess(RouterProcess):
    """One ``recalibrator run``, restarted at will."""

    stages: tuple[str, ...] = STAGES

    def start(self) -> None:
        self._run("recalibrator", "run", *(word for stage in self.stages for word in ("--stage", stage)))

"""A folder with the configuration of one workload, ``w``, whose two models are scripted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.scripted_model_server import FIELDS, ScriptedModelServer


@dataclass
class ModelDesk:
    """The folder and the models; ``configure`` writes what is said here."""

    folder: Path
    small: ScriptedModelServer
    large: ScriptedModelServer
    #: What else the workload's table holds.
    workload: str

    prompt: str = "{text}"
    small_model: str = "small"
    broker: str = "127.0.0.1:1"
    prefix: str = "p"

    @property
    def config(self) -> Path:
        return self.folder / "ucci.toml"

    def configure(self) -> Path:
        served = "timeout_s = 60.0, max_concurrency = 64"
        lines = ["[kafka]", f'"bootstrap.servers" = "{self.broker}"', "[topics]", f'prefix = "{self.prefix}"']
        lines += ["[workloads.w]", f'prompt = "{self.prompt}"', f"fields = {json.dumps(FIELDS)}"]
        lines.append(f'small = {{ base_url = "{self.small.base_url}", model = "{self.small_model}", {served} }}')
        lines.append(f'large = {{ base_url = "{self.large.base_url}", model = "large", {served} }}')
        self.config.write_text("\n".join([*lines, self.workload]), encoding="utf-8")
        return self.config


@asynccontextmanager
async def model_desk(folder: Path, workload: str, prompt: str = "{text}") -> AsyncIterator[ModelDesk]:
    async with ScriptedModelServer("small") as small, ScriptedModelServer("large") as large:
        made = ModelDesk(folder, small, large, workload, prompt)
        made.configure()
        yield made

"""``python -m tools.ops.render``: render the Helm chart with each file of its ``ci`` folder, and keep what comes out.

The rendered objects lie in ``tests/deploy/ops/rendered``: tests validate them without Helm, and a review shows what a
change of the chart changes in a cluster. Each begins with a digest of the chart, so that a stale one is found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ucci_stream.local.side_environment import ensure_side_environment

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "ucci-stream"
RENDERED = ROOT / "tests" / "deploy" / "ops" / "rendered"
RELEASE, NAMESPACE = "demo", "cascades"
HELM_SDK = "0.2.2"
_DIGEST = "# Rendered by `make chart` from a chart of the digest "
_TIMEOUT_S = 120.0

# Helm's own Go code behind a C interface; runs in an environment of its own, 244 MB.
_SCRIPT = """
import json, sys, helm_python
chart, asked = sys.argv[1], json.load(sys.stdin)
values = asked["values"]
try:
    if asked["lint"]:
        done = helm_python.lint(chart, values, strict=True)
    else:
        done = helm_python.Chart.load(chart).render(values, name=asked["release"], namespace=asked["namespace"])
except helm_python.HelmError as error:
    done = {"error": str(error)}
print(json.dumps(done))
"""


class ChartRefusedError(Exception):
    """Helm does not render the chart with these values; the message is Helm's."""


def values_files() -> list[Path]:
    """Return the files of values that the chart is tried with."""
    return sorted((CHART / "ci").glob("*.yaml"))


def digest() -> str:
    """Return a digest of the chart, its ``ci`` folder included."""
    total = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        total.update(path.relative_to(CHART).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def kept_digest(text: str) -> str:
    """Return the digest in the first line of a rendered file."""
    return text.partition("\n")[0].removeprefix(_DIGEST)


def lint(values: str) -> list[str]:
    """Return what ``helm lint --strict`` finds wrong with the chart under these values, a YAML text."""
    report = _helm(values, lint=True)
    return [*report["errors"], *(one["error"] for one in report["messages"] if one["severity"] > 1)]


def render(values: str) -> str:
    """Return all objects of the chart under these values, a YAML text. Raises ChartRefusedError."""
    templates: dict[str, str] = _helm(values, lint=False)
    texts = [
        text.strip().removeprefix("---").strip() for name, text in sorted(templates.items()) if name.endswith("yaml")
    ]
    lines = "\n---\n".join(text for text in texts if text).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def rendered(path: Path) -> str:
    """Return what is kept of one file of values."""
    return f"{_DIGEST}{digest()}\n{render(path.read_text(encoding='utf-8'))}"


def _helm(values: str, *, lint: bool) -> dict[str, Any]:
    python = ensure_side_environment("helm", HELM_SDK, requirement=f"helm-python-sdk=={HELM_SDK}", size="75 MB")
    asked = json.dumps({"values": yaml.safe_load(values), "lint": lint, "release": RELEASE, "namespace": NAMESPACE})
    argv = [str(python), "-c", _SCRIPT, str(CHART)]
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise ChartRefusedError(answer["error"])
    return answer


def main() -> None:
    """Render the chart with every file of its ``ci`` folder."""
    description = "Render the Helm chart with each file of its ci folder into tests/deploy/ops/rendered."
    argparse.ArgumentParser(description=description, epilog="example: python -m tools.ops.render").parse_args()
    RENDERED.mkdir(parents=True, exist_ok=True)
    for path in values_files():
        (RENDERED / path.name).write_text(rendered(path), encoding="utf-8")


if __name__ == "__main__":
    main()

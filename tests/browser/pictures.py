"""Take the pictures of the page anew: ``python -m tests.browser.pictures``, from the root of the clone.

Every state in light, in dark and on a telephone, from the made-up workloads of :mod:`tests.support.page_scenes`; and
the gallery that shows them with the sentence that each page begins with. ``--only drift`` takes one state's alone.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser

from tests.support.chromium import open_chromium
from tests.support.page_scenes import SCENES, first_sentence, served

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "page"
GALLERY = FOLDER / "README.md"
MOST_BYTES = 150_000
_COLOURS = 256

#: What has its pictures, and what each is called.
STATES = {
    "outage": "A model server is down",
    "drift": "Drift",
    "infeasible": "The target is out of reach",
    "dear": "The cascade costs more than the large model alone",
    "large-only": "The large model answers alone",
    "cold-start": "Before the first version",
    "label-starvation": "Too few labels",
    "quiet": "No traffic: the service is up",
    "routers-gone": "No router: the service has stopped",
    "fit-gone": "The fit is silent",
    "kafka-away": "Kafka does not answer",
    "large-slow": "The large model is overloaded",
    "small-down": "The small model is down",
    "models-down": "Both models are down",
    "disk-low": "A disk is nearly full",
    "disk-full": "A disk is full",
    "small-worse": "The small model answers worse",
    "large-worse": "The large model answers worse",
    "labels-stop": "Labels have stopped",
    "labeler-bad": "One labeler is set aside",
    "crowd-careless": "Labels are in doubt",
    "labels-without-result": "Labels name queries without a result",
    "labels-one-sided": "Labels come from one side only",
    "workloads": "Many workloads",
}

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 1080}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 1080}},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 1.5,
        "is_mobile": True,
        "has_touch": True,
    },
}

_HEAD = """\
<!-- written by `python -m tests.browser.pictures` -->
# The page in every state

The top of the page, on made-up data, under [what it says first](../operating.md#what-is-said-first).
"""


def gallery() -> str:
    """Return the page that shows the pictures, as Markdown."""
    parts = [_HEAD]
    for scene, title in STATES.items():
        cells = "".join(f"|![{title}, {look}]({scene}-{look}.png)" for look in LOOKS)
        parts.append(f"## {title}\n\n> {first_sentence(SCENES[scene])}\n\n{cells}|\n{'|---' * len(LOOKS)}|\n")
    return "\n".join(parts)


def take(browser: Browser, scenes: Sequence[str]) -> None:
    """Write the pictures of these scenes."""
    FOLDER.mkdir(exist_ok=True)
    for scene in scenes:
        with served(SCENES[scene]) as address:
            for look in LOOKS:
                (FOLDER / f"{scene}-{look}.png").write_bytes(picture(browser, address + SCENES[scene].path, look))


def picture(browser: Browser, address: str, look: str) -> bytes:
    """Return what stands on the first screen of a page, as a small PNG."""
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#live.on")
    taken = Image.open(io.BytesIO(page.screenshot()))
    context.close()
    small = io.BytesIO()
    taken.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def main() -> None:
    """Take the pictures and write the gallery."""
    parser = argparse.ArgumentParser(description="Take the pictures of the page anew.")
    parser.add_argument("--only", choices=STATES, help="the pictures of one state alone")
    only = parser.parse_args().only
    with open_chromium() as browser:
        take(browser, [only] if only else list(STATES))
        if only is None:
            with served(SCENES["well"]) as address:
                (DOCS / "page.png").write_bytes(picture(browser, address, "light"))
    GALLERY.write_text(gallery(), encoding="utf-8")


if __name__ == "__main__":
    main()

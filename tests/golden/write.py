"""Write the golden file anew: ``python -m tests.golden.write``, from the root of the clone.

Only where a change is meant to show. What has changed stands in the difference of the file, and belongs in the commit's
message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.golden.lists import lists
from tests.golden.stream import STORIES, run

GOLDEN = Path(__file__).parent / "public.json"


def text(document: dict[str, Any]) -> str:
    """Return the file's text."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the file."""
    GOLDEN.write_text(text({**lists(), "streams": {name: run(name) for name in STORIES}}), encoding="utf-8")


if __name__ == "__main__":
    main()

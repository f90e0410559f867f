"""What a schema registry's frame costs a record: looking for it, passing over it, and writing it.

python -m research.wire_format --json wire_format.json
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from pathlib import Path

from research.results_json import tell
from schemas.query import QueryEvent
from schemas.wire_format import framed, unframed

FULL, QUICK = 200_000, 20_000
ROUNDS = 7


def microseconds(call: Callable[[], object], times: int) -> float:
    """Return the time of one call in the fastest of several rounds."""
    return round(min(timeit.repeat(call, number=times, repeat=ROUNDS)) / times * 1e6, 3)


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.wire_format", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for a first look")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    times = QUICK if options.quick else FULL
    plain = QueryEvent(query_id="q-1", text="canon 5d f2.8 at night", workload="photo-search").to_json()
    with_frame = framed(258, plain)
    result = b'{"query_id":"q-1"}'.ljust(2_000)
    found = {
        "look for a frame where there is none": microseconds(lambda: unframed(plain), times),
        "pass over a frame": microseconds(lambda: unframed(with_frame), times),
        "write a frame before 2,000 bytes": microseconds(lambda: framed(258, result), times),
        "read a query, for comparison": microseconds(lambda: QueryEvent.from_json(plain), times // 10),
    }
    tell({"microseconds": found}, options.json)


if __name__ == "__main__":
    main()

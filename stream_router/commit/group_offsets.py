"""What the group has committed, as the ledger takes it: offsets, and in their metadata the offsets done beyond them."""

from __future__ import annotations

from collections.abc import Callable

from stream_router.commit.done_offsets import decode
from stream_router.commit.ledger import CommittedOffsets
from ucci_runtime.broker.ports import GroupOffsets
from ucci_runtime.broker.records import Input, OffsetCommit


def committed_offsets(
    found: GroupOffsets, on_foreign: Callable[[Input, OffsetCommit], None]
) -> dict[int, CommittedOffsets]:
    """Read a group's offsets of one topic, by partition.

    ``on_foreign``: called with each offset whose metadata is not this router's: nothing beyond it counts as done.
    """
    return {source.partition: _committed(source, commit, on_foreign) for source, commit in found.items()}


def _committed(
    source: Input, commit: OffsetCommit | None, on_foreign: Callable[[Input, OffsetCommit], None]
) -> CommittedOffsets:
    if commit is None:
        return CommittedOffsets(None)
    done = decode(commit.offset, commit.metadata)
    if done is None:
        on_foreign(source, commit)
    return CommittedOffsets(commit.offset, done or ())

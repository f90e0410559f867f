"""Consumer groups of the broker in memory: members by instance id, generations, and who may commit.

The protocol is Kafka's classic one with static membership and eager range assignment: when a member joins or leaves,
every other gives up all its partitions, then each is given its share under a new generation. A process that comes back
under its instance id in time takes its old place without any of that, and the process it replaces is fenced. A member
that ends in good order leaves at once, unless it is alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from ucci_runtime.broker.records import Input, OffsetCommit

#: How long a member may be silent before its partitions go to others.
SESSION_S = 20.0


class GroupMetadata(NamedTuple):
    """What a member knows of its membership; a commit carries it."""

    group: str
    instance_id: str
    member_id: int
    generation: int


class Step(Enum):
    """What a member has to do next, before anything is delivered to it."""

    NOTHING = "nothing"
    WAIT = "wait"
    REVOKE = "revoke"
    LOSE = "lose"
    ASSIGN = "assign"
    FENCED = "fenced"


@dataclass(eq=False, slots=True)
class Member:
    """One member as the group and the process behind it know it."""

    instance_id: str
    member_id: int
    heard_at_s: float
    generation: int = -1
    has_joined: bool = False
    holds: tuple[Input, ...] = ()


@dataclass(eq=False, slots=True)
class Group:
    name: str
    #: Every partition of the topics that it reads.
    sources: Sequence[Input] = ()

    generation: int = 0
    is_balancing: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    shares: dict[str, tuple[Input, ...]] = field(default_factory=dict)
    offsets: dict[Input, OffsetCommit] = field(default_factory=dict)
    _members_made: int = 0

    def join(self, instance_id: str, now_s: float) -> Member:
        """Take a member in; one under an instance id that is known takes that one's place."""
        self._members_made += 1
        known = instance_id in self.members
        member = self.members[instance_id] = Member(instance_id, self._members_made, now_s)
        if not known or self.is_balancing:
            self.rebalance()
            member.has_joined = True
            self._complete()
        return member

    def rebalance(self) -> None:
        """Ask every member to give up its partitions."""
        if not self.is_balancing:
            self.is_balancing = True
            for member in self.members.values():
                member.has_joined = False

    def evict(self, instance_id: str) -> None:
        """Remove a member that was silent for too long; its process learns of it when it polls again."""
        if self.members.pop(instance_id, None) is not None:
            self.rebalance()
            self._complete()

    def leave(self, member: Member) -> None:
        """Remove a member that ends, where others can take its partitions over."""
        if self.members.get(member.instance_id) is member and len(self.members) > 1:
            self.evict(member.instance_id)

    def expire(self, now_s: float) -> None:
        for member in list(self.members.values()):
            if now_s - member.heard_at_s > SESSION_S:
                self.evict(member.instance_id)

    def next_step(self, member: Member) -> Step:
        """Say what a member has to do now."""
        present = self.members.get(member.instance_id)
        if present is not member:
            return Step.LOSE if present is None else Step.FENCED
        if self.is_balancing:
            return Step.WAIT if member.has_joined else Step.REVOKE
        return Step.NOTHING if member.generation == self.generation else Step.ASSIGN

    def rejoin(self, member: Member) -> None:
        """Note that a member has given up its partitions; the last one to do so completes the rebalance."""
        member.holds = ()
        member.has_joined = True
        self._complete()

    def take_share(self, member: Member) -> None:
        member.generation, member.holds = self.generation, self.shares.get(member.instance_id, ())

    def accepts(self, metadata: object) -> bool:
        """Whether a commit under this metadata is taken, rather than fenced as a former member's."""
        if not isinstance(metadata, GroupMetadata) or metadata.group != self.name:
            return False
        member = self.members.get(metadata.instance_id)
        return (member and member.member_id, self.generation) == (metadata.member_id, metadata.generation)

    def _complete(self) -> None:
        if not self.is_balancing or not all(member.has_joined for member in self.members.values()):
            return
        self.is_balancing = False
        self.generation += 1
        self.shares = _range_shares(self.sources, sorted(self.members))


def _range_shares(sources: Iterable[Input], instance_ids: Sequence[str]) -> dict[str, tuple[Input, ...]]:
    """Share partitions out so that the same partition of every topic goes to the same member."""
    shares: dict[str, tuple[Input, ...]] = dict.fromkeys(instance_ids, ())
    for _, group in groupby(sorted(sources), key=lambda source: source.topic):
        left = list(group)
        for index, instance_id in enumerate(instance_ids):
            # The first members have one more where the number does not go into theirs.
            count = -(-len(left) // (len(instance_ids) - index))
            shares[instance_id] += tuple(left[:count])
            del left[:count]
    return shares

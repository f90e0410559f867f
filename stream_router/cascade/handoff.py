"""The lever of the handoff: the large model goes on from the part of the small answer that is certain. Pure.

Where that leads to no valid answer it is asked again, alone, once. A drawn share of queries asks it alone as well, to
compare. The part ends before the first token that the small model was unsure of, and where a text may be cut: never
inside a character, an escape, a number or a literal, nor behind white space, which chat templates trim and tokenizers
join to the next word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from schemas.basis import Handoff, handoff_name
from schemas.entities import equal
from schemas.routed import DecisionReason, QueryHandoff, RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.settings_workload import HandoffSettings
from stream_router.cascade.lever import Asked, Drawn, Lever, RunEnd
from stream_router.ports import CascadeMetrics, TokenMark

#: Kept of the text of an answer that is not served.
_RAW_CHARS_ALONE = 4_096

#: Why a query may have escalated that is drawn to compare. Explored ones and those of a cold start are not served so
#: once the threshold decides.
_COMPARED: frozenset[DecisionReason] = frozenset({"threshold", "infeasible", "small_failed"})

#: What bytes that make no character are decoded to.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

#: A string that is not whole ends behind its last whole character, escape, or surrogate pair of escapes.
_LEXEME = re.compile(
    r"""(?P<white>\s+)|(?P<sign>[{}\[\],:])|(?P<scalar>[^\s,:\[\]{}"\\]+)|"""
    r"""(?P<string>"(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"""
    r"""|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*"?)"""
)

#: An answer is an object that may hold lists.
_DEEPEST = 2

#: A high surrogate at the end of a text, whose low one may follow.
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?$")


class HandoffLever(Lever):
    """Present where a workload configures a handoff; the version that decides may have switched it off."""

    streams_small = True

    def __init__(self, workload: WorkloadSettings, settings: HandoffSettings) -> None:
        self._workload = workload
        self._settings = settings
        self._handoff: Handoff | None = None
        self._small: Asked | None = None
        self._drawn: Drawn | None = None
        self._is_compared = False
        self._lost: Asked | None = None
        self._alone: Asked | None = None

    def small_ended(self, small: Asked, drawn: Drawn, *, large_follows: bool) -> None:
        """Cut off what the large model goes on from."""
        handoff = self._settings.handoff if drawn.version is None else drawn.version.handoff
        self._handoff = handoff if handoff is not None and handoff.active else None
        self._small, self._drawn = small, drawn
        if self._handoff is not None and large_follows:
            self.begun = handed_over(small.run.raw or "", small.marks, self._handoff)

    def large_ended(self, large: Asked) -> bool:
        """Ask again where going on led to no valid answer; draw whether to compare.

        That is drawn inside the label draw, by the same number: as long as fewer are compared than labelled, all are
        labelled.
        """
        if self.begun and large.invalid:
            self.begun, self._lost, self.unserved = "", large, (large,)
            return False
        drawn = self._drawn
        is_drawn = drawn is not None and drawn.decision.reason in _COMPARED and drawn.draw < self._settings.guard_share
        self._is_compared = is_drawn and self._handoff is not None and large.end is RunEnd.VALID
        # Where nothing was handed over, this answer is the one to compare with.
        self.wants_alone = self._is_compared and self.begun != ""
        return True

    def alone_ended(self, alone: Asked) -> None:
        """Keep it for the record."""
        self._alone, self.wants_alone = alone, False
        self.unserved = (*self.unserved, alone)

    def record(self, content: dict[str, Any]) -> None:
        """Say what was handed over, also where that was nothing."""
        if (name := handoff_name(self._handoff)) is None or self._small is None:
            return
        lost = None if self._lost is None else self._lost.run
        alone = None if self._alone is None else self._alone.run
        if alone is not None and alone.raw is not None:
            # It adds little to the size of a record: its entities say what it answered.
            alone = alone.model_copy(update={"raw": alone.raw[:_RAW_CHARS_ALONE]})
        content["handoff"] = QueryHandoff(
            name=name,
            characters=len(self.begun),
            tokens=sum(mark.start < len(self.begun) for mark in self._small.marks),
            asked_again=lost is not None,
            lost_tokens=0 if lost is None else lost.completion_tokens,
            lost_prompt_tokens=0 if lost is None else lost.prompt_tokens,
            guarded=self._is_compared,
            alone=alone,
        )

    def count(self, routed: RoutedEvent, metrics: CascadeMetrics) -> None:
        """Count the outcome of a handoff, and how the answers compare."""
        handoff = routed.handoff
        if handoff is None or routed.large is None:
            return
        outcome = "asked_again" if handoff.asked_again else "continued" if handoff.characters else "nothing_certain"
        metrics.count("handoffs", workload=routed.workload, outcome=outcome)
        alone = routed.large_alone
        if alone is not None:
            same = equal(routed.large.entities, alone.entities, self._workload.fields)
            outcome = "failed" if not alone.valid else "same" if same else "different"
            metrics.count("handoff_comparisons", workload=routed.workload, outcome=outcome)


def handed_over(text: str, marks: Sequence[TokenMark], handoff: Handoff) -> str:
    r"""Return the part of an answer that the large model goes on from.

    ``marks``: of its tokens, in order; without any, nothing is certain. What is returned begins ``text``, and some
    answer: one JSON object that is still open. Empty where nothing is certain, or where what is certain is no beginning
    of an answer.

    Examples
    --------
    >>> marks = [TokenMark(0, 0.99), TokenMark(1, 0.99), TokenMark(14, 0.98), TokenMark(18, 0.4)]
    >>> handed_over('{"iso": "100", "lens": null}', marks, Handoff(margin=0.9))
    '{"iso": "100",'
    >>> handed_over('{"iso": "100", "lens": null}', marks, Handoff(margin=0.9, granularity="token"))
    '{"iso": "100", "le'
    """
    if not marks:
        return ""
    first_unsure = next((mark.start for mark in marks if mark.margin < handoff.margin), len(text))
    certain = text[:first_unsure].partition(_REPLACEMENT)[0]
    places = _Places()
    if not places.read(certain) or not _is_beginning(certain):
        return ""
    if handoff.granularity == "token":
        end = _before_a_token(certain, places.anywhere, marks)
    else:
        # Behind a comma that shares its token with what follows, the large model has never seen an answer go on.
        undivided = {mark.start for mark in marks} | {len(certain)}
        end = max((place for place in places.fields if place in undivided), default=0)
    return certain[:end].rstrip()


def _before_a_token(certain: str, end: int, marks: Sequence[TokenMark]) -> int:
    """Return where the token begins that a cut would divide, if the text may be cut there; else the cut itself.

    Half a token is read as another one, after which the large model has never seen an answer go on: an answer that is
    certain to its end was cut before the brace of a last token such as ``"}``, and often had to be asked for again.
    """
    if end == len(certain):
        return end
    start = max((mark.start for mark in marks if mark.start <= end), default=end)
    places = _Places()
    return start if places.read(certain[:start]) and places.anywhere == start else end


def _is_beginning(text: str) -> bool:
    try:
        from_json(text.encode(), allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        # The parser misses the second half of a surrogate pair where the text ends before it.
        whole = _HALF_PAIR.sub("", text)
        return whole != text and _is_beginning(whole)
    return True


@dataclass(slots=True)
class _Places:
    """The last places of an answer's beginning at which it may be cut."""

    #: Behind the comma of each field that is whole.
    fields: list[int] = field(default_factory=list)
    #: The last place of all.
    anywhere: int = 0

    #: How many brackets are open.
    depth: int = 0
    #: Whether the object has ended.
    is_closed: bool = False

    def read(self, text: str) -> bool:
        """Find the places; False where no answer begins so: not one object, or one with others inside."""
        place = 0
        while (found := _LEXEME.match(text, place)) is not None:
            place = found.end()
            if found.lastgroup != "white" and not self._take(found):
                return False
        return True

    def _take(self, found: re.Match[str]) -> bool:
        lexeme, end = found[0], found.end()
        if self.is_closed or (self.depth == 0) != (lexeme == "{"):
            return False
        if lexeme in ("{", "["):
            self.depth += 1
        elif lexeme in ("}", "]"):
            self.depth -= 1
            self.is_closed = self.depth == 0
        # A number at the end may go on, and an answer that is whole stays open: its end is the large model's.
        may_go_on = found.lastgroup == "scalar" and end == len(found.string)
        if not (may_go_on or self.is_closed):
            self.anywhere = end
            if lexeme == "," and self.depth == 1:
                self.fields.append(end)
        return self.depth <= _DEEPEST

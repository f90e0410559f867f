"""What a person says who looks at an annotation in Label Studio's editor; written from its documentation of results.

The editor shows three things: regions, each with its badges, its text, its note and what was asked about it; answers of
the whole task, each under the name of its control; and arrows between regions. A person reads these and nothing else.
Where two readings are possible, they are not sure.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

Said = dict[str, set[str]]


class NotSureError(Exception):
    """A person cannot tell what was meant."""


#: The name of a control, its kind, and what was given; None where that is no text.
Answer = tuple[str, str, list[str] | None]


@dataclass
class Shown:
    """One entry of the list of regions: each badge with its control and the text, answers by control and its kind."""

    badges: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def seen(result: list[dict[str, Any]], fields: Collection[str]) -> Said | None:
    """Return the values of each field that an annotation names, or None where a person is not sure."""
    try:
        return Person(fields).look(result)
    except NotSureError:
        return None


def spoken(text: str) -> str:
    """Return a text as it is read aloud: neither case nor spacing is heard, nor what is invisible."""
    heard = "".join(one for one in text if unicodedata.category(one) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", heard).casefold().split())


class Person:
    """Somebody who knows which fields there are, and nothing of how the project was set up."""

    def __init__(self, fields: Collection[str]) -> None:
        self.fields = list(fields)

    def look(self, result: list[dict[str, Any]]) -> Said:
        regions, answers = self.screen(result)
        said: dict[str, dict[str, set[str]]] = defaultdict(dict)
        for one in regions:
            self.look_at_region(one, said)
            answers += one.answers
        strange = [control for control, _, _ in answers if not self.field(control)]
        for control, kind, shown in answers:
            if (meant := self.field(control)) is not None:
                if shown is None:
                    raise NotSureError("nothing that is a value")
                said[meant].setdefault(f"{control} as {kind}", set()).update(heard(shown))
        if any(self.looks_like_field(name, said) for name in strange) or (strange and not said):
            raise NotSureError("a field may be meant")
        for by_control in said.values():
            if len(set(map(frozenset, by_control.values())) - {frozenset()}) > 1:
                raise NotSureError("two controls that do not agree")
        return {name: set().union(*by_control.values()) for name, by_control in said.items()}

    def look_at_region(self, region: Shown, said: dict[str, dict[str, set[str]]]) -> None:
        for control, badge, text in region.badges:
            if (meant := self.field(badge)) is None:
                raise NotSureError("a badge that is no field")
            said[meant].setdefault(control, set()).update(heard([text]))
            if heard(region.notes) and heard(region.notes) != heard([text]):
                raise NotSureError("a note that may be the value")
        if region.badges and any(not self.field(control) for control, _, _ in region.answers):
            raise NotSureError("an answer about the region that may be its value")

    def screen(self, result: list[dict[str, Any]]) -> tuple[list[Shown], list[Answer]]:
        labelled = {one["id"] for one in result if one["type"] in BADGES and "id" in one}
        regions: dict[Any, Shown] = defaultdict(Shown)
        answers: list[Answer] = []
        for one in result:
            kind, value, notes = one["type"], one.get("value", {}), one.get("meta", {}).get("text", [])
            if kind == "relation":
                if any(self.field(label) for label in one.get("labels") or ()):
                    raise NotSureError("an arrow that bears a field's name")
            elif kind in BADGES:
                if not value[kind] or "text" not in value:
                    raise NotSureError("a region without a badge, or of which the text was not kept")
                entry = regions[one.get("id", id(one))]
                entry.badges += [(f"{one['from_name']} as {kind}", label, value["text"]) for label in value[kind]]
                entry.notes += notes
            else:
                shown = answer(kind, value)
                if self.field(one["from_name"]) and heard(notes) and heard(notes) != heard(shown or ()):
                    raise NotSureError("a note that may be the value")
                place = regions[one["id"]].answers if one.get("id") in labelled else answers
                place.append((one["from_name"], kind, shown))
        return list(regions.values()), answers

    def field(self, name: str) -> str | None:
        if name in self.fields:
            return name
        return next((one for one in self.fields if spoken(one) == spoken(name)), None)

    def looks_like_field(self, name: str, said: Collection[str]) -> bool:
        return any(one not in said and (one in name or is_slip(name, one)) for one in self.fields)


BADGES = {"labels", "hypertextlabels", "paragraphlabels"}


def heard(texts: Iterable[str]) -> set[str]:
    return {spoken(text) for text in texts} - {""}


def answer(kind: str, value: dict[str, Any]) -> list[str] | None:
    """Return what the editor shows as the answer, or None where that is no text."""
    if kind == "textarea":
        return [value["text"]] if isinstance(value["text"], str) else list(value["text"])
    if kind in ("choices", "taxonomy"):
        paths = [[one] if isinstance(one, str) else one for one in value[kind]]
        if any(len(path) > 1 for path in paths):
            raise NotSureError("whether the whole path is meant or its end")
        return [path[0] for path in paths]
    if kind in ("number", "rating"):
        return [str(value[kind]).removesuffix(".0")]
    return [value["datetime"]] if kind == "datetime" else None


def is_slip(name: str, other: str) -> bool:
    """Return whether one letter too many, too few or wrong makes one name of the other."""
    longer, shorter = sorted((spoken(name), other), key=len, reverse=True)
    if len(longer) == len(shorter):
        return sum(a != b for a, b in zip(longer, shorter, strict=True)) <= 1
    return len(longer) == len(shorter) + 1 and any(longer[:n] + longer[n + 1 :] == shorter for n in range(len(longer)))

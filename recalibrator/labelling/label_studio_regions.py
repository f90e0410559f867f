"""What an annotation of Label Studio says of each field, read as a person would who looks at it. Pure.

A result is a list of regions. One that labels a span of text names the field by its label and the value by its text;
one that answers a control, such as ``<Choices>`` or ``<Number>``, names the field by the control's name. Regions that
may be meant for a field and are not read in full end the annotation, since the rest alone would count as the whole
label. Controls that people have added for themselves stay under their own names: the join ignores and counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

from recalibrator.labelling.field_names import FieldNames
from recalibrator.labelling.label_tool import invalid
from schemas.entities import MAX_FIELDS, EntityValue, field_values, normalise

#: Types of regions that label a span of text.
SPANS = frozenset({"labels", "hypertextlabels", "paragraphlabels"})
#: The key of the value of each type that answers a control, by type.
ANSWERS = {
    "textarea": "text",
    "choices": "choices",
    "number": "number",
    "rating": "rating",
    "datetime": "datetime",
    "taxonomy": "taxonomy",
}
_RELATION = "relation"
#: Keys that hold what a region says; ``text`` is also the text of the span that an answer belongs to.
_MAIN_KEYS = frozenset(ANSWERS.values()) - {"text"} | {"selected", "ranker", "chat", "reactcode"}
_READ_TYPES = "Labels, HyperTextLabels, ParagraphLabels, TextArea, Choices, Number, Rating, DateTime, Taxonomy"
_LEAST, _MOST = 1e-6, 1e21
_SHOWN_CHARS = 60


class _Statement(NamedTuple):
    """What a region says under one name; ``texts`` is None where it says something that is no text."""

    place: str
    kind: str
    name: str
    texts: tuple[str, ...] | None
    #: Which control it came by.
    control: str
    #: Which region of the task it belongs to: several statements may share one.
    region: str | None
    #: What somebody noted beside the region.
    notes: tuple[str, ...]
    is_label: bool = False

    @property
    def shown(self) -> str:
        return f"{self.name[:_SHOWN_CHARS]!r} ({self.kind[:_SHOWN_CHARS]})"


def entities_of(result: object, names: FieldNames, covered: Collection[str] = ()) -> dict[str, EntityValue]:
    """Return what an annotation's result says. Raises InvalidAnnotation, naming region, type and remedy.

    ``covered``: a workload's fields where the project's labeling configuration is known to have a control for each, so
    that whatever it has beside them is not meant for one.
    """
    if not isinstance(result, list):
        raise invalid("annotation.result", "must be a list of regions")
    places = ((f"annotation.result.{index}", region) for index, region in enumerate(result))
    statements = [one for place, region in places for one in _statements(place, region, names)]
    fields = _fields(statements, names)
    others = [one for one in statements if names.meant(one.name) is None]
    _require_unrelated(others, fields, names, is_covered=bool(covered))
    _require_unattached(others, statements, names)
    if others and not fields:
        # Whoever fills in a comment alone says that the text holds nothing.
        fields = dict.fromkeys(covered, ())
    extras: dict[str, list[str]] = {}
    for one in others:
        extras.setdefault(one.name, []).extend(one.texts or ())
    return {name: _value(texts) for name, texts in (extras | fields).items()}


def _value(texts: Iterable[str]) -> EntityValue:
    kept = tuple(texts)
    return kept if len(kept) > 1 else kept[0] if kept else None


def _fields(statements: Iterable[_Statement], names: FieldNames) -> dict[str, Any]:
    """Return the texts of each field that statements name."""
    by_control: dict[str, dict[tuple[str, str], list[str]]] = {}
    for one in statements:
        if (field := names.meant(one.name)) is None:
            continue
        if one.texts is None:
            raise invalid(one.place, f"{one.shown} says nothing that is a value of {field}: use one of {_READ_TYPES}")
        if one.notes and field_values(one.notes) != field_values(one.texts):
            note = f"{', '.join(one.notes)[:_SHOWN_CHARS]!r} is noted beside {one.shown} and may be its value"
            remedy = f"give the value by a control named {field}, or take the note away"
            raise invalid(f"{one.place}.meta.text", f"{note}: {remedy}")
        by_control.setdefault(field, {}).setdefault((one.control, one.kind), []).extend(one.texts)
    return {field: _agreed(field, said) for field, said in by_control.items()}


def _agreed(field: str, said: Mapping[tuple[str, str], list[str]]) -> list[str]:
    """Return what the controls say that name a field; what one leaves empty, another may say."""
    given = {control: texts for control, texts in said.items() if field_values(texts)}
    if not given:
        return []
    (first, texts), *others = given.items()
    right = field_values(texts)
    for control, other in others:
        if field_values(other) != right:
            names = " and ".join(f"{name[:_SHOWN_CHARS]} ({kind})" for name, kind in (first, control))
            message = f"{names} give different values of {field}: leave one of them empty, or give both the same"
            raise invalid("annotation.result", message)
    return texts


def _require_unrelated(
    others: Sequence[_Statement], fields: Mapping[str, Any], names: FieldNames, *, is_covered: bool
) -> None:
    """Refuse names that are no field where one may be meant for a field, or nothing shows that none is."""
    # Of statements under one name, labels of regions last: they are allowed less.
    by_name = {one.name: one for one in sorted(others, key=attrgetter("is_label"))}
    listed = f"the fields are {names.listed()}"
    if len(by_name) > MAX_FIELDS:
        raise invalid("annotation.result", f"has {len(by_name)} names that are no field; {listed}")
    for name, one in by_name.items():
        near = names.slip_of(name)
        if near is None and not is_covered:
            near = names.named_in(name)
        if (near is not None and near not in fields) or (one.is_label and not is_covered):
            hint = "" if near is None else f"is {near} meant? "
            raise invalid(
                one.place, f"{one.shown} is no field: {hint}{listed}; rename it in the labeling configuration"
            )
    if by_name and not fields and not is_covered:
        said = ", ".join(one.shown for one in by_name.values())
        raise invalid("annotation.result", f"names no field but {said}; {listed}: give each a control of its name")


def _require_unattached(others: Sequence[_Statement], statements: Iterable[_Statement], names: FieldNames) -> None:
    """Refuse what was said of a field's region under a name that is no field: it may correct the region's text."""
    labelled = {one.region: one.name for one in statements if one.is_label and names.meant(one.name) is not None}
    for one in others:
        if one.region is not None and one.region in labelled and not one.is_label:
            whose = f"belongs to the region {labelled[one.region][:_SHOWN_CHARS]!r} and may be its value"
            raise invalid(one.place, f"{one.shown} {whose}: name the control as a field, or take perRegion away")


def _statements(place: str, region: object, names: FieldNames) -> Iterator[_Statement]:
    """Yield what one region says."""
    if not isinstance(region, dict):
        raise invalid(place, "must be an object")
    kind, value = region.get("type"), region.get("value")
    if kind == _RELATION:
        # An arrow between two regions says nothing of the text, unless its own label is a field.
        yield from _relation(place, region, names)
        return
    if not isinstance(value, dict):
        raise invalid(place, "must be an object with a value")
    labels = _labels(place, value)
    if kind is None and labels is not None:
        kind = "labels"
    if not isinstance(kind, str):
        raise invalid(f"{place}.type", "is required and must be text such as labels or textarea")
    control, region_id = region.get("from_name"), region.get("id")
    made = _Statement(
        place=place,
        kind=kind,
        name=control if isinstance(control, str) else "",
        texts=None,
        control=control if isinstance(control, str) else kind,
        region=region_id if isinstance(region_id, str) else None,
        notes=_notes(region.get("meta")),
    )
    if kind in SPANS:
        yield from _span(made, labels, value)
    elif kind in ANSWERS:
        if labels:
            raise invalid(place, f"{made.shown} has labels as well: give each its own region")
        yield made._replace(texts=_answer(made, value))
    else:
        yield from _unread(made, labels, value, names)


def _relation(place: str, region: Mapping[str, Any], names: FieldNames) -> Iterator[_Statement]:
    for label in region.get("labels") or ():
        if isinstance(label, str) and names.fields and names.meant(label) is not None:
            yield _Statement(place, _RELATION, label, None, _RELATION, None, ())


def _labels(place: str, value: Mapping[str, Any]) -> list[str] | None:
    """Return the labels of a region, whatever the key; None where it has none."""
    held = {key: labels for key, labels in value.items() if key.endswith("labels") and labels is not None}
    if not held:
        return None
    (key, labels), *others = held.items()
    if not isinstance(labels, list) or not all(isinstance(label, str) and label for label in labels):
        raise invalid(f"{place}.value", f"{key[:_SHOWN_CHARS]!r} must be a list of texts")
    if len(labels) > MAX_FIELDS:
        raise invalid(f"{place}.value", f"has {len(labels)} labels, of {MAX_FIELDS} at most")
    if any(other != labels for _, other in others):
        raise invalid(f"{place}.value", "has two lists of labels that differ: leave one of them out")
    return labels


def _notes(meta: object) -> tuple[str, ...]:
    noted = meta.get("text") if isinstance(meta, dict) else None
    listed = noted if isinstance(noted, list) else [noted]
    return tuple(note for note in listed if isinstance(note, str) and normalise(note))


def _span(made: _Statement, labels: list[str] | None, value: Mapping[str, Any]) -> Iterator[_Statement]:
    made = made._replace(is_label=True)
    if not labels:
        remedy = "give the region a label, or remove it"
        raise invalid(f"{made.place}.value.{made.kind}", f"a region of type {made.kind} without a label: {remedy}")
    if others := sorted(_MAIN_KEYS & value.keys()):
        raise invalid(made.place, f"a region of type {made.kind} holds {', '.join(others)} as well: give each its own")
    text = value.get("text")
    if not isinstance(text, str):
        message = f"is required of type {made.kind}: turn on saving the text of a region (saveTextResult)"
        raise invalid(f"{made.place}.value.text", message)
    for label in dict.fromkeys(labels):
        yield made._replace(name=label, texts=(text,) if normalise(text) else ())


def _answer(made: _Statement, value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of a region that answers a control."""
    key = ANSWERS[made.kind]
    if not made.name:
        raise invalid(f"{made.place}.from_name", f"is required of type {made.kind} and must be a control's name")
    if others := sorted((_MAIN_KEYS - {key}) & value.keys()):
        raise invalid(made.place, f"{made.shown} holds {', '.join(others)} as well: give each its own region")
    if made.kind == "taxonomy" and "start" in value and "end" in value:
        raise invalid(made.place, f"{made.shown} labels a span of text: use Labels instead")
    place, held = f"{made.place}.value.{key}", value.get(key)
    if made.kind in ("number", "rating"):
        return (_number(place, held),)
    if made.kind == "datetime":
        if not isinstance(held, str):
            raise invalid(place, "must be text, as Label Studio writes times")
        texts = [held]
    else:
        texts = [_step(place, made, one) for one in (held if isinstance(held, list) else [held])]
    return tuple(text for text in texts if normalise(text))


def _step(place: str, made: _Statement, held: object) -> str:
    """Return one text of a list; of a path, the only step that it may have."""
    if isinstance(held, list) and made.kind != "textarea":
        if len(held) > 1:
            path = " / ".join(map(str, held))[:_SHOWN_CHARS]
            remedy = "a path of several levels is no value: use choices without levels"
            raise invalid(place, f"{path!r} of {made.shown}: {remedy}")
        held = held[0] if held else None
    if not isinstance(held, str):
        raise invalid(place, f"of {made.shown} must hold texts, not {type(held).__name__}")
    return held


def _number(place: str, held: object) -> str:
    """Return a number as Label Studio shows it."""
    if isinstance(held, int | float) and not isinstance(held, bool) and (held == 0 or _LEAST <= abs(held) < _MOST):
        is_whole = isinstance(held, int) or held.is_integer()
        return str(int(held)) if is_whole else format(Decimal(repr(held)), "f")
    raise invalid(place, "must be a number that can be written out: use a TextArea for anything else")


def _unread(
    made: _Statement, labels: list[str] | None, value: Mapping[str, Any], names: FieldNames
) -> Iterator[_Statement]:
    """Yield the names that a region of a type that is not read may mean."""
    if not labels or (names.fields and names.meant(made.name) is not None):
        yield made._replace(name=made.name or made.kind)
    for label in labels or ():
        yield made._replace(name=label, is_label=True)
    buckets = value.get("ranker")
    for bucket in buckets if isinstance(buckets, dict) else ():
        if names.fields and names.meant(bucket) is not None:
            yield made._replace(name=bucket)

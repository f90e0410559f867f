"""What a project's labeling configuration, XML, asks of its annotators: whether they can give each field a value. Pure.

Names of tags and attributes are compared without case, as Label Studio's editor does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from xml.etree import ElementTree as ET

from recalibrator.labelling.field_names import FieldNames
from recalibrator.labelling.label_studio_regions import ANSWERS, SPANS
from schemas.entities import normalise

_REMEDY = "label-studio setup --replace-config writes one that fits"
_MAX_CHARS = 100_000
_CACHED = 32
_Attributes = Mapping[str, str]


class Control(NamedTuple):
    """A name under which annotators can say something; ``obstacle`` is why that is not read, None where it is."""

    name: str
    tag: str
    obstacle: str | None = None
    #: Whether it is the label of a region.
    is_label: bool = False
    per_region: bool = False
    #: The name of the object that it belongs to.
    target: str = ""

    @property
    def shown(self) -> str:
        """The control as a line names it."""
        return f"<{self.tag}> {self.name!r}"


def missing_fields(config: str, fields: Sequence[str]) -> tuple[str, ...] | None:
    """Return the fields that no control gives in a way that is read; None where that cannot be known.

    Examples
    --------
    >>> config = '<View><Text name="t" value="$text"/><Number name="iso" toName="t"/></View>'
    >>> missing_fields(config, ("iso", "lens"))
    ('lens',)
    >>> missing_fields("<View", ("iso",)) is None
    True
    """
    try:
        controls = controls_of(config)
    except ValueError:
        return None
    names = FieldNames(fields)
    given = {names.meant(control.name) for control in controls if control.obstacle is None}
    missing = tuple(name for name in fields if name not in given)
    # Labels that each task brings along are not in the configuration.
    is_dynamic = any(control.is_label and control.name.startswith("$") for control in controls)
    return None if missing and is_dynamic else missing


def text_areas(config: str) -> dict[str, str]:
    """Return the text areas of a whole task, each with the object that it belongs to; none where it cannot be read.

    Examples
    --------
    >>> text_areas('<View><TextArea name="lens" toName="t"/><Number name="iso" toName="t"/></View>')
    {'lens': 't'}
    """
    try:
        controls = controls_of(config)
    except ValueError:
        return {}
    return {one.name: one.target for one in controls if one.tag.lower() == "textarea" and not one.per_region}


def config_faults(config: str, fields: Sequence[str]) -> tuple[str, ...]:
    """Return a line for each field that cannot be given, and each name that may be mistaken for a field.

    Examples
    --------
    >>> config = '<View><Text name="t" value="$text"/><Rating name="kamera" toName="t"/></View>'
    >>> config_faults(config, ("camera",))
    ("camera: has no control; <Rating> 'kamera' looks like it: write 'camera'",)
    """
    try:
        controls = controls_of(config)
    except ValueError as error:
        return (f"the labeling configuration cannot be read: {error}; {_REMEDY}",)
    names = FieldNames(fields)
    faults = [fault for name in fields if (fault := _fault_of(name, controls, names)) is not None]
    return (*faults, *_doubts(controls, names))


def _fault_of(wanted: str, controls: Sequence[Control], names: FieldNames) -> str | None:
    meant = [control for control in controls if names.meant(control.name) == wanted]
    if any(control.name == wanted and control.obstacle is None for control in meant):
        return None
    for control in meant:
        if control.obstacle is not None:
            return f"{wanted}: {control.shown} cannot be read: {control.obstacle}"
        return f"{wanted}: {control.shown} is spelt otherwise: write {wanted!r}"
    for control in controls:
        if names.slip_of(control.name) == wanted:
            return f"{wanted}: has no control; {control.shown} looks like it: write {wanted!r}"
    return f'{wanted}: has no control: add <TextArea name="{wanted}" …> or a label of this name; {_REMEDY}'


def _doubts(controls: Sequence[Control], names: FieldNames) -> Iterator[str]:
    """Yield what is no field and may be meant for one that has a control already."""
    given = {names.meant(one.name) for one in controls if one.obstacle is None}
    has_labels = any(one.is_label and names.meant(one.name) is not None for one in controls)
    for control in controls:
        if names.meant(control.name) is not None:
            continue
        near = names.slip_of(control.name)
        if near is not None and near in given:
            yield f"{control.shown} is no field and looks like {near}: give it a name that cannot be mistaken"
        elif control.per_region and has_labels:
            yield f"{control.shown} belongs to a field's region and is no field: name it as one, or take perRegion away"


@lru_cache(maxsize=_CACHED)
def controls_of(config: str) -> tuple[Control, ...]:
    """Return the controls of a labeling configuration. Raises ValueError where it is none that can be read."""
    if len(config) > _MAX_CHARS:
        raise ValueError(f"it has {len(config)} characters, of {_MAX_CHARS} at most")
    if "<!DOCTYPE" in config.upper():
        raise ValueError("it has a document type, which Label Studio does not need")
    try:
        view = ET.fromstring(config)  # noqa: S314 without a document type there are no entities to expand
    except ET.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from None
    objects = {
        name: own for one in view.iter() if "toname" not in (own := _attributes(one)) and (name := own.get("name"))
    }
    return tuple(control for part in _parts(view) for control in _controls(part, objects))


@dataclass(slots=True)
class _Part:
    """An element that annotators answer, with the names that its children add."""

    tag: str
    attributes: _Attributes
    #: Labels and buckets, each with its tag.
    names: list[tuple[str, str]] = field(default_factory=list)
    #: Whether choices lie within choices.
    has_levels: bool = False

    @property
    def kind(self) -> str:
        return self.tag.lower()

    def is_true(self, name: str) -> bool:
        return normalise(self.attributes.get(name, "")) == "true"


def _parts(view: ET.Element) -> list[_Part]:
    parts: list[_Part] = []
    # Each element with what it is a part of, and how many choices it lies within.
    waiting: list[tuple[ET.Element, _Part | None, int]] = [(view, None, 0)]
    while waiting:
        element, part, depth = waiting.pop()
        attributes = _attributes(element)
        tag = element.tag.lower() if isinstance(element.tag, str) else "comment"
        if "toname" in attributes and attributes.get("name"):
            part, depth = _Part(element.tag, attributes), 0
            parts.append(part)
        elif part is not None and tag == "choice":
            depth += 1
            part.has_levels |= depth > 1
        elif part is not None and tag in ("label", "bucket"):
            name = attributes.get("alias") or attributes.get("value") or attributes.get("name") or ""
            part.names.append((name, element.tag))
        waiting += [(child, part, depth) for child in reversed(element)]
    return parts


def _controls(part: _Part, objects: Mapping[str, _Attributes]) -> Iterator[Control]:
    obstacle = _obstacle(part, objects)
    is_labels = part.kind.endswith("labels")
    if not is_labels:
        target, per_region = part.attributes["toname"], part.is_true("perregion")
        yield Control(part.attributes["name"], part.tag, obstacle, per_region=per_region, target=target)
    elif (loaded := part.attributes.get("value", "")).startswith("$"):
        yield Control(loaded, part.tag, obstacle, is_label=True)
    for name, tag in part.names:
        yield Control(name, f"{part.tag}> <{tag}", obstacle, is_label=is_labels)


def _obstacle(part: _Part, objects: Mapping[str, _Attributes]) -> str | None:
    """Return why what a control gives is not read, or None."""
    if part.kind in SPANS:
        target = objects.get(part.attributes["toname"], {})
        saved, is_url = normalise(target.get("savetextresult", "")), normalise(target.get("valuetype", "")) == "url"
        is_lost = saved in ("no", "none", "false") or (is_url and saved != "yes")
        return 'the text of its regions is not saved: set saveTextResult="yes"' if is_lost else None
    if part.kind.endswith("labels"):
        return "its regions have no text: label text with <Labels>, or ask with a <TextArea> of the field's name"
    if part.kind not in ANSWERS:
        return "what it gives is no value: ask with a <TextArea>, <Choices> or <Number> of the field's name"
    if part.kind == "taxonomy" and part.is_true("labeling"):
        return "it labels spans of text: use <Labels>"
    if part.has_levels and (part.kind == "taxonomy" or part.is_true("allownested")):
        return "its choices have several levels: use one level"
    return None


def _attributes(element: ET.Element) -> dict[str, str]:
    return {name.lower(): value for name, value in element.attrib.items()}

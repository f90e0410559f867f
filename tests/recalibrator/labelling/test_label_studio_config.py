"""Labeling configurations: whether annotators can give each field a value that is read."""

from __future__ import annotations

import pytest

from recalibrator.labelling.label_studio_config import config_faults, missing_fields
from ucci_stream.label_tools.label_studio_project import labeling_config

FIELDS = ("camera", "iso")
CAMERA, ISO = '<TextArea name="camera" toName="t"/>', '<Number name="iso" toName="t"/>'
TEXT = '<Text name="t" value="$text"/>'


def view(*parts: str) -> str:
    return f"<View>{TEXT}<!-- as people write them -->{''.join(parts)}</View>"


def labels(*names: str, tag: str = "Labels") -> str:
    return f'<{tag} name="label" toName="t">{"".join(names)}</{tag}>'


def label(name: str, **more: str) -> str:
    return f'<Label value="{name}"{"".join(f" {key}={value!r}" for key, value in more.items())}/>'


@pytest.mark.parametrize(
    "config",
    [
        labeling_config(FIELDS),
        view(labels(label("camera"), label("iso"))),
        view(labels(label("Kamera", alias="camera"), label("iso"), tag="HyperTextLabels")),
        view('<Choices name="camera" toName="t"><View><Choice value="a"/></View></Choices>', ISO),
        view('<Taxonomy name="camera" toName="t"><Choice value="a"/><Choice value="b"/></Taxonomy>', ISO),
        view('<Rating name="iso" toName="t"/><datetime name="camera" toname="t"/>'),
        view(CAMERA, ISO, '<Choices name="quality" toName="t"><Choice value="good"/></Choices>'),
        view(CAMERA, ISO, '<TextArea name="comment" toName="t"/>', labels(label("unclear"))),
        view(labels(label("camera")), '<TextArea name="iso" toName="t" perRegion="true"/>'),
    ],
)
def test_a_configuration_that_gives_each_field_has_no_fault(config: str) -> None:
    assert config_faults(config, FIELDS) == ()
    assert missing_fields(config, FIELDS) == ()


@pytest.mark.parametrize(
    ("config", "missing", "said"),
    [
        (view(CAMERA), ("iso",), ["iso: has no control"]),
        (view(), FIELDS, ["camera: has no control", "iso: has no control"]),
        (view(labels(label("Camera")), ISO), (), ["camera: <Labels> <Label> 'Camera' is spelt otherwise"]),
        (view(labels(label("kamera")), ISO), ("camera",), ["camera: has no control; <Labels> <Label> 'kamera' looks"]),
        (view(CAMERA, ISO, labels(label("cameras"))), (), ["'cameras' is no field and looks like camera"]),
        (view(CAMERA, '<Pairwise name="iso" toName="t,u"/>'), ("iso",), ["iso: <Pairwise> 'iso' cannot be read"]),
        (
            view(CAMERA, '<Ranker name="r" toName="t"><Bucket name="iso"/></Ranker>'),
            ("iso",),
            ["iso: <Ranker> <Bucket>"],
        ),
        (view(labels(label("iso"), tag="RectangleLabels"), CAMERA), ("iso",), ["its regions have no text"]),
        (
            view('<Taxonomy name="iso" toName="t"><Choice value="a"><Choice value="b"/></Choice></Taxonomy>', CAMERA),
            ("iso",),
            ["several levels"],
        ),
        (
            view(labels(label("camera"), label("iso"))).replace('"$text"', '"$text" saveTextResult="no"'),
            FIELDS,
            ["camera: <Labels> <Label> 'camera' cannot be read", "iso: <Labels> <Label> 'iso' cannot be read"],
        ),
        (
            view(labels(label("camera"), label("iso")), '<TextArea name="right" toName="t" perRegion="true"/>'),
            (),
            ["'right' belongs to a field's region and is no field"],
        ),
        (view(labels(label("camera")).replace("name=", 'value="$own" name=')), None, ["iso: has no control"]),
        ("<View", None, ["cannot be read"]),
        ("", None, ["cannot be read"]),
        ('<!DOCTYPE v [<!ENTITY a "b">]><View/>', None, ["document type"]),
        ("<View>" + " " * 100_000 + "</View>", None, ["100000 at most"]),
    ],
)
def test_each_fault_has_a_line_of_its_own(config: str, missing: tuple[str, ...] | None, said: list[str]) -> None:
    faults = config_faults(config, FIELDS)
    assert missing_fields(config, FIELDS) == missing
    assert len(faults) == len(said), faults
    assert all(part in fault for part, fault in zip(said, faults, strict=True)), faults

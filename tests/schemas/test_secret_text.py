"""Secrets as people have them: with the line break of a mounted Secret, empty, or with what no header carries."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_text import parse_settings

WORKLOAD = """
[workloads.photo]
fields = ["camera"]
target = { micro_f1 = 0.9 }
small = { base_url = "http://127.0.0.1:9/v1", model = "s" }
"""
LONG = "hunter2-hunter2-hunter2-hunter2-hunter2"
#: A variable that gives a secret, with what it gives around ``%s``, and how the secret is read from the settings.
PLACES: dict[str, tuple[str, str, Any]] = {
    "a model's key": ("UCCI_WORKLOADS__PHOTO__SMALL__API_KEY", "%s", lambda s: s.workloads["photo"].small.api_key),
    "a key of the API": (
        "UCCI_RECALIBRATOR__API_KEYS",
        '{"ada": {"key": "%s"}}',
        lambda s: s.recalibrator.api_keys["ada"].key,
    ),
    "a key of the gateway": (
        "UCCI_GATEWAY__API_KEYS",
        '{"ada": {"key": "%s"}}',
        lambda s: s.gateway.api_keys["ada"].key,
    ),
    "the key of draws": ("UCCI_ROUTER__DRAW_KEY", "%s", lambda s: s.router.draw_key),
    "the signing key": ("UCCI_CALIBRATION__SIGNING_KEY", "%s", lambda s: s.calibration.signing_key),
    "a webhook's secret": (
        "UCCI_NOTIFY__WEBHOOKS",
        '{"ops": {"url": "https://hooks/x", "secret": "%s"}}',
        lambda s: s.notify.webhooks["ops"].secret,
    ),
    "a webhook's address": (
        "UCCI_NOTIFY__WEBHOOKS",
        '{"ops": {"url": "https://hooks/%s"}}',
        lambda s: s.notify.webhooks["ops"].url,
    ),
    "Kafka's password": ("UCCI_KAFKA__SASL_PASSWORD", "%s", lambda s: s.kafka["sasl.password"]),
}
every_place = pytest.mark.parametrize("place", PLACES)


def read(place: str, text: str) -> Settings:
    variable, around, _ = PLACES[place]
    in_json = around != "%s"
    given = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\0", "\\u0000")
    return parse_settings(WORKLOAD, {variable: around % (given if in_json else text)})


@every_place
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n"])
def test_a_mounted_secret_counts_without_its_line_break(place: str, ending: str) -> None:
    found = PLACES[place][2](read(place, LONG + ending))
    secret = found if isinstance(found, str) else found.get_secret_value()
    assert secret.removeprefix("https://hooks/") == LONG


@every_place
@pytest.mark.parametrize("inside", ["\n", "\r", "\t", "\u200b", "\x7f"])
def test_a_secret_in_two_lines_is_refused_unsaid(place: str, inside: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(place, f"{LONG}{inside}{LONG}")
    (fault,) = refused.value.faults
    assert "character" in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    "text", ["", "\n", "hunter2 hunter2", "hunter2-é", "Bearer hunter2", "hunter2-\N{CYRILLIC SMALL LETTER EF}"]
)
def test_a_models_key_is_what_a_header_carries(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read("a model's key", text)
    (fault,) = refused.value.faults
    assert fault.startswith("UCCI_WORKLOADS__PHOTO__SMALL__API_KEY (workloads.photo.small.api_key): ")
    assert "hunter2" not in fault


def test_addresses_and_names_count_without_white_space_around() -> None:
    text = WORKLOAD.replace("/v1", "/v1\\n").replace('"s"', '" s\\n"') + '[kafka]\n"bootstrap.servers" = "a:9092\\n"'
    settings = parse_settings(text, {})
    small = settings.workloads["photo"].small
    assert small is not None
    assert (small.base_url, small.model) == ("http://127.0.0.1:9/v1", "s")
    assert settings.kafka["bootstrap.servers"] == "a:9092"


def test_a_key_in_pem_keeps_its_lines() -> None:
    pem = "-----BEGIN X-----\nabc\n-----END X-----\n"
    assert parse_settings("", {"UCCI_KAFKA__SSL_KEY_PEM": pem}).kafka["ssl.key.pem"] == pem

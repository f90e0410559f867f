"""The ``[kafka]`` table: librdkafka judges all of it, and every fault names property, value and remedy."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.settings import Settings
from ucci_runtime.broker.kafka_properties import kafka_faults


def settings(**properties: Any) -> Settings:
    return Settings(kafka={name.replace("_", "."): value for name, value in properties.items()})


def faults(**properties: Any) -> list[str]:
    return kafka_faults(settings(**properties))


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"compression_type": "zip"}, "(got 'zip'); see librdkafka's CONFIGURATION.md"),
        ({"fetch_wait_max": 5}, "kafka.fetch.wait.max: librdkafka has no such property; correct its name"),
        ({"batch_size": "large"}, "kafka.batch.size: Invalid value"),
        ({"linger_ms": 1e9}, "outside allowed range 0..900000 (got 1000000000.0)"),
        ({"session_timeout_ms": 400_000}, "`max.poll.interval.ms`must be >= `session.timeout.ms` (got session"),
        ({"ssl_ca_location": "/nowhere.pem", "security_protocol": "SSL"}, "(got ssl.ca.location = /nowhere.pem)"),
        ({"logger": "print"}, "kafka.logger: is for programs, no file can set it (got 'print'); remove it"),
    ],
)
def test_a_fault_names_property_value_and_remedy(properties: dict[str, Any], said: str) -> None:
    (fault,) = faults(**properties)
    assert said in fault
    assert "\n" not in fault


def test_every_fault_is_named_at_once_and_no_secret() -> None:
    found = faults(acks="some", compression_type="zip", ssl_key_password="hunter2", sasl_oauthbearer_config="hunter2")
    assert sorted(line.partition(":")[0] for line in found) == ["kafka.acks", "kafka.compression.type"]
    assert not any("hunter2" in line for line in found)

"""The demo's plan: who labels what, equal in every run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from schemas.settings_text import parse_settings
from ucci_stream.demo.scenario import LABELERS, TRUSTED_LABELER, Scenario, plan_label
from ucci_stream.local.model_servers import recorded_servers
from ucci_stream.local.stack import WORKLOAD, StackOptions, config_text

SCENARIO = Scenario(queries=1_000)


def test_several_people_label_and_audits_are_answered_by_the_trusted_one() -> None:
    ordinary = Counter(plan_label(f"q-{n}", SCENARIO, is_audit=False).labeler for n in range(3_000))
    assert set(ordinary) == set(LABELERS)
    assert all(800 < count < 1_200 for count in ordinary.values())
    assert {plan_label(f"q-{n}", SCENARIO, is_audit=True).labeler for n in range(100)} == {TRUSTED_LABELER}
    assert TRUSTED_LABELER in LABELERS


def test_the_same_query_is_labelled_alike_in_every_run() -> None:
    for number in range(50):
        plan = plan_label(f"q-{number}", SCENARIO, is_audit=False)
        assert plan == plan_label(f"q-{number}", SCENARIO, is_audit=False)


def test_the_stacks_configuration_names_whom_the_workload_trusts(tmp_path: Path) -> None:
    servers = recorded_servers(tmp_path)
    for trusted in ((), (TRUSTED_LABELER, 'a "b"')):
        options = StackOptions(directory=tmp_path, trusted_labelers=trusted)
        text = config_text(options, "127.0.0.1:9092", servers)
        assert parse_settings(text, {}).workloads[WORKLOAD].trusted_labelers == trusted

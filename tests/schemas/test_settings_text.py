"""The file and the environment: every fault at once, in the user's words, and no secret ever shown."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from schemas import ConfigError, Settings
from schemas.settings_text import (
    load_settings,
    parse_settings,
    render_settings,
    require_models,
    settings_warnings,
)

WORKLOAD = """
[workloads.photo-search]
prompt = 'Answer {"iso": …} for: {text}'
fields = ["camera", "iso"]
target = { micro_f1 = 0.91 }
small = { base_url = "http://127.0.0.1:8001/v1", model = "s" }
large = { base_url = "http://127.0.0.1:8002/v1", model = "l", api_key = "hunter2" }
"""


def faults(text: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, environ or {})
    assert caught.value.exit_code == 2
    assert all("\n" not in fault for fault in caught.value.faults)
    return caught.value.faults


def test_a_second_faulty_target_of_a_field_is_named_too() -> None:
    """Of an event the first faulty member of a mapping is named, of a file every one."""
    found = faults(WORKLOAD.replace("micro_f1 = 0.91", "fields = { camera = 2.0, iso = 3.0 }"))
    assert [line.partition(":")[0].rpartition(".")[2] for line in found] == ["camera", "iso"]


def test_every_fault_is_told_at_once() -> None:
    found = faults(
        """
        [router]
        max_in_flight = "many"
        http_port = 70000
        comit_interval_ms = 3
        [topics]
        partitions = true
        [workloads.w]
        fields = ["a", "a"]
        prompt = "no placeholder"
        target = { micro_f2 = 0.9 }
        """,
        {"UCCI_ROUTER__LARGE_OUTAGE": "panic", "UCCI_RUOTER__HTTP_PORT": "1"},
    )
    told = "\n".join(found)
    for words in (
        "router.max_in_flight: must be a valid integer (got 'many')",
        "router.http_port: must be less than or equal to 65535 (got 70000)",
        "router.comit_interval_ms: unknown key; did you mean commit_interval_ms?",
        "topics.partitions: must be a valid integer (got True)",
        "must not name a field twice: a",
        "must contain {text}",
        "workloads.w.target.micro_f2: unknown key; did you mean micro_f1?",
        "UCCI_ROUTER__LARGE_OUTAGE",
        "UCCI_RUOTER__HTTP_PORT: unknown key ruoter; did you mean router?",
    ):
        assert words in told
    assert len(found) >= 9


ADA = "[recalibrator.api_keys.ada]\nkey = '0123456789abcdef'\n"
LABELER = ADA + "scopes = ['feedback']\n"
BOTH_LABELLED = "label_probability_kept = 0.1, label_probability_escalated = 0.1"
LITTLE_LABELLED = "label_probability_kept = 0.5, label_probability_escalated = 0.02"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[routr]\n", "routr: unknown key; did you mean router?"),
        (WORKLOAD + "early_stop = true", "workloads.photo-search.early_stop: is gone: leave it out"),
        (
            f"{WORKLOAD}labels = {{ per_day = 9 }}\nsampling = {{ {BOTH_LABELLED} }}",
            "labels and sampling.label_probability_escalated and sampling.label_probability_kept both say",
        ),
        (WORKLOAD + "sampling = { exploration = 0.1 }", "did you mean exploration_probability?"),
        ("[gateway]\nhttp_host = '0.0.0.0'", "http_host: 0.0.0.0 is reachable by others and api_keys is empty"),
        ("[gateway]\nallowed_hosts = ['*']", "allowed_hosts: * lets any site"),
        ("[recalibrator]\nhttp_host = '0.0.0.0'", "http_host: 0.0.0.0 is reachable by others and api_keys is empty"),
        ("[recalibrator]\nallowed_hosts = ['*']", "name the hosts, or add a key"),
        ("[recalibrator]\nallowed_hosts = ['http://a']", "recalibrator.allowed_hosts"),
        ("[gateway]\ninstance_id = 'router-0'", "gateway.instance_id: router-0 is router.instance_id too"),
        ("[gateway.api_keys.shop]\nkey = '0123456789abcdef'\nscopes = ['read']", "scopes: unknown key"),
        (f"[calibration]\nformer_keys = ['{'k' * 32}']", "former_keys: are given without a signing_key"),
        (
            f'default_workload = "photos"\n{WORKLOAD}',
            "default_workload: is not configured; give one of photo-search (got 'photos')",
        ),
        (
            WORKLOAD.replace("//127.0.0.1:8002", "//ada:s3cr3t@127.0.0.1:8002"),
            "api_key and the user in base_url exclude each other",
        ),
        (LABELER + "labelers = []", "labelers: names nobody; leave it out for the key's own name"),
        (f"{LABELER}labelers = ['{'x' * 256}']", "labelers.0"),
        (LABELER + "labelers = ['bob', 'bob']", "labelers: must not name a labeler twice: bob"),
        (ADA + "labelers = ['bob']", "labelers: this key may not give feedback; add the scope feedback"),
        (
            WORKLOAD + "sampling = { label_probability_kept = 0.0, exploration_probability = 0.0 }",
            "set it above 0, or both to 0",
        ),
        (WORKLOAD + "sampling = { label_probability_escalated = 0.0 }", "how good escalated answers are"),
        (WORKLOAD + "sampling = { exploration_probability = 0.06 }", "exceeds a label probability (0.05)"),
        (WORKLOAD + f"sampling = {{ {LITTLE_LABELLED} }}", "exceeds a label probability (0.02)"),
        (WORKLOAD + "cost = { small = nan, large = 3.0 }", "cost.small"),
        (WORKLOAD + "cost = { small = 1.0, large = inf }", "cost.large"),
        (WORKLOAD + 'detectors = ["agrement"]', "workloads.photo-search.detectors.0: must be 'agreement'"),
        (WORKLOAD + 'detectors = ["agreement", "agreement"]', "must not name a detector twice: agreement"),
        (WORKLOAD + "river = { HDDM_W = {} }", "'ADWIN', 'PageHinkley' or 'KSWIN'"),
        (WORKLOAD + "river = { ADWIN = { delta = [1] } }", "workloads.photo-search.river.ADWIN.delta"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(text: str, words: str) -> None:
    assert words in "\n".join(faults(text))


def test_the_prompt_may_hold_braces_but_must_hold_the_text() -> None:
    assert parse_settings(WORKLOAD, {}).only_workload == "photo-search"
    text = WORKLOAD.replace("{text}", "{ text }")
    assert faults(text) == tuple(fault for fault in faults(text) if "must contain {text}" in fault)


def test_the_environment_overrides_the_file() -> None:
    settings = parse_settings(
        WORKLOAD + "[router]\nhttp_port = 1\n",
        {
            "UCCI_ROUTER__HTTP_PORT": "8099",
            "UCCI_ROUTER__INSTANCE_ID": "007",
            "UCCI_TOPICS__PREFIX": "staging",
            "UCCI_KAFKA__SASL_USERNAME": "me",
            "UCCI_WORKLOADS__PHOTO_SEARCH__TARGET__MICRO_F1": "0.8",
            "UCCI_WORKLOADS__PHOTO_SEARCH__FIELDS": '["lens"]',
            "UCCI_WORKLOADS__PHOTO_SEARCH__SAMPLING": '{"label_probability_kept": 0.2}',
            "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
            "HOME": "/nowhere",
        },
    )
    workload = settings.workloads["photo-search"]
    named = (settings.router.http_port, settings.router.instance_id, settings.topics.prefix)
    assert named == (8099, "007", "staging")
    assert settings.kafka == {"bootstrap.servers": "kafka:9092", "sasl.username": "me"}
    assert (workload.target.micro_f1, workload.fields) == (0.8, ("lens",))
    assert workload.sampling.label_probability_kept == 0.2
    assert workload.small is not None


def test_the_projects_own_variable_wins_over_the_customary_one() -> None:
    """Where neither does, the broker is this machine's."""
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", "UCCI_KAFKA__BOOTSTRAP_SERVERS": "b:2"}
    assert parse_settings("", environ).kafka == {"bootstrap.servers": "b:2"}
    assert parse_settings("", {}).kafka == {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("UCCI_ROUTER__HTTP_PORT", "lots", "UCCI_ROUTER__HTTP_PORT (router.http_port): must be a valid integer"),
        ("UCCI_ROUTER____HTTP_PORT", "1", "empty part"),
        ("UCCI_ROUTER__HTTP_PORT__X", "1", "router.http_port is not a table"),
        ("UCCI_WORKLOADS__PHOTO_SEARCH__FIELDS", "lens", "must be JSON"),
        ("UCCI_TOPICS__PREFIX", "\udcff", "is not UTF-8"),
    ],
)
def test_a_faulty_variable_is_called_by_its_own_name(variable: str, value: str, words: str) -> None:
    assert words in "\n".join(faults(WORKLOAD, {variable: value}))


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    settings = parse_settings(WORKLOAD, {})
    document: dict[str, Any] = json.loads(render_settings(settings))
    again = Settings.model_validate(document)
    assert again.model_dump(exclude={"workloads"}) == settings.model_dump(exclude={"workloads"})
    path = tmp_path / "ucci.toml"
    path.write_bytes(b"\xef\xbb\xbf" + WORKLOAD.encode())
    assert load_settings(path, {}) == settings


@pytest.mark.parametrize(("content", "words"), [(b"\xff", "is not UTF-8"), (b"a = ", "is not valid TOML")])
def test_an_unreadable_file_is_one_fault(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "ucci.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load_settings(path, {})
    assert len(caught.value.faults) == 1
    with pytest.raises(ConfigError, match=r"cannot be read.*--config"):
        load_settings(tmp_path / "missing.toml", {})


def test_a_router_needs_a_workload_with_both_models() -> None:
    with pytest.raises(ConfigError, match="none is configured"):
        require_models(Settings())
    with pytest.raises(ConfigError, match=r"workloads\.photo-search\.large: is missing"):
        require_models(parse_settings("\n".join(WORKLOAD.splitlines()[:-1]), {}))
    require_models(parse_settings(WORKLOAD, {}))


def test_a_key_that_can_be_guessed_is_one_clear_fault() -> None:
    for key in ("", "zq", "fifteen-chars-k", " " * 40, "hunter2" + " " * 40):
        (fault,) = faults(f'[recalibrator.api_keys.ada]\nkey = "{key}"')
        assert fault.startswith("recalibrator.api_keys.ada.key: ")
        assert "at least 16 characters" in fault
        assert not key.strip() or key.strip() not in fault.removeprefix("recalibrator.api_keys.ada.key: ")
    assert parse_settings('[recalibrator.api_keys.ada]\nkey = "sixteen-chars-ok"', {}).recalibrator.api_keys


def test_a_key_from_an_unset_variable_is_a_fault_that_says_so() -> None:
    """So is the hash of one."""
    (fault,) = faults(ADA, {"UCCI_RECALIBRATOR__API_KEYS__ADA__KEY": ""})
    assert "UCCI_RECALIBRATOR__API_KEYS__ADA__KEY" in fault
    assert "is empty" in fault
    for hashed in (b"", b"\n"):
        (fault,) = faults(f'[recalibrator.api_keys.ada]\nkey_sha256 = "{sha256(hashed).hexdigest()}"')
        assert fault.startswith("recalibrator.api_keys.ada.key_sha256: is the hash of an empty key")


#: Without it every file with a workload is warned of.
DRAWN = {"UCCI_ROUTER__DRAW_KEY": "fedcba9876543210" * 2}


@pytest.mark.parametrize(
    "keys",
    [
        "",
        LABELER,
        "[recalibrator.api_keys.team]\nkey = '0123456789abcdef'\nscopes = ['feedback']\nlabelers = ['x', 'ada']",
        "[recalibrator.api_keys.t]\nkey = '0123456789abcdef'\nscopes = ['relay']",
    ],
)
def test_no_warning_when_keys_cover_trusted_labelers(keys: str) -> None:
    for trusted in ("['ada']", "[]"):
        assert settings_warnings(parse_settings(f"{WORKLOAD}trusted_labelers = {trusted}\n{keys}", DRAWN)) == []


def at_url(url: str) -> str:
    return WORKLOAD.replace("http://127.0.0.1:8001/v1", url)


@pytest.mark.parametrize("url", ["http://ada:s3cr3t/x@h/v1", "http://ada:s3cr3t#@h/v1", "http://ada:p@s3cr3t@h:x/v1"])
def test_a_faulty_base_url_is_named_without_its_password(url: str) -> None:
    (fault,) = faults(at_url(url))
    assert fault.startswith("workloads.photo-search.small.base_url: must be like http://host:8000/v1")
    assert "s3cr3t" not in fault


SIGNING = "0123456789abcdef0123456789abcdef"


def test_versions_of_former_keys_are_accepted() -> None:
    settings = parse_settings(f'[calibration]\nsigning_key = "{SIGNING}"\nformer_keys = ["{SIGNING[::-1]}"]', {})
    assert settings.calibration.accepted_keys == (SIGNING.encode(), SIGNING[::-1].encode())
    by_variable = parse_settings("", {"UCCI_CALIBRATION__SIGNING_KEY": SIGNING})
    assert by_variable.calibration.accepted_keys == (SIGNING.encode(),)


@pytest.mark.parametrize("line", ["signing_key = ''", "signing_key = 'hunter2'", "former_keys = ['hunter2']"])
def test_a_signing_key_that_can_be_found_is_a_fault(line: str) -> None:
    (fault,) = faults(f"[calibration]\n{line}")
    assert fault.startswith(f"calibration.{line.partition(' ')[0]}: is empty or too short")
    assert "hunter2" not in fault


def test_an_open_draw_is_named() -> None:
    (warning,) = settings_warnings(parse_settings(WORKLOAD, {}))
    assert warning.startswith("router.draw_key: is not set: anyone who may write to ucci.queries")
    assert "callers of a gateway cannot" in warning
    assert settings_warnings(parse_settings(WORKLOAD, {}), at_start=True) == []
    guarded = parse_settings(f"[calibration]\nsigning_key = '{SIGNING}'\n{WORKLOAD}", {})
    assert settings_warnings(guarded, at_start=True) == [warning]
    assert settings_warnings(parse_settings(WORKLOAD, DRAWN)) == []
    (fault,) = faults("[router]\ndraw_key = 'hunter2'")
    assert fault.startswith("router.draw_key: is empty or too short")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('url = "hooks.example/tok"', "notify.webhooks.ops.url: is not an address"),
        ('url = "https://h/tok"\nsecret = "tok"', "notify.webhooks.ops.secret: is empty or too short"),
        ('url = "https://h/tok"\nkinds = ["weather"]', "notify.webhooks.ops.kinds"),
        ('url = "https://h/tok"\nworkloads = ["nobody"]', "notify.webhooks.ops.workloads: nobody is not configured"),
    ],
)
def test_a_faulty_webhook_is_named_and_its_token_is_not(line: str, fault: str) -> None:
    said = "\n".join(faults(f"[notify.webhooks.ops]\n{line}"))
    assert fault in said
    assert "tok" not in said


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ('["none", " "]', "holds the empty text ' '"),
        ('["\\u200b"]', "which is null already"),
        ('["None", "n/a", "none"]', "names 'None' twice, the second time as 'none'"),
        (f'["{"x" * 33}"]', "of at most 32 characters"),
        ('["none", 5]', "null_texts.1"),
    ],
)
def test_null_texts_are_texts_that_differ(texts: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(f"{WORKLOAD}null_texts = {texts}\n", DRAWN)
    (line,) = refused.value.faults
    assert line.startswith("workloads.")
    assert "null_texts" in line
    assert fault in line


def test_null_texts_change_neither_basis_nor_fingerprint() -> None:
    plain, nulling = (parse_settings(f"{WORKLOAD}{more}", DRAWN) for more in ("", 'null_texts = ["None", "N/A"]\n'))
    (one,), (other,) = plain.workloads.values(), nulling.workloads.values()
    assert [set(one.nulls), set(other.nulls)] == [set(), {"none", "n/a"}]
    assert (one.fingerprint, one.basis_mark) == (other.fingerprint, other.basis_mark)
    (shown,) = json.loads(render_settings(nulling))["workloads"].values()
    assert shown["null_texts"] == ["None", "N/A"]

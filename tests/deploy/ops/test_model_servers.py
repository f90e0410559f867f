"""How the model servers are started: pinned where a calibration depends on it, the same in every example."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.settings_text import load_settings
from stream_router.model_client import uncertainty
from ucci_stream.local.side_environment import VLLM_VERSION

DEPLOY = Path(__file__).parents[3] / "deploy"
VLLM = DEPLOY / "vllm"
#: What changes the token probabilities, or which of them are reported.
CALIBRATION = {
    "logprobs-mode": "raw_logprobs",
    "dtype": "bfloat16",
    "structured-outputs-config": {"backend": "xgrammar"},
    "generation-config": "vllm",
}


def read(name: str) -> Any:
    return yaml.safe_load((VLLM / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", ["small", "large"])
def test_arguments_fix_what_a_calibration_rests_on(role: str) -> None:
    arguments = read(f"{role}.yaml")
    assert arguments.items() >= CALIBRATION.items()
    signals = [found for found in vars(uncertainty).values() if isinstance(found, uncertainty.UncertaintySignal)]
    assert len(signals) == 3
    assert arguments["max-logprobs"] >= max(signal.alternatives for signal in signals)


def test_examples_start_the_models_alike() -> None:
    stack = read("production-stack.values.yaml")["servingEngineSpec"]["modelSpec"]
    ray = read("examples/ray-serve.yaml")["applications"][0]["args"]["llm_configs"]
    for role, one, other in zip(("small", "large"), stack, ray, strict=True):
        arguments = read(f"{role}.yaml")
        assert one["tag"] == f"v{VLLM_VERSION}"
        assert one["vllmConfig"]["dtype"] == other["engine_kwargs"]["dtype"] == arguments["dtype"]
        assert one["vllmConfig"]["maxNumSeqs"] == other["engine_kwargs"]["max_num_seqs"] == arguments["max-num-seqs"]
        extra = one["vllmConfig"]["extraArgs"]
        assert f"--logprobs-mode={arguments['logprobs-mode']}" in extra
        backend = next(word for word in extra if word.startswith("--structured-outputs-config="))
        assert json.loads(backend.partition("=")[2]) == arguments["structured-outputs-config"]
        assert other["engine_kwargs"]["structured_outputs_config"] == arguments["structured-outputs-config"]
        assert other["engine_kwargs"]["logprobs_mode"] == arguments["logprobs-mode"]
    (container,) = read("examples/kserve.yaml")["spec"]["predictor"]["containers"]
    assert container["image"] == f"vllm/vllm-openai:v{VLLM_VERSION}"
    assert container["args"][1:3] == ["--config", "/etc/vllm/small.yaml"]
    proxy = read("examples/litellm.yaml")
    assert all(one["litellm_params"]["model"].startswith("hosted_vllm/") for one in proxy["model_list"])
    assert proxy["litellm_settings"]["num_retries"] == 0, "failures are the router's to count"


@pytest.mark.parametrize(
    ("name", "key"), [("sasl", "sasl.password"), ("mtls", None), ("oidc", "sasl.oauthbearer.client.secret")]
)
def test_kafka_examples_take_their_password_from_outside(name: str, key: str | None) -> None:
    path = DEPLOY / "kafka" / f"{name}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))["kafka"]
    assert not any("password" in key or "secret" in key for key in table)
    environ = {} if key is None else {f"UCCI_KAFKA__{key.upper().replace('.', '_')}": "s"}
    settings = load_settings(path, environ)
    assert key is None or settings.kafka[key] == "s"

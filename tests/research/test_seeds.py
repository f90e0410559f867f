"""The registry of seeds: no seed is both tuned on and looked at in the end."""

from __future__ import annotations

import pytest

from research.answers.__main__ import main
from research.seeds import REGISTRY, check


@pytest.mark.parametrize("benchmark", REGISTRY)
def test_halves_do_not_overlap(benchmark: str) -> None:
    split = REGISTRY[benchmark]
    assert split.tuning
    assert split.unseen
    assert not set(split.tuning) & set(split.unseen)


@pytest.mark.parametrize("benchmark", REGISTRY)
def test_each_half_is_refused_where_the_other_is_asked_for(benchmark: str) -> None:
    split = REGISTRY[benchmark]
    check(benchmark, split.tuning)
    check(benchmark, split.unseen, unseen=True)
    with pytest.raises(ValueError, match="is not for tuning"):
        check(benchmark, [split.tuning[0], split.unseen[0]])
    with pytest.raises(ValueError, match="is not for the last look"):
        check(benchmark, [split.tuning[0]], unseen=True)


@pytest.mark.parametrize("arguments", [["--seeds", "1001"], ["--seeds", "1", "--unseen"]])
def test_the_command_refuses_a_seed_of_the_other_half(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--unseen asks for the half of the last look" in capsys.readouterr().err

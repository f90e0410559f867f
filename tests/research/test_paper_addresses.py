"""The public set of the paper benchmark: fetched as pinned, tagged by models that never saw it, counted in pairs."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import f1_score, log_loss

from research.paper import labeled_addresses, pack_addresses
from research.paper.labeled_addresses import Address, FetchFailed, labelled_addresses, parse
from research.paper.measures import field_f1, micro_f1
from research.paper.taggers import GreedyTagger, Look, Tagged, look_briefly, look_closely, signals
from research.paper.workloads import addresses_workload

#: Invented addresses; the last repeats the first, in capitals and with another label.
SAMPLE = Path(__file__).parent / "sample_addresses.xml"


@pytest.fixture(scope="module")
def sample() -> list[Address]:
    return parse(SAMPLE.read_bytes())


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A registry whose archive holds the sample; returns the folders that it was fetched into."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(SAMPLE, labeled_addresses.MEMBER)
    lock = tmp_path / "sample.lock"
    lock.write_text(f"sample==1 --hash=sha256:{hashlib.sha256(packed.getvalue()).hexdigest()}\n", encoding="utf-8")
    fetched: list[Path] = []

    def download(folder: Path) -> None:
        fetched.append(folder)
        (folder / labeled_addresses.ARCHIVE).write_bytes(packed.getvalue())

    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(labeled_addresses, "SOURCE_LOCK", lock)
    monkeypatch.setattr(labeled_addresses, "_download", download)
    return fetched


def test_a_damaged_copy_in_the_cache_is_fetched_anew(
    registry: list[Path], sample: list[Address], tmp_path: Path
) -> None:
    labelled_addresses()
    (tmp_path / "cache" / labeled_addresses.ARCHIVE).write_bytes(b"cut off")
    assert labelled_addresses() == sample
    assert len(registry) == 2


def test_an_archive_other_than_the_pinned_one_is_refused(
    registry: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign archive is neither read nor kept."""
    lock = tmp_path / "other.lock"
    lock.write_text("sample==1 --hash=sha256:" + "0" * 64, encoding="utf-8")
    monkeypatch.setattr(labeled_addresses, "SOURCE_LOCK", lock)
    with pytest.raises(FetchFailed, match=r"not the one that other\.lock pins"):
        labelled_addresses()
    assert registry
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("look", [look_briefly, look_closely])
def test_each_step_is_the_softmax_of_its_features(sample: list[Address], look: Look) -> None:
    """Probabilities are those of a hand-written sum over active features, each step on the tagger's own labels."""
    tagger = GreedyTagger(look).fit(sample[:6])
    vectoriser, model = tagger._step[0], tagger._step[-1]
    names = list(vectoriser.get_feature_names_out())
    for address, tagged in zip(sample[6:], tagger.tag([one.tokens for one in sample[6:]]), strict=True):
        assert len(tagged.labels) == len(address.tokens)
        for at, row in enumerate(tagged.probabilities):
            active = [names.index(name) for name in look(address.tokens, tagged.labels[:at]) if name in names]
            expected = softmax(model.intercept_ + model.coef_[:, active].sum(axis=1))
            assert row == pytest.approx(expected, abs=1e-9)
            assert tagged.labels[at] == model.classes_[np.argmax(expected)]


def test_signals_are_what_scipy_and_scikit_learn_compute() -> None:
    chances = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.0, 0.05, 0.95]])
    found = signals(Tagged(("a", "b", "c"), chances))
    assert found["margin"] == pytest.approx(1.0 - (0.5 + 0.1 + 0.9) / 3)
    assert found["minimum_margin"] == pytest.approx(0.9)
    assert found["max_probability"] == pytest.approx(1.0 - (0.7 + 0.4 + 0.95) / 3)
    assert found["entropy"] == pytest.approx(np.mean(entropy(chances, axis=1)))
    assert found["likelihood"] == pytest.approx(log_loss(["a", "b", "c"], chances, labels=["a", "b", "c"]))


def test_no_address_is_tagged_by_a_model_that_saw_it(sample: list[Address], monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched(GreedyTagger):
        def fit(self, addresses: Sequence[Address]) -> Watched:
            self.seen = {one.tokens for one in addresses}
            super().fit(addresses)
            return self

        def tag(self, texts: Sequence[Sequence[str]]) -> list[Tagged]:
            assert not self.seen & {tuple(text) for text in texts}
            assert len(self.seen) + len(texts) == len(sample)
            return super().tag(texts)

    monkeypatch.setattr(pack_addresses, "GreedyTagger", Watched)
    answers = pack_addresses.out_of_fold(look_briefly, sample, seed=2, folds=3)
    assert [len(one.labels) for one in answers] == [len(one.tokens) for one in sample]


def test_the_command_packs_the_same_for_the_same_seed(registry: list[Path], tmp_path: Path) -> None:
    packed = []
    for name in ("first.npz", "again.npz"):
        assert pack_addresses.main(["--seed", "4", "--out", str(tmp_path / name)]) == 0
        with np.load(tmp_path / name) as columns:
            packed.append({key: columns[key] for key in columns.files})
    assert len(registry) == 1
    assert packed[0]["gold"].sum(axis=0).tolist() == [7, 14, 4, 4, 7, 9, 1]
    assert all(np.array_equal(packed[0][key], packed[1][key]) for key in packed[0])


def test_packed_micro_f1_is_what_scikit_learn_computes() -> None:
    """Pairs written out one by one give the micro-F1 of the counts, over all fields and in each."""
    workload = addresses_workload(0.9)
    everywhere = np.ones(len(workload), dtype=bool)
    columns = []
    for place in range(len(workload.fields)):
        hits = int(workload.large.true_positives[:, place].sum())
        false = int(workload.large.predicted[:, place].sum()) - hits
        missed = int(workload.gold[:, place].sum()) - hits
        columns.append(([1] * (hits + missed) + [0] * false, [1] * hits + [0] * missed + [1] * false))
        assert field_f1(workload, everywhere)[place] == pytest.approx(f1_score(*columns[-1]))
    gold, named = ([pair for column in columns for pair in column[side]] for side in (0, 1))
    assert micro_f1(workload, everywhere) == pytest.approx(f1_score(gold, named))

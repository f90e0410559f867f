"""The numbers behind the method: none of them is a promise to users.

They are constants of the code rather than keys of ``ucci.toml``: equal events must give equal versions on every
machine, and an operator's one knob is ``target.safety``. Each group names its receipt: the ablation in the drift report
(``python -m research.drift --policies parts``) that takes the component out, or the test that fails without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.traffic import GridSpec


@dataclass(frozen=True, slots=True)
class MethodConstants:
    """What the estimators, the threshold rule and the detectors are set to."""

    #: The cells of u.
    grid: GridSpec = field(default_factory=GridSpec)
    #: Labelled queries kept, the latest by routing time. Receipt of this group: ``research core`` (time and memory by
    #: number of labels), tests/recalibrator/fit/test_corrections.py.
    window_labels: int = 49_152
    #: Unlabelled queries whose u counts as the current traffic.
    window_queries: int = 5_000
    #: Labels over which first labels are compared with corrected ones, or the delay of corrections where that is
    #: longer (docs/results/README.md).
    half_life_revisions: float = 75.0
    #: Versions whose content can be activated again.
    kept_versions: int = 50
    #: Labels after which a label counts half, for the outcome curves and the map g. Receipt: ablations ``forgetting``
    #: and ``discount``.
    half_life_slow: float = 4_000.0
    #: Queries after which it does for the rectifier and the status page.
    half_life_fast: float = 15_000.0
    #: ``old_labels_least`` and ``old_labels_most``: after a change, what all earlier labels together may still count:
    #: the larger value at first, falling by one for every new label down to the smaller.
    old_labels_least: float = 50.0
    old_labels_most: float = 400.0
    #: ``bandwidth_cells`` and ``wide_bandwidth_cells``: support of the smoothing kernel, and of the one that it is
    #: shrunk to, in cells. Receipt: ablation ``smoothing``;
    #: tests/recalibrator/fit/estimate/test_bias.py.
    bandwidth_cells: int = 9
    wide_bandwidth_cells: int = 25
    #: Labels that the wider curve is worth where there are few.
    shrink_labels: float = 2.0
    #: Penalty on the two parameters of the agreement tilt, per unit of logit squared. Receipt: ablation ``tilt``;
    #: tests/recalibrator/fit/estimate/test_agreement.py.
    tilt_ridge: float = 80.0
    #: Share of the labels asked for that is there in time while labelers work; with fewer, what agreement loses counts
    #: as the small model's fault.
    labels_present: float = 0.5
    #: Typical unseen change of micro-F1 on one side of the threshold, to which the rectifier shrinks. Receipt:
    #: ablations ``rectifier`` and ``what labels do not tell``; tests/recalibrator/fit/estimate/test_rectifier.py.
    drift_scale: float = 0.005
    #: That which the margin allows for where labels do not tell; after the mix of queries has changed the rectifier
    #: shrinks to it as well: other queries may be harder than their u suggests.
    unseen_scale: float = 0.02
    #: Labels that the two-parameter logistic map is worth under the isotonic one. Receipt: column "calibration error"
    #: of the drift report; tests/recalibrator/fit/estimate/test_calibration_map.py.
    map_prior_labels: float = 200.0
    #: Whether changes of the mix of queries are watched. Receipt: ablations ``mix detectors`` and ``recent labels by
    #: mix``; phases "typos" and "new names" of the recorded streams.
    watch_mix: bool = True
    #: Whether, after such a change, what recent labels add is measured on those since alone.
    mix_split: bool = True
    #: Labels routed since then after which no larger change of outcomes is expected any more.
    mix_labels: int = 1_500
    #: Effective labels below which the threshold does not move. Receipt: tests/recalibrator/fit/test_recalibrator.py
    #: and test_status.py.
    minimum_labels: float = 250.0
    #: Effective labelled pairs below which no first version is made.
    minimum_pairs: float = 100.0
    #: Labels below which not even a command fits a map.
    minimum_bootstrap_labels: int = 50
    #: Labels asked for without a single one coming in, from which the estimate counts as stale.
    stale_requests: int = 400
    #: ``refit_share``, ``refit_labels_least``, ``refit_labels_most`` and ``refit_queries``: A refit is due after a
    #: share of the effective labels within bounds, or after so many queries. Receipt: ``research core``
    #: ("observe_stream"): what refits cost a service; docs/results/README.md.
    refit_share: float = 0.03
    refit_labels_least: int = 16
    refit_labels_most: int = 250
    refit_queries: int = 500
    #: Refits in a row that are due and may be left out while exploration rests: without, the core's stream takes 60%
    #: more CPU.
    refits_put_off: int = 4
    #: Labels below which none is: each refit still learns much.
    calm_labels: int = 1_000
    #: Of micro-F1: where the target is not secured, escalating more for less is not worth its cost. Receipt: ablations
    #: ``least gain``, ``least move`` and ``exploration``; tests/recalibrator/fit/decide/test_threshold.py.
    gain_least: float = 0.001
    #: Escalation rate, the smallest move worth a new version; without it twice as many are published.
    move_least: float = 0.01
    #: Age at which a version is republished, in seconds of event time.
    maximum_age_s: float = 3_600.0
    #: Share of the configured exploration that is enough while nothing has changed lately.
    quiet_exploration: float = 0.05
    #: Labels since a change after which it no longer counts as lately.
    alert_labels: int = 600
    #: Trusted answers after which an audit ends at the latest; half as many more are asked for. Receipt: families
    #: ``careless_3`` and ``careless_doubt`` of the ordinary suite, ``both_abrupt``, ``both_gradual``, ``label_noise``
    #: and ``label_flattery`` of the drift report; tests/recalibrator/fit/label_quality/test_crowd.py.
    audit_answers: int = 120
    #: Queries within which they are asked for.
    audit_queries: int = 4_500
    #: Of the log odds that labels are right, at which an audit ends earlier.
    audit_bound: float = 3.0
    #: Log odds beforehand, in favour of the side that costs only money if it is wrong: to believe labels that report
    #: more errors, not to believe those that report fewer.
    audit_caution: float = 1.0
    #: Ordinary labels after which an audit ends with the answers there are; and after as many more trusted people are
    #: asked anew.
    audit_again_labels: int = 1_000
    #: Of the log likelihood ratio at which suspected labels count as good again.
    audit_release_bound: float = 8.0
    #: Queries after which a threshold is chosen again under a budget, and over which what is left over, or overdrawn,
    #: is spent or saved; more where corrections show late. Receipt: ``python -m research.drift.budget``;
    #: tests/recalibrator/fit/decide/test_accounts.py.
    pace_queries: int = 250
    #: Queries over which the budget is to be kept.
    budget_queries: int = 10_000
    #: Share of the budget of so many queries that is carried over at most, whatever was saved or overdrawn.
    carried_share: float = 0.1
    #: Share of the budget by which what the next queries may cost differs from it at most.
    correction_most: float = 0.25

    @property
    def audit_requests(self) -> float:
        """Trusted answers that an audit asks for: some stay away."""
        return 1.5 * self.audit_answers

    @property
    def related_bandwidth_cells(self) -> int:
        """Support of the kernel for outcomes given agreement, which rest on fewer labels; odd, as all are."""
        return self.wide_bandwidth_cells // 2 | 1


DEFAULT = MethodConstants()

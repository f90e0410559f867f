"""The numbers behind the method, in one place: none of them is a promise to users, each names its reason.

They are constants of the code rather than keys of ``ucci.toml``: equal events must give equal versions on every
machine, and an operator's one knob is ``target.safety``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.traffic import GridSpec


@dataclass(frozen=True, slots=True)
class Tuning:
    """What the estimators, the threshold rule and the detectors are set to.

    Parameters
    ----------
    grid : GridSpec
        Cells of u; logit-spaced, since real margins sit near 0.
    window_labels : int
        Labelled queries kept, the latest by routing time.
    window_queries : int
        Unlabelled queries whose u counts as the current traffic.
    half_life_slow, half_life_fast, half_life_map : float
        Labels after which a label counts half: for the outcome curves, for the rectifier and the status page,
        for the map g.
    bandwidth_cells, wide_bandwidth_cells : int
        Support of the smoothing kernel, and of the one that it is shrunk to, in cells.
    shrink_labels : float
        Labels that the wider curve is worth where there are few.
    map_prior_labels : float
        Labels that the two-parameter logistic map is worth under the isotonic one.
    tilt_ridge, quiet_tilt_ridge : float
        Penalty on the two parameters of the agreement tilt, per unit of logit squared: after a change or while one is
        suspected, and while all is quiet.
    drift_scale : float
        Typical unseen change of micro-F1 on one side of the threshold, to which the rectifier shrinks.
    mix_drift_factor : float
        By how much that change is expected to be larger after the mix of queries has changed: other queries may be
        harder than their u tells.
    mix_labels : int
        Labels routed since then after which it no longer is.
    labels_present : float
        Share of the labels asked for that is there in time while labelers work; with fewer, what agreement loses
        counts as the small model's fault.
    gain_least : float
        Of micro-F1: where the target is not secured, escalating more for less is not worth its cost.
    minimum_labels : float
        Effective labels below which the threshold does not move.
    minimum_pairs : float
        Effective labelled pairs below which no first version is made.
    minimum_bootstrap_labels : int
        Labels below which not even a command fits a map.
    refit_share, refit_labels_least, refit_labels_most, refit_queries
        A refit is due after this share of the effective labels within those bounds, or after so many queries.
    old_labels_least, old_labels_most : float
        After a change, what all earlier labels together may still count: the larger value at first, falling by one
        for every new label down to the smaller.
    move_least : float
        Escalation rate, the smallest move worth a new version.
    map_move_least : float
        Mean change of g(u) over traffic worth a new version.
    maximum_age_s : float
        Age at which a version is made anew, in seconds of event time.
    stale_requests : int
        Labels asked for without a single one coming in, from which the estimate counts as stale.
    quiet_exploration : float
        Share of the configured exploration that is enough while nothing has changed lately.
    alert_labels : int
        Labels since a change after which it no longer counts as lately.
    audit_answers, audit_requests : int
        Trusted answers after which an audit is decided at the latest, and those asked for, since some stay away.
    audit_queries : int
        Queries within which they are asked for.
    audit_rounds : int
        Times that an audit asks for as many answers, while those so far leave it open and labels are safe to believe.
    audit_bound : float
        Of the log odds that labels are right, at which an audit is decided earlier.
    audit_caution : float
        Log odds beforehand, in favour of the side that costs only money if it is wrong: to believe labels that tell of
        more errors, not to believe those that tell of fewer.
    audit_patience : int
        Ordinary labels of queries routed since an audit began, after which it is decided by the answers there are.
    audit_again_labels : int
        Labels in quarantine after which trusted people are asked anew.
    audit_release_bound : float
        Of the log likelihood ratio at which labels in quarantine count as good again.
    kept_versions : int
        Versions whose content can be activated again.
    centred : bool
        Whether the bias of smoothing is taken out of the curves on either side of the serving threshold.
    half_life_revisions : float
        Labels over which first labels are compared with corrected ones.
    watch_mix : bool
        Whether changes of the mix of queries are watched.
    mix_split : bool
        Whether, after such a change, what recent labels add is measured on those since alone.
    """

    grid: GridSpec = field(default_factory=GridSpec)
    window_labels: int = 49_152
    window_queries: int = 5_000
    half_life_slow: float = 4_000.0
    half_life_fast: float = 1_200.0
    half_life_map: float = 3_000.0
    bandwidth_cells: int = 9
    wide_bandwidth_cells: int = 25
    shrink_labels: float = 2.0
    map_prior_labels: float = 200.0
    tilt_ridge: float = 40.0
    quiet_tilt_ridge: float = 160.0
    drift_scale: float = 0.005
    mix_drift_factor: float = 4.0
    mix_labels: int = 1_500
    labels_present: float = 0.5
    gain_least: float = 0.001
    minimum_labels: float = 250.0
    minimum_pairs: float = 100.0
    minimum_bootstrap_labels: int = 50
    refit_share: float = 0.03
    refit_labels_least: int = 16
    refit_labels_most: int = 250
    refit_queries: int = 500
    old_labels_least: float = 50.0
    old_labels_most: float = 400.0
    move_least: float = 0.003
    map_move_least: float = 0.03
    maximum_age_s: float = 3_600.0
    stale_requests: int = 400
    quiet_exploration: float = 0.2
    alert_labels: int = 600
    audit_answers: int = 40
    audit_requests: int = 60
    audit_queries: int = 1_500
    audit_rounds: int = 3
    audit_bound: float = 3.0
    audit_caution: float = 1.0
    audit_patience: int = 1_000
    audit_again_labels: int = 1_000
    audit_release_bound: float = 8.0
    kept_versions: int = 50
    centred: bool = True
    half_life_revisions: float = 1_200.0
    watch_mix: bool = True
    mix_split: bool = True

    @property
    def related_bandwidth_cells(self) -> int:
        """Support of the kernel for outcomes given agreement, of which fewer labels tell; odd, as all are."""
        return self.wide_bandwidth_cells // 2 | 1


DEFAULT = Tuning()

"""What a running service takes over from a file that was read anew, and what it leaves for a restart."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_reread import OF_RECALIBRATOR, OF_ROUTER, Reread, running_settings

KEY = {"key": "adas-key-01234567", "scopes": ["admin"]}


def settings(photo: dict[str, Any] | None = None, **tables: Any) -> Settings:
    small, large = ({"base_url": f"http://u:s3cr3t@{role}/v1", "model": role} for role in ("small", "large"))
    workload = {"prompt": "find {text}", "fields": ["iso"], "target": {"micro_f1": 0.9}, "small": small, "large": large}
    return Settings.model_validate({"workloads": {"photo": workload | (photo or {})}} | tables)


def test_what_is_marked_is_taken_over_and_the_rest_is_named() -> None:
    found = settings(
        {"target": {"micro_f1": 0.8}, "prompt": "name {text}"}, router={"query_deadline_s": 9.0, "http_port": 9}
    )
    done = Reread.of(settings(), found, OF_ROUTER)
    assert done.applied == ("router.query_deadline_s", "workloads.photo.target")
    assert done.waiting == ("router.http_port", "workloads.photo.prompt")
    photo, router = done.settings.workloads["photo"], done.settings.router
    assert (router.query_deadline_s, router.http_port) == (9.0, settings().router.http_port)
    assert (photo.target.micro_f1, photo.prompt) == (0.8, "find {text}")


def test_workloads_that_come_and_go_wait_for_a_restart() -> None:
    """Named as a whole: their topics, models and stores are made when a process starts."""
    both = settings()
    reviews = both.workloads["photo"].model_copy(update={"name": "reviews"})
    both = both.model_copy(update={"workloads": {**both.workloads, "reviews": reviews}})
    assert Reread.of(settings(), both, OF_ROUTER)[1:] == ((), ("workloads.reviews",), ())
    done = Reread.of(both, settings(), OF_ROUTER)
    assert done[1:] == ((), ("workloads.reviews",), ("workloads.reviews",))
    assert set(done.settings.workloads) == {"photo", "reviews"}


def test_a_budget_of_labels_refused_every_hangup() -> None:
    """It was held against the shares of sampling, which are there by default: "labels and sampling both say"."""
    budget, larger = (settings({"labels": {"per_day": labels}}) for labels in (9.0, 90.0))
    done = Reread.of(budget, larger, OF_ROUTER)
    assert (done.applied, done.settings) == (("workloads.photo.labels",), larger)
    assert Reread.of(settings(), budget, OF_ROUTER).settings == budget
    gone = budget.model_copy(update={"workloads": {}})
    assert Reread.of(budget, gone, OF_ROUTER).settings == budget


def test_another_schema_id_of_results_went_unnoticed() -> None:
    """Routers write results under it, so a file that changes it waits for their restart."""
    found = settings(topics={"results_schema_id": 3})
    assert Reread.of(settings(), found, OF_ROUTER).waiting == ("topics.results_schema_id",)
    assert running_settings(found, OF_ROUTER)["topics.results_schema_id"] == "3"


def test_keys_are_not_taken_away_while_others_reach_the_address() -> None:
    """The file is sound by itself, since it also moves the API to loopback; which only a restart does."""
    open_to_all = settings(recalibrator={"http_host": "0.0.0.0", "api_keys": {"ada": KEY}})
    with pytest.raises(ConfigError) as refused:
        Reread.of(open_to_all, settings(), OF_RECALIBRATOR)
    (line,) = refused.value.faults
    assert all(words in line for words in ("api_keys is empty", "restart"))


def test_a_file_that_was_cut_short_is_taken_in_silence() -> None:
    """What it no longer sets is named, be it taken over or not; what it sets otherwise is not."""
    before = settings(router={"max_in_flight": 3, "http_port": 9, "query_deadline_s": 7.0})
    done = Reread.of(before, settings(router={"max_in_flight": 4}), OF_ROUTER)
    assert set(done.gone) == {"router.http_port", "router.query_deadline_s"}
    assert done.applied == ("router.max_in_flight", "router.query_deadline_s")

"""The regret of advice: policies, resuming without training, and one small run."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_up import stub_regret

from sartor.errors import CheckpointError, ConfigError
from sartor.experiments import regret
from sartor.experiments.regret import RegretSettings, work
from sartor.experiments.regret.work import CONSTANT, PopulationResult, path_of
from sartor.experiments.synthetic import methods
from sartor.experiments.synthetic.population import bayes_limit


def test_regret_of_policies():
    exact = np.array([[2.0, 2.0], [4.0, 1.0], [1.0, 3.0]])  # global, cluster, local; two clients
    chosen = np.array([[2, 0], [1, 1]])
    mixed = np.array([[7.0, 9.0], [0.5, 9.0], [7.0, 9.0], [7.0, 1.5]])  # by λ
    result = PopulationResult(
        exact, chosen, mixed, np.array([1, -1]), np.zeros(2, bool), np.ones(4)
    )
    found = {name: values.tolist() for name, values in result.regret().items()}
    assert found["local"] == [0, 2] and found["global"] == [1, 1] and found["cluster"] == [3, 0]
    assert found["advice"] == [0, 1] and found["bounds"] == [3, 0]
    assert found["interpolation"] == [-0.5, 1]  # only the first was advised to
    assert found["λ = 1"] == [6, 0.5]


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="one for each fold"):
        RegretSettings(samples=(4,))
    with pytest.raises(ConfigError, match="give at least 2, or 5 for intervals"):
        RegretSettings(seeds=1)
    assert RegretSettings().seed != 0  # the rules of advice were developed on seed 0


# Without training.


def test_only_missing_results_are_computed_again(tmp_path, no_figures, monkeypatch):
    settings, calls = RegretSettings(samples=(5, 20), seeds=2), []
    stub_regret(monkeypatch, calls)
    results = regret.reproduce(settings, tmp_path / "out", progress=False)
    assert len(calls) == 8 and len(set(calls)) == 8
    path_of(calls[1], tmp_path / "out" / "checkpoint").unlink()
    again = regret.reproduce(settings, tmp_path / "out", resume=True, progress=False)
    assert calls[8:] == [calls[1]] and again["regret"] == results["regret"]
    monkeypatch.setattr("sartor.experiments.common.saved.versions", dict)
    with pytest.raises(CheckpointError, match="by another version"):
        regret.reproduce(settings, tmp_path / "out", resume=True, progress=False)


def test_numbers_are_those_of_the_clients(advised):
    rows = pq.read_table(advised / "per_client.parquet").to_pandas()
    assert len(rows) == 2 * 2 * 2 * 100
    best = rows[["loss_local", "loss_global", "loss_cluster"]].min(axis=1)
    results = json.loads((advised / "results.json").read_text())
    for kind, found in results["regret"].items():
        for row in found[:-1]:
            mine = (rows["samples"] == row["samples"]) & (rows["local"] == kind)
            for policy in ("advice", "bounds", "interpolation", *CONSTANT):
                mean = (rows[f"loss_{policy}"] - best)[mine].mean()
                assert row[policy]["mean"] == pytest.approx(mean)
            for name, share in row["advised"].items():
                assert share == pytest.approx((rows["advice"][mine] == name).mean())
            advice = rows["advice"][mine].to_numpy().reshape(2, 100)
            assert row["alike"] == np.mean([len(set(some)) == 1 for some in advice])
            assert row["interpolate"] == pytest.approx(rows["lambda"][mine].notna().mean())
            least = min(row[name]["mean"] for name in CONSTANT)
            assert row["less_of_all"]["mean"] == pytest.approx(row["interpolation"]["mean"] - least)
        for policy in ("advice", "local"):
            means = [row[policy]["mean"] for row in found]
            assert means[-1] == pytest.approx(np.mean(means[:-1]))


# With training.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("regret") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "RATES", (1.0, 4.0))
        patch.setattr(work, "TUNING", 1)
        patch.setattr(methods, "ROUNDS", 20)
        patch.setattr(methods, "RESTARTS", {4: 2})
        settings = RegretSettings(samples=(20,), seeds=2)
        return settings, out, regret.reproduce(settings, out, progress=False)


def test_advice_is_near_the_best_constant_and_the_bounds_are_not(trained):
    _, _, results = trained
    for row, mean in results["regret"].values():
        shared = [row[name]["mean"] for name in ("local", "global", "cluster")]
        assert min(shared) >= 0
        assert row["advice"]["mean"] <= min(shared) + 0.01
        assert row["bounds"]["mean"] > row["advice"]["mean"] + 0.1
        assert mean["advice"] == row["advice"]
    assert results["regret"]["stopped early"][0]["advised"]["local"] == 1
    assert any("Mean regret in nats" in line for line in regret.as_text(results))


def test_losses_are_exact(trained):
    settings, out, _ = trained
    rows = pq.read_table(out / "per_client.parquet").to_pandas()
    losses = rows.filter(like="loss_").mean()
    assert (losses > bayes_limit(settings.synthetic.truth)).all()

"""The regret of advice: exact losses, policies, and an experiment that can be resumed."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from sartor.errors import CheckpointError, ConfigError
from sartor.experiments import regret
from sartor.experiments.regret import Cell, Settings, _run
from sartor.experiments.synthetic.population import bayes_limit


def test_regret_of_policies():
    exact = np.array([[2.0, 2.0], [4.0, 1.0], [1.0, 3.0]])  # global, cluster, local; two clients
    chosen = np.array([[2.0, 0.0], [1.0, 1.0]])
    mixed = np.array([[7.0, 9.0], [0.5, 9.0], [7.0, 9.0], [7.0, 1.5]])  # by λ
    cell = Cell(exact, chosen, mixed, np.array([1.0, -1]), np.zeros(2), np.ones(4))
    found = {name: values.tolist() for name, values in cell.regret().items()}
    assert found["local"] == [0, 2] and found["global"] == [1, 1] and found["cluster"] == [3, 0]
    assert found["advice"] == [0, 1] and found["bounds"] == [3, 0]
    assert found["interpolation"] == [-0.5, 1]  # only the first was advised to
    assert found["λ = 1"] == [6, 0.5]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("regret") / "out"
    settings = Settings(samples=(5, 20), seeds=2)
    return settings, out, regret.reproduce(settings, out, progress=False)


def test_advice_is_near_the_best_constant_and_the_bounds_are_not(small):
    _, _, results = small
    for rows in results["regret"].values():
        by_samples = {row["samples"]: row for row in rows}
        for name in ("local", "global", "cluster"):
            assert min(row[name]["mean"] for row in rows) >= 0
        best = min(by_samples[20][name]["mean"] for name in ("local", "global", "cluster"))
        assert by_samples[20]["advice"]["mean"] <= best + 0.01
        assert by_samples[20]["bounds"]["mean"] > by_samples[20]["advice"]["mean"] + 0.1
        assert by_samples[None]["advice"]["mean"] == pytest.approx(
            np.mean([by_samples[m]["advice"]["mean"] for m in (5, 20)])
        )
    first = regret.as_text(results)
    assert any("Mean regret in nats" in line for line in first)


def test_clients_and_page(small):
    _, out, results = small
    table = pq.read_table(out / "per_client.parquet").to_pydict()
    assert len(table["client"]) == 2 * 2 * 2 * 100
    at = np.array(table["samples"]) == 20
    kind = np.array(table["local"]) == "trained for long"
    paid = np.stack([np.array(table[f"loss_{n}"]) for n in ("local", "global", "cluster")])
    mean = (np.array(table["loss_advice"]) - paid.min(axis=0))[at & kind].mean()
    row = next(r for r in results["regret"]["trained for long"] if r["samples"] == 20)
    assert row["advice"]["mean"] == pytest.approx(mean)
    for kind, rows in results["regret"].items():
        for row in rows[:-1]:
            mine = (np.array(table["samples"]) == row["samples"]) & (
                np.array(table["local"]) == kind
            )
            advised = np.array(table["advice"])[mine]
            assert row["advised"] == {
                name: pytest.approx((advised == name).mean()) for name in row["advised"]
            }
            several = [np.unique(part).size for part in advised.reshape(2, 100)]
            assert row["alike"] == np.mean(np.array(several) == 1)
            lambdas = np.array(table["lambda"], float)[mine]
            assert row["interpolate"] == pytest.approx((~np.isnan(lambdas)).mean())
            assert row["less_of_all"]["mean"] <= row["interpolation"]["mean"] - min(
                row[name]["mean"] for name in regret.CONSTANT
            ) + 1e-9  # fmt: skip
    assert results["regret"]["stopped early"][1]["advised"]["local"] == 1
    page = (out / "report.html").read_text()
    assert "bounds alone" in page and (out / "figures" / "regret-0.pdf").exists()


def test_it_goes_on_where_it_was(small, tmp_path, monkeypatch):
    settings, out, results = small
    cells = sorted((out / "checkpoint").iterdir())
    cells[0].unlink()
    calls = []
    monkeypatch.setattr(regret, "_run", lambda *a: calls.append(a) or _run(*a))
    again = regret.reproduce(settings, out, resume=True, progress=False)
    assert len(calls) == 1 and again["regret"] == results["regret"]
    monkeypatch.setattr(regret, "versions", lambda: {"sartor": "another"})
    with pytest.raises(CheckpointError, match="made by another version"):
        regret.reproduce(settings, out, resume=True, progress=False)


def test_losses_are_exact(small):
    settings, _, _ = small
    cell = _run(settings, 20, 1, 0, dict.fromkeys(regret.TUNED, 2.0))
    assert (cell.exact.mean(axis=1) > bayes_limit(settings.synthetic.truth)).all()


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="5 folds"):
        Settings(samples=(4,))
    with pytest.raises(ConfigError, match="intervals need at least 2"):
        Settings(seeds=1)
    assert Settings().seed != 0  # how advice decides was settled there

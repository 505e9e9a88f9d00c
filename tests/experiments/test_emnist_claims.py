"""Numbers of all seeds together: estimates, differences, and the paper's claims."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from sartor.evaluation import Scores, mean_interval, mean_test
from sartor.experiments.emnist import EmnistSettings
from sartor.experiments.emnist.claims import COMPARED, claims, decide_differences
from sartor.experiments.emnist.methods import families
from sartor.experiments.emnist.pooled import PooledSeeds
from sartor.experiments.emnist.results import algorithms
from sartor.experiments.emnist.settings import COLUMNS
from sartor.experiments.emnist.work import SeedResult


def made_up(accuracies, seen, domain="a"):
    """A cell with these accuracies of 20 test images each."""
    count = len(accuracies)
    correct = np.concatenate([np.arange(20) < round(20 * a) for a in accuracies])
    scores = Scores(
        "made up", [f"w{k}" for k in range(count)], np.full(count, 9), np.full(count, 20), seen,
        np.zeros(len(correct)), correct, domain=(domain,) * count,
    )  # fmt: skip
    return SeedResult(scores, {"seconds": 1.0, "cost": {"down": 1}})


@pytest.fixture
def pooled():
    draw = np.random.default_rng(0)
    count, seeds, cells = 40, 3, {}
    ids = SimpleNamespace(ids=tuple(f"w{k}" for k in range(count)))
    settings = EmnistSettings(rows=("fedavg", "hypcluster"), seeds=seeds, parts=("tables",))
    for seed in range(seeds):
        seen = draw.permutation(count) < 29
        base = draw.integers(8, 14, count) / 20
        for row, gain in (("fedavg", 0.0), ("hypcluster", 0.15)):
            # Finetune helps, Dapper does as well, and Mapper is as bad as nothing.
            for column, more in (("initial", 0), ("finetune", 0.1), ("dapper", 0.1), ("mapper", 0)):
                name = row if column == "initial" else f"{row} + {column}"
                noise = draw.integers(-1, 2, count) / 20 if column in ("dapper", "mapper") else 0
                cells[seed, name] = made_up(base + gain + more + noise, seen)
    made = PooledSeeds(settings, ids, cells)
    made.data = ids
    return made


def test_writers_count_once_whatever_the_number_of_seeds(pooled):
    values = pooled.values("fedavg", "seen")
    assert values.shape == (3, 40)
    found = pooled.estimate(values)
    assert found["mean"] == pytest.approx(np.nanmean(values))
    assert found["by_seed"] == pytest.approx(np.nanmean(values, axis=1))
    means = np.nanmean(values[:, ~np.isnan(values).all(axis=0)], axis=0)
    weights = (~np.isnan(values)).sum(axis=0)
    weights = weights[weights > 0]
    assert (found["low"], found["high"]) == mean_interval(means, weights)[:2]
    tested = pooled.tested(pooled.gain("hypcluster", "fedavg", "unseen"))
    assert tested["mean"] == pytest.approx(0.15)
    assert tested["p_value"] < 0.001
    both = pooled.values("fedavg", "seen"), pooled.values("fedavg", "unseen")
    assert (np.isnan(both[0]) != np.isnan(both[1])).all()


def test_claims_hold_where_they_should(pooled):
    found = {(c["claim"], c["group"]): c for c in claims(pooled)}
    for group in ("seen", "unseen"):
        assert found["HypCluster is better than FedAvg", group]["holds"]
        assert found["FedAvg + Finetune is better than FedAvg", group]["holds"]
        assert not found["FedAvg + Mapper is better than FedAvg", group]["holds"]
        assert not found["FedAvg + Mapper and FedAvg + Finetune do not differ", group]["holds"]
        assert found["FedAvg + Dapper and FedAvg + Finetune do not differ", group]["holds"]
        averse = found["FedAvg + Mapper hurts fewer writers than FedAvg + Finetune", group]
        assert averse["mean"] > 0
        assert not averse["holds"]
        least = found["HypCluster is better than FedAvg by at least 4.3 points", group]
        assert least["holds"]
        assert least["mean"] == pytest.approx(0.15)


def test_one_seed_decides_nothing_between_central_models(pooled):
    settings = dataclasses.replace(pooled.settings, seeds=1)
    found = {
        (c["claim"], c["group"]): c
        for c in claims(PooledSeeds(settings, pooled.data, pooled.results))
    }
    assert found["HypCluster is better than FedAvg", "seen"]["holds"] is None
    assert found["FedAvg + Mapper and FedAvg + Finetune do not differ", "seen"]["holds"] is None
    assert found["FedAvg + Finetune is better than FedAvg", "seen"]["holds"] is True


def test_models_that_are_merely_trained_anew_do_not_differ():
    """All writers move together from seed to seed, as with another draw of the training."""
    draw = np.random.default_rng(1)
    count, seeds, believed = 100, 3, 0
    data = SimpleNamespace(ids=tuple(f"w{k}" for k in range(count)))
    settings = EmnistSettings(rows=("fedavg", "hypcluster"), seeds=seeds, parts=("tables",))
    for _ in range(20):
        cells = {}
        for seed in range(seeds):
            base, seen = draw.integers(8, 12, count) / 20, draw.permutation(count) < 74
            for row in ("fedavg", "hypcluster"):
                common = draw.normal(0, 0.02)
                own = base + common + draw.integers(-1, 2, count) / 20
                for column in COLUMNS:
                    name = row if column == "initial" else f"{row} + {column}"
                    cells[seed, name] = made_up(np.clip(own, 0, 1), seen)
        tested = claims(PooledSeeds(settings, data, cells))
        believed += sum(
            c["beyond_chance"]
            for c in tested
            if (c["a"], c["b"], c["margin"]) == ("hypcluster", "fedavg", 0.0)
        )
    assert believed <= 6  # of 40; by writers and signs alone it would be a quarter of them


def test_controls_count_by_the_rule_of_claims():
    def difference(a, b, by_seed, p_value, p_seeds):
        return {"a": a, "b": b, "by_seed": by_seed, "p_value": p_value, "p_seeds": p_seeds}

    sure = ([0.1, 0.1, 0.1], 0.0001, 0.2)
    found = [
        difference("fedavg with adam", "fedavg", *sure),
        difference("fedavg + finetune with Dapper's steps", "fedavg + finetune", *sure),
        difference("fedavg + mapper", "fedavg + mapper without joint rounds", *sure),
        difference("fedavg + mapper without joint rounds", "fedavg + finetune", *sure),
        difference("fedavg + dapper", "fedavg + dapper with λ = 1", [0.1, -0.1, 0.1], 0.0001, 0.2),
        difference("fedavg on all images", "fedavg", [0.1], 0.0001, None),
        difference("fedavg + finetune", "fedavg", [0.1, 0.1, 0.1], 0.9, 0.01),
    ]
    decide_differences(found)
    counts = [each["beyond_chance"] for each in found]
    assert counts == [False, True, False, True, False, None, False]


def test_the_hyper_parameters_are_those_that_validation_chose():
    known = {family.name: family for family in families(EmnistSettings())}
    chosen = SeedResult(None, {"chosen": {"server_optimizer": {"name": "adam"}}})
    central = algorithms(known["fedavg with adam"], chosen)["central"]
    assert central["server_optimizer"] == {"name": "adam"}
    found = algorithms(known["local"], SeedResult(None, {"chosen": {"epochs": 800}}))
    assert found["personal"]["local"]["epochs"] == 800


def test_controls_are_compared_with_what_there_is():
    names = {name for family in families(EmnistSettings()) for name in family.methods()}
    assert {name for pair in COMPARED for name in pair} <= names


def test_a_difference_that_changes_its_sign_from_seed_to_seed_is_not_believed(pooled):
    worse = pooled.results[2, "fedavg"]
    pooled.results[2, "fedavg"] = pooled.results[2, "fedavg + finetune"]
    pooled.results[2, "fedavg + finetune"] = worse
    claim = next(
        c for c in claims(pooled) if c["claim"] == "FedAvg + Finetune is better than FedAvg"
    )
    values = pooled.values("fedavg + finetune", "seen") - pooled.values("fedavg", "seen")
    counts = (~np.isnan(values)).sum(axis=0)
    assert claim["p_value"] == mean_test(
        np.nanmean(values[:, counts > 0], axis=0), counts[counts > 0]
    )
    assert np.sign(claim["by_seed"]).tolist() == [1, 1, -1]
    assert not claim["beyond_chance"]
    assert not claim["holds"]

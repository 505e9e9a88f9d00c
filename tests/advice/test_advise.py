"""Advice for clients, from their training examples alone."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import sartor
import sartor.progress
from sartor.advice import advise
from sartor.errors import ConfigError, DataError
from sartor.models import categorical, linear, logistic

QUICK = {
    "central": sartor.FedAvg(
        rounds=10, cohort=20, batch=50, learning_rate=2.0, server_momentum=0.0
    ),
    "cluster": sartor.HypCluster(
        q=2,
        rounds=10,
        cohort=20,
        batch=50,
        learning_rate=2.0,
        server_momentum=0.0,
        start="kmeans++",
    ),
    "local": sartor.Local(epochs=20, batch=50, learning_rate=2.0),
    "folds": 3,
}


def population(samples, kinds, seed=0):
    """Clients of a few kinds, each with its own favourite symbols."""
    draw = np.random.default_rng(seed)
    shares = np.stack([draw.dirichlet(np.full(6, 0.4)) for _ in range(kinds)])
    return sartor.data.from_dict(
        {f"c{k:02d}": {"y": draw.choice(6, samples, p=shares[k % kinds])} for k in range(20)}
    )


@pytest.fixture(scope="module")
def found():
    return advise(population(400, 20), categorical(symbols=6), **QUICK)


def test_who_has_many_examples_of_its_own_kind_stays_alone(found):
    assert found.shares()["local"] > 0.9
    assert (found.gain["local"] > found.gain["cluster"]).mean() > 0.9
    assert "local 100%" in repr(found)


def test_who_is_like_everybody_joins():
    found = advise(population(8, 1), categorical(symbols=6), **QUICK)
    assert found.shares()["local"] < 0.2
    assert (found.bounds_say != "local").all()


def test_two_kinds_are_clustered():
    found = advise(population(15, 2, seed=1), categorical(symbols=6), **QUICK)
    assert found.shares()["cluster"] > 0.8
    assert set(found.cluster) == {0, 1}


def test_bounds_are_those_of_the_theory(found):
    told = {"d": 5, "delta": 0.05, "bound": found.settings["bound"]}
    k = 3
    local = sartor.theory.bounds.local(m=400, **told)
    joint = sartor.theory.bounds.global_(m=8000, disc=found.discrepancy["global"][k], **told)
    assert found.bound["local"][k] == local and found.bound["global"][k] == joint
    assert found.discrepancy["cluster"].mean() <= found.discrepancy["global"].mean()
    assert ((found.bounds_lambda >= 400 / 8000 - 1e-9) & (found.bounds_lambda <= 1)).all()
    assert found.agree.tolist() == (found.sharing == found.bounds_say).tolist()


def test_test_parts_are_not_looked_at():
    data = population(40, 4).split(test=0.25, seed=0)
    held = np.concatenate([data.part(k, "test") for k in range(len(data))])
    y = data.columns["y"].copy()
    y[held] = (y[held] + 1) % 6
    other = dataclasses.replace(data, columns={"y": y})
    one, two = (advise(d, categorical(symbols=6), **QUICK) for d in (data, other))
    for name in one.gain:
        assert (one.gain[name] == two.gain[name]).all()
    assert (one.bound["global"] == two.bound["global"]).all()


def test_unseen_clients_and_single_examples_are_advised_too():
    data = population(30, 2).split(unseen=0.3, seed=0)
    rows = [data.part(k)[: 1 if k == 5 else 30] for k in range(len(data))]
    few = sartor.data.from_dict(
        {c: {"y": data.columns["y"][r]} for c, r in zip(data.ids, rows, strict=True)}
    )
    few = dataclasses.replace(few, seen=data.seen)
    found = advise(few, categorical(symbols=6), **QUICK)
    assert len(found.advice) == 20 and np.isfinite(found.gain["local"]).all()


def test_a_model_without_a_closed_form():
    draw = np.random.default_rng(0)
    data = sartor.data.from_dict(
        {f"c{k}": {"x": draw.normal(size=(12, 2)), "y": draw.integers(0, 2, 12)} for k in range(6)}
    )
    found = advise(data, logistic(features=2, classes=2), **QUICK)
    assert found.settings["radius"] > 0 and found.settings["d_how"] == "known"
    assert (found.discrepancy["global"] <= found.settings["bound"]).all()


def test_unseen_clients_in_a_cluster_that_nobody_has_trained(monkeypatch):
    data = population(30, 2).split(unseen=0.3, seed=0)
    monkeypatch.setattr(
        sartor.CentralModel, "assign", lambda self, d: np.where(d.seen | (self.q < 2), 0, 1)
    )
    found = advise(data, categorical(symbols=6), **QUICK)
    assert (found.bounds_say[~data.seen] != "cluster").all()
    assert (found.discrepancy["cluster"][~data.seen] == found.settings["bound"]).all()
    assert found.discrepancy["cluster"][data.seen] == pytest.approx(
        found.discrepancy["global"][data.seen]
    )


def test_interpolation_is_a_candidate_with_each_lambda(found):
    assert set(found.held_out) == {"local", "cluster", "λ = 0.25", "λ = 0.5", "λ = 0.75", "λ = 1"}
    assert set(np.unique(found.lambda_)) <= {0.25, 0.5, 0.75, 1.0}
    best = np.max([found.gain[name] for name in found.gain], axis=0)
    assert found.best.tolist() == best.tolist()
    for name, gains in found.gain.items():
        assert (gains[found.advice == name] == best[found.advice == name]).all()
    assert np.isfinite(found.bound["interpolation"]).all()
    assert (found.best >= np.maximum(found.gain["local"], 0)).all()


def test_who_is_near_everybody_but_not_like_it_interpolates():
    """Few samples of one's own kind: too few to stay alone, too different to join."""
    draw, kinds = np.random.default_rng(3), 20
    shared = np.random.default_rng(9).dirichlet(np.ones(6))
    shares = [0.6 * shared + 0.4 * draw.dirichlet(np.full(6, 0.3)) for _ in range(kinds)]
    data = sartor.data.from_dict(
        {f"c{k:02d}": {"y": draw.choice(6, 25, p=shares[k])} for k in range(kinds)}
    )
    long = {**QUICK, "local": sartor.Local(epochs=400, batch=50, learning_rate=2.0)}
    mixing = sartor.Dapper(cover=(0.5, 1.0), epochs=2, batch=25, learning_rate=0.5)
    found = advise(data, categorical(symbols=6), **long, interpolation=mixing)
    assert found.shares()["interpolation"] > 0.8
    assert found.policies()["as advised"]["gain"] > found.policies()["local"]["gain"]


def test_without_interpolation():
    found = advise(population(20, 4), categorical(symbols=6), **QUICK, interpolation=None)
    assert found.advice.tolist() == found.sharing.tolist() and np.isnan(found.lambda_).all()
    assert "interpolation" not in found.gain and set(found.held_out) == {"local", "cluster"}
    tuned = advise(
        population(20, 4), categorical(symbols=6), **QUICK, interpolation=sartor.Finetune()
    )
    assert (tuned.lambda_ == 1).all() and "λ = 1" in tuned.held_out


def test_policies_are_means_over_clients(found):
    told = found.policies()
    assert set(told) == {*found.held_out, "as advised"}
    assert all(set(of) == {"gain", "held_out", "low", "high"} for of in told.values())
    local = told["local"]
    assert local["gain"] == pytest.approx(found.gain["local"].mean())
    assert local["low"] < local["held_out"] < local["high"]
    assert told["as advised"]["gain"] >= max(0, local["gain"], told["cluster"]["gain"]) - 1e-12
    columns = found.columns()
    assert {len(values) for values in columns.values()} == {20}
    assert columns["advice"].tolist() == found.advice.tolist()


def test_progress_counts_up_to_all_work(monkeypatch):
    seen = []

    class Spy(sartor.progress.Bar):
        def __init__(self, title, total, show=None):
            seen.append(total)
            super().__init__(title, total, False)

        def update(self, done, note=""):
            seen.append(done)

    monkeypatch.setattr(sys.modules["sartor.advice.advise"], "Bar", Spy)
    advise(population(6, 2), categorical(symbols=6), **QUICK)
    total, *counts = seen
    assert counts == list(range(1, total + 1))


@pytest.mark.parametrize("samples", [2, 3])
def test_clients_with_fewer_examples_than_folds(samples):
    found = advise(population(samples, 2), categorical(symbols=6), **{**QUICK, "folds": 5})
    assert found.settings["folds"] == samples and np.isfinite(found.best).all()


def test_neither_gains_nor_bounds_depend_on_the_order_of_clients():
    draw = np.random.default_rng(0)
    data = sartor.data.from_dict(
        {f"c{k}": {"x": draw.normal(size=(12, 2)), "y": draw.integers(0, 2, 12)} for k in range(8)}
    )
    other = data.select(list(data.ids)[::-1])
    one, two = (advise(d, logistic(features=2, classes=2), **QUICK) for d in (data, other))
    assert one.gain["local"] == pytest.approx(two.gain["local"][::-1], abs=1e-5)
    for name in ("global", "cluster"):
        assert one.discrepancy[name] == pytest.approx(two.discrepancy[name][::-1], abs=1e-4)


def test_bounds_and_experiment_know_the_same_examples():
    data = population(40, 4).split(validation=0.4, seed=0)
    found = advise(data, categorical(symbols=6), **QUICK)
    told = {"d": 5, "delta": 0.05, "bound": found.settings["bound"]}
    assert (found.size == 40).all()
    assert found.bound["local"][0] == sartor.theory.bounds.local(m=40, **told)


def test_a_guard_is_left_out():
    guarded = {**QUICK, "local": dataclasses.replace(QUICK["local"], guard=True)}
    one, two = (advise(population(20, 4), categorical(symbols=6), **q) for q in (QUICK, guarded))
    assert (one.gain["local"] == two.gain["local"]).all()


def test_what_is_wrong_is_said_before_any_work(monkeypatch):
    def never(*_args, **_more):
        raise AssertionError

    for kind in (sartor.FedAvg, sartor.HypCluster, sartor.Local):
        monkeypatch.setattr(kind, "fit", never)
    data, model = population(6, 2), categorical(symbols=6)
    for wrong, words in (
        ({"delta": 1.0}, "delta=1.0"), ({"folds": 2}, "folds=2"), ({"bound": 0.0}, "bound=0.0"),
        ({"radius": -1.0}, "radius=-1.0"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            advise(data, model, **wrong)
    for wrong, words in (
        ({"central": sartor.FedAvg}, r"central: .* give one as FedAvg\(\)"),
        ({"local": sartor.Dapper()}, r"local: .* give one as Local\(\)"),
        ({"interpolation": 0.5}, r"interpolation: 0.5 is no such algorithm"),
    ):
        with pytest.raises(ConfigError, match=words):
            advise(data, model, **wrong)
    with pytest.raises(DataError):
        advise(data, categorical(symbols=3))  # labels up to 5
    with pytest.raises(ConfigError, match="a guess already loses"):
        advise(data, model, bound=1.0)
    with pytest.raises(ConfigError, match="only 20 seen clients"):
        advise(data, model, cluster=sartor.HypCluster(q=21, start="clients"))
    with pytest.raises(ConfigError, match="central: HypCluster makes several models"):
        advise(data, model, central=sartor.HypCluster())
    bounds = data.bounds.copy()
    bounds[4, 1] = bounds[4, 0]  # all of its examples are held out for validation
    with pytest.raises(DataError, match="client 'c04' has no training rows"):
        advise(dataclasses.replace(data, bounds=bounds), model)


def test_bad_input():
    data = population(5, 1)
    with pytest.raises(DataError, match="no client is seen"):
        advise(dataclasses.replace(data, seen=np.zeros(20, bool)), categorical(symbols=6))
    with pytest.raises(DataError, match="only one client is seen"):
        advise(dataclasses.replace(data, seen=np.arange(20) == 3), categorical(symbols=6))


def test_regression_reckons_with_the_largest_label():
    draw = np.random.default_rng(0)
    data = sartor.data.from_dict(
        {f"c{k}": {"x": draw.normal(size=(9, 1)), "y": draw.normal(size=9)} for k in range(4)}
    )
    quick = {**QUICK, "central": sartor.FedAvg(rounds=5), "local": sartor.Local(epochs=2)}
    quick["cluster"] = sartor.HypCluster(rounds=5, start="clients")
    found = advise(data, linear(features=1), **quick)
    assert found.settings["bound"] == pytest.approx(4 * data.columns["y"].max() ** 2, rel=3)
    assert found.settings["bound"] == pytest.approx(4 * (data.columns["y"] ** 2).max())


def test_among_equals_the_global_model_is_advised():
    data = sartor.data.from_dict({f"c{k}": {"y": np.full(10, 2)} for k in range(6)})
    same = {
        **QUICK,
        "cluster": QUICK["cluster"],
        "local": sartor.Local(epochs=1, learning_rate=1e-9),
    }
    with pytest.warns(UserWarning, match="in one cluster"):
        found = advise(data, categorical(symbols=6), **same, interpolation=None)
    assert (found.advice == "global").all()  # all are in one cluster: to be clustered is to join
    assert "of the clients" in found.summary() and "Mean gain" in found.summary()


def test_who_has_nothing_to_hold_out_is_not_extrapolated_to(found):
    draw = np.random.default_rng(0)
    sizes = [30, 40, 1, 25, 50]
    data = sartor.data.from_dict(
        {f"c{k}": {"y": draw.integers(0, 6, m)} for k, m in enumerate(sizes)}
    )
    few = advise(data, categorical(symbols=6), **QUICK)
    others = np.delete(few.expected["local"], 2)
    assert few.expected["local"][2] <= others.max() + 1e-9

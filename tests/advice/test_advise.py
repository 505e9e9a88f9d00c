"""Advice for clients, from their training examples alone.

Training is slow, so a few populations are trained for real, and everything else is proved with
models whose losses are made up.
"""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

import sartor
import sartor.progress
from sartor.advice import advise
from sartor.advice.client_bounds import default_largest_loss
from sartor.errors import ConfigError, DataError
from sartor.evaluation import Scores
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
    "interpolation": sartor.Dapper(cover=(0.25, 0.5, 0.75, 1.0), learning_rate=0.04),
    "folds": 3,
}


def population(samples, kinds, seed=0, clients=20):
    """Clients of a few kinds, each with its own favourite symbols."""
    draw = np.random.default_rng(seed)
    shares = np.stack([draw.dirichlet(np.full(6, 0.4)) for _ in range(kinds)])
    return sartor.data.from_dict(
        {f"c{k:02d}": {"y": draw.choice(6, samples, p=shares[k % kinds])} for k in range(clients)}
    )


# Trained for real.


@pytest.fixture(scope="module")
def found():
    return advise(population(400, 20), categorical(symbols=6), **QUICK)


def test_who_has_many_examples_of_its_own_kind_stays_alone(found):
    assert found.shares()["local"] > 0.9
    assert (found.gain["local"] > found.gain["cluster"]).mean() > 0.9
    assert "local 100%" in repr(found)


def test_interpolation_is_a_candidate_with_each_lambda(found):
    assert set(found.held_out) == {"local", "cluster", "λ = 0.25", "λ = 0.5", "λ = 0.75", "λ = 1"}
    assert set(np.unique(found.lambda_)) <= {0.25, 0.5, 0.75, 1.0}
    best = np.max([found.gain[name] for name in found.gain], axis=0)
    assert found.best.tolist() == best.tolist()
    for name, gains in found.gain.items():
        assert (gains[found.advice == name] == best[found.advice == name]).all()
    assert np.isfinite(found.bound["interpolation"]).all()
    assert (found.best >= np.maximum(found.gain["local"], 0)).all()


def test_policies_are_means_over_clients(found):
    told = found.policies()
    assert set(told) == {*found.held_out, "as advised"}
    facts = {"gain", "share", "held_out", "low", "high", "rough"}
    assert all(set(of) == facts for of in told.values())
    local = told["local"]
    assert local["gain"] == pytest.approx(found.gain["local"].mean())
    assert local["low"] < local["held_out"] < local["high"]
    assert told["as advised"]["gain"] == pytest.approx(local["gain"], abs=0.02)
    assert told["as advised"]["gain"] == pytest.approx(np.nanmean(found.worth))
    share = local["gain"] / found.loss.mean()  # all clients have held-out examples
    assert told["local"]["share"] == pytest.approx(share)
    assert f"{share:+.1%}" in found.summary()
    columns = found.columns()
    assert {len(values) for values in columns.values()} == {20}
    assert columns["advice"].tolist() == found.advice.tolist()


def test_two_kinds_are_clustered():
    found = advise(population(15, 2, seed=1), categorical(symbols=6), **QUICK)
    assert found.shares()["cluster"] > 0.8
    assert set(found.cluster) == {0, 1}


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
    found = advise(data, categorical(symbols=6), **{**long, "interpolation": mixing})
    assert found.shares()["interpolation"] > 0.8
    assert found.policies()["as advised"]["gain"] > found.policies()["local"]["gain"]


@pytest.fixture(scope="module")
def pair():
    """Two pieces of advice that must be the same, for a model without a closed form.

    The second knows the clients in reverse order, other labels in the test parts, and a guard.
    """
    draw = np.random.default_rng(0)
    sizes = [12, 12, 1, 12, 12, 12, 12, 12]
    x = draw.normal(size=(sum(sizes), 2))
    who = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    data = sartor.data.from_arrays(x, (x[:, 0] > 0).astype(int), who)
    data = data.split(unseen=0.25, test=0.25, seed=0)
    test = np.concatenate([data.part(k, "test") for k in range(len(data))])
    assert len(test) >= 7 and not data.seen.all() and data.sizes("train")[2] == 1
    y = data.columns["y"].copy()
    y[test] = 1 - y[test]
    other = dataclasses.replace(data, columns={**data.columns, "y": y})
    other = other.select(list(data.ids)[::-1])
    guarded = {**QUICK, "local": dataclasses.replace(QUICK["local"], guard=True)}
    model, mixing = logistic(features=2, classes=2, scale=False), sartor.Dapper(cover=(0.5,))
    return tuple(
        advise(d, model, **{**quick, "interpolation": mixing})
        for d, quick in ((data, QUICK), (other, guarded))
    )


def test_neither_order_nor_test_parts_nor_a_guard_change_gains_and_bounds(pair):
    one, two = pair
    assert one.client == two.client[::-1]
    for name in one.gain:
        assert one.gain[name] == pytest.approx(two.gain[name][::-1], abs=1e-5)
        assert one.bound[name] == pytest.approx(two.bound[name][::-1], abs=1e-3)
    for name in ("global", "cluster"):
        assert one.discrepancy[name] == pytest.approx(two.discrepancy[name][::-1], abs=1e-4)


def test_unseen_clients_and_single_examples_are_advised_without_a_closed_form(pair):
    found, _ = pair
    assert len(found.advice) == 8 and np.isfinite(found.gain["local"]).all()
    assert found.settings["radius"] > 0 and found.settings["d_how"] == "known"
    assert (found.discrepancy["global"] <= found.settings["bound"]).all()


# With made-up losses.


class MadeUpModel:
    """Loses the same on every example of a client, and is in no need of training."""

    q = 2
    params = None
    scaling = None

    def __init__(self, loss, cluster):
        self.loss, self.cluster = loss, cluster

    def assign(self, data):
        return np.array([self.cluster(data, k) for k in range(len(data))])

    def evaluate(self, part, mixture=None):
        sizes, train = part.sizes("test"), part.sizes("train")
        some = np.flatnonzero(sizes)
        loss = [self.loss(k, train[k]) for k in some]
        return Scores(
            "made up", [part.ids[k] for k in some], train[some], sizes[some], part.seen[some],
            np.repeat(loss, sizes[some]),
        )  # fmt: skip


@pytest.fixture
def made_up(monkeypatch):
    """Replace training: losses by candidate, of a client's position and number of examples."""

    def replace(losses=None, cluster=lambda data, k: k % 2):
        fitted = []

        def fit(self, model, part, **_):
            fitted.append(self)
            name = type(self).__name__ + "".join(f" {v:g}" for v in getattr(self, "cover", ()))
            return MadeUpModel((losses or {}).get(name, lambda k, n: 1.0), cluster)

        for kind in (
            sartor.FedAvg,
            sartor.HypCluster,
            sartor.Local,
            sartor.Finetune,
            sartor.Dapper,
        ):
            monkeypatch.setattr(kind, "fit", fit)
        return fitted

    return replace


def test_who_is_like_everybody_joins(made_up):
    """A model of one's own loses 6/n more: nothing is to be gained, and the bounds know it."""
    made_up({"Local": lambda k, n: 1 + 6 / n})
    found = advise(population(8, 1), categorical(symbols=6), folds=3)
    assert (found.advice == "global").all() and (found.sharing == "global").all()
    assert (found.bounds_say != "local").all()


def test_each_client_is_advised_its_best_candidate(made_up):
    """Clients differ far more than chance: every fourth is better off with another candidate."""
    best = ["global", "cluster", "local", "interpolation"]
    names = ("HypCluster", 1), ("Local", 2), ("Dapper 0.5", 3)
    made_up({n: lambda k, _, turn=turn: 0.0 if k % 4 == turn else 2.0 for n, turn in names})
    found = advise(population(30, 4, clients=40), categorical(symbols=6))
    assert found.advice.tolist() == best * 10
    assert found.sharing.tolist() == ["global", "cluster", "local", "global"] * 10
    assert (found.lambda_[3::4] == 0.5).all()
    assert found.clear.tolist() == [False, True, True, True] * 10  # λ = 1 is as good as to join
    assert found.settings["trust"] > 0
    assert found.best == pytest.approx(np.tile([0.0, 1.0, 1.0, 1.0], 10), abs=0.1)
    assert found.shares() == dict.fromkeys(found.gain, 0.25)
    assert "bounds" in found.summary() and "of the clients" in found.summary()


def test_bounds_are_those_of_the_theory(made_up):
    made_up()
    found = advise(population(400, 20), categorical(symbols=6))
    told = {"d": 5, "delta": 0.05, "bound": found.settings["bound"]}
    k = 3
    local = sartor.theory.bounds.local(m=400, **told)
    joint = sartor.theory.bounds.global_(m=8000, disc=found.discrepancy["global"][k], **told)
    half = sartor.theory.bounds.global_(m=4000, disc=found.discrepancy["cluster"][k], **told)
    assert found.bound["local"][k] == local and found.bound["global"][k] == joint
    assert found.bound["cluster"][k] == half
    table = np.stack([found.bound[name] for name in ("global", "cluster", "local")])
    for k, name in enumerate(found.bounds_say):
        assert found.bound[name][k] == table[:, k].min()
    assert found.discrepancy["cluster"].mean() <= found.discrepancy["global"].mean()
    assert ((found.bounds_lambda >= 400 / 8000 - 1e-9) & (found.bounds_lambda <= 1)).all()
    assert found.agree.tolist() == (found.sharing == found.bounds_say).tolist()


def test_unseen_clients_in_a_cluster_that_nobody_has_trained(made_up):
    made_up(cluster=lambda data, k: 0 if data.seen[k] else 1)
    data = population(30, 2).split(unseen=0.3, seed=0)
    found = advise(data, categorical(symbols=6))
    assert (found.bounds_say[~data.seen] != "cluster").all()
    assert (found.discrepancy["cluster"][~data.seen] == found.settings["bound"]).all()
    assert found.discrepancy["cluster"][data.seen] == pytest.approx(
        found.discrepancy["global"][data.seen]
    )


def test_without_interpolation(made_up):
    made_up()
    data, model = population(20, 4), categorical(symbols=6)
    found = advise(data, model, interpolation=None)
    assert found.advice.tolist() == found.sharing.tolist() and np.isnan(found.lambda_).all()
    assert "interpolation" not in found.gain and set(found.held_out) == {"local", "cluster"}
    tuned = advise(data, model, interpolation=sartor.Finetune())
    assert (tuned.lambda_ == 1).all() and "λ = 1" in tuned.held_out


def test_progress_counts_up_to_all_work(made_up, monkeypatch):
    seen = []

    class Spy(sartor.progress.Bar):
        def __init__(self, title, total, show=None):
            seen.append(total)
            super().__init__(title, total, False)

        def update(self, done, note=""):
            seen.append(done)

    made_up()
    monkeypatch.setattr("sartor.workers.Bar", Spy)
    advise(population(6, 2), categorical(symbols=6))
    total, *counts = seen
    assert counts == sorted(counts) and counts[-1] == total == 5 * (3 + 4 + 1) + 3


@pytest.mark.parametrize("samples", [2, 3])
def test_clients_with_fewer_examples_than_folds(made_up, samples):
    made_up()
    found = advise(population(samples, 2), categorical(symbols=6), folds=5)
    assert found.settings["folds"] == samples and np.isfinite(found.best).all()


def test_bounds_and_experiment_know_the_same_examples(made_up):
    trained = set()

    def local(k, n):
        trained.add(int(n))
        return 1.0

    made_up({"Local": local})
    data = population(40, 4).split(validation=0.4, seed=0)
    found = advise(data, categorical(symbols=6))
    told = {"d": 5, "delta": 0.05, "bound": found.settings["bound"]}
    assert (found.size == 40).all()
    assert found.bound["local"][0] == sartor.theory.bounds.local(m=40, **told)
    assert trained == {32, 24}  # without a fold, and without two


def test_a_guard_is_left_out(made_up):
    fitted = made_up()
    local, mixing = sartor.Local(guard=True), sartor.Dapper(cover=(0.5, 1.0), guard=True)
    advise(population(20, 4), categorical(symbols=6), local=local, interpolation=mixing)
    personal = [a for a in fitted if isinstance(a, sartor.Local | sartor.Dapper)]
    assert len(personal) == 5 * (2 + 2) and not any(a.guard for a in personal)


def test_among_equals_the_global_model_is_advised(made_up):
    made_up(cluster=lambda data, k: 0)
    with pytest.warns(UserWarning, match="100% of the clients are in one cluster.*not advised"):
        found = advise(population(10, 1), categorical(symbols=6))
    assert (found.advice == "global").all() and found.settings["barred"] == ["cluster"]
    assert "of the clients" in found.summary() and "Mean gain" in found.summary()


def test_one_cluster_is_not_advised_however_good_it_looks(made_up):
    made_up({"HypCluster": lambda k, n: 0.5}, cluster=lambda data, k: 0)
    with pytest.warns(UserWarning, match="in one cluster"):
        found = advise(population(10, 1), categorical(symbols=6), interpolation=None)
    assert (found.gain["cluster"] > 0.4).all() and (found.advice == "global").all()


def test_candidates_that_are_worse_than_a_guess_are_named(made_up):
    made_up({"Local": lambda k, n: 50.0})
    with pytest.warns(UserWarning, match=r"than a guess .* not advised: local 50"):
        found = advise(population(10, 2), categorical(symbols=6))
    assert "local" in found.settings["barred"] and found.shares()["local"] == 0


def test_nothing_is_advised_next_to_a_global_model_that_failed(made_up):
    made_up({"FedAvg": lambda k, n: 2.5})
    with pytest.raises(DataError, match=r"the global model loses 2.5 .*gains over it mean nothing"):
        advise(population(10, 2), categorical(symbols=6))


def test_who_has_nothing_to_hold_out_is_not_extrapolated_to(made_up):
    """The line of gains over sizes ends at the sizes of who has examples to hold out."""
    made_up({"Local": lambda k, n: 2 - np.log(n)})
    draw = np.random.default_rng(0)
    sizes = [30, 40, 1, 25, 50]
    data = sartor.data.from_dict(
        {f"c{k}": {"y": draw.integers(0, 6, m)} for k, m in enumerate(sizes)}
    )
    found = advise(data, categorical(symbols=6))
    others = np.delete(found.held_out["local"], 2)
    assert np.isnan(found.held_out["local"][2]) and np.ptp(others) > 0.5
    assert others.min() - 1e-6 <= found.expected["local"][2] <= others.max() + 1e-6


def test_what_is_wrong_is_said_before_any_work(monkeypatch):
    def never(*_args, **_more):
        raise AssertionError

    for kind in (sartor.FedAvg, sartor.HypCluster, sartor.Local):
        monkeypatch.setattr(kind, "fit", never)
    data, model = population(6, 2), categorical(symbols=6)
    for wrong, words in (
        ({"delta": 1.0}, "delta must be"), ({"folds": 2}, "folds must be"),
        ({"bound": 0.0}, "bound must be"), ({"radius": -1.0}, "radius must be"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            advise(data, model, **wrong)
    for wrong, words in (
        ({"central": sartor.FedAvg}, r"central must be a Central"),
        ({"local": sartor.Dapper()}, r"local must be a Local"),
        ({"interpolation": 0.5}, r"interpolation must be a Personal"),
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


@pytest.mark.parametrize("seen", [0, 1])
def test_a_global_model_needs_two_seen_clients(seen):
    data = dataclasses.replace(population(5, 1), seen=np.arange(20) < seen)
    with pytest.raises(DataError, match=f"seen clients: {seen}; a global model needs"):
        advise(data, categorical(symbols=6))


@pytest.mark.parametrize("labels", [[0.5, -3.0, 2.0], [[1.0, 2.0], [-2.0, 2.5], [0.0, 0.0]]])
def test_regression_assumes_the_loss_of_the_largest_label_on_the_other_side(labels):
    y = np.array(labels)
    data = sartor.data.from_dict({c: {"x": np.ones((3, 1)), "y": y} for c in "ab"})
    largest = max(y.reshape(3, -1), key=lambda label: label @ label)
    assert (
        default_largest_loss(linear(features=1, scale=False), data)
        == ((largest - -largest) ** 2).sum()
    )


def test_classification_assumes_the_loss_of_a_tenth_of_the_uniform_probability():
    found = default_largest_loss(types.SimpleNamespace(kind="classification", classes=6), None)
    assert found == pytest.approx(-np.log(1 / 6 / 10))

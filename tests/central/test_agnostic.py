"""Agnostic against FedAvg, on the simplex, and at a minimax point that can be written down."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest

import sartor
from sartor.errors import ConfigError, DataError


def domains(sizes=(30, 10, 20, 5), domain=("a", "a", "b", "b"), seed=0):
    draw = np.random.default_rng(seed)
    client = np.repeat(np.arange(len(sizes)), sizes)
    x = draw.standard_normal((len(client), 3)).astype(np.float32)
    y = draw.integers(0, 2, len(client))
    return sartor.data.from_arrays(x, y, client, domain=np.array(domain)[client])


LOGISTIC = sartor.models.logistic(features=3, classes=2, scale=False)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_without_a_domain_step_and_from_the_population_it_is_fedavg(weights):
    common = {"rounds": 8, "cohort": 3, "learning_rate": 0.2, "weights": weights}
    agnostic = sartor.Agnostic(domain_step=0, domain_start="population", **common)
    data = domains()
    a = agnostic.fit(LOGISTIC, data, seed=2).params
    b = sartor.FedAvg(**common).fit(LOGISTIC, data, seed=2).params
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=1e-6), a, b)


@pytest.mark.parametrize("counts", ["population", "window"])
def test_weights_stay_on_the_simplex_and_move_to_the_harder_domain(counts):
    draw = np.random.default_rng(0)
    client = np.repeat(np.arange(10), 20)
    x = draw.standard_normal((200, 3)).astype(np.float32)
    hard = client % 2 == 1
    y = np.where(hard, draw.integers(0, 2, 200), (x[:, 0] > 0).astype(int))
    domain = np.array(["easy", "hard"])[np.arange(10) % 2]
    data = sartor.data.from_arrays(x, y, client, domain=domain[client])
    algorithm = sartor.Agnostic(
        rounds=60, cohort=4, learning_rate=0.1, domain_step=0.3, counts=counts, window=5
    )
    weights = algorithm.fit(LOGISTIC, data, seed=0).history["domain_weights"]
    assert weights.shape == (61, 2)  # before every round, and in the end
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(weights[0], 0.5)
    assert weights[-1, 1] > 0.9


QUADRATIC = sartor.models.Model(
    init=lambda key: {"h": jnp.zeros(())},
    apply=lambda params, x, key: params["h"] + 0 * x[:, 0],
    kind="regression",
)


def test_finds_the_minimax_point_of_two_quadratics():
    # L_a(h) = (h - 0)² + 1, L_b(h) = (h - 3)²: they are equal at h = 4/3, and nowhere in [0, 3] is
    # the larger of the two smaller. There λ_a · 2h = λ_b · 2(3 - h), so λ_a = 5/9.
    y = np.array([1.0, -1.0, 3.0, 3.0], np.float32)  # mean 0 and variance 1; 3 and none
    x = np.zeros((4, 1), np.float32)
    data = sartor.data.from_arrays(x, y, [0, 0, 1, 1], domain=["a", "a", "b", "b"])
    algorithm = sartor.Agnostic(
        rounds=4000, cohort=2, batch=2, learning_rate=0.01, server_momentum=0.0,
        domain_step=0.01,
    )  # fmt: skip
    central = algorithm.fit(QUADRATIC, data)
    # The last iterates circle the saddle point slowly inwards; their mean is on it.
    assert float(central.params["h"]) == pytest.approx(4 / 3, abs=0.05)
    late = central.history["domain_weights"][2000:].mean(axis=0)
    np.testing.assert_allclose(late, [5 / 9, 4 / 9], atol=0.02)


@pytest.mark.parametrize("counts", ["population", "window"])
@pytest.mark.parametrize("cohort", [1, 5])
def test_a_rare_domain_counts_though_few_rounds_see_it(cohort, counts):
    # The same two quadratics, with one client in 20 in the second domain.
    y = np.tile(np.array([1.0, -1.0], np.float32), 20)
    y[-2:] = 3.0
    client = np.repeat(np.arange(20), 2)
    data = sartor.data.from_arrays(
        np.zeros((40, 1), np.float32), y, client, domain=np.where(client == 19, "b", "a")
    )
    algorithm = sartor.Agnostic(
        rounds=12_000, cohort=cohort, batch=2, learning_rate=0.002, server_momentum=0.0,
        domain_step=0.002, counts=counts, window=200,
    )  # fmt: skip
    central = algorithm.fit(QUADRATIC, data)
    late = central.history["domain_weights"][6000:].mean(axis=0)
    np.testing.assert_allclose(late, [5 / 9, 4 / 9], atol=0.08)
    assert float(central.params["h"]) == pytest.approx(4 / 3, abs=0.25)


def rare_domain(share, clients=1000, each=20, seed=0):
    """Two domains that need different models; the rare one has this share of the clients."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), each)
    rare = owner < share * clients
    x = draw.standard_normal((len(owner), 3)).astype(np.float32)
    score = 3 * np.where(rare, x[:, 1], x[:, 0]) + draw.logistic(size=len(owner))
    domain = np.where(rare, "rare", "usual")
    return sartor.data.from_arrays(x, (score > 0).astype(int), owner, domain=domain)


def loss_by_domain(central, data):
    scores = central.evaluate(data, part="train", allow_trained=True)
    domain = np.array(scores.domain)
    return {name: scores.loss[domain == name].mean() for name in ("rare", "usual")}


@pytest.mark.parametrize("share", [0.002, 0.005])
@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=() if k < 2 else pytest.mark.soak) for k in range(10)]
)
def test_a_rare_domain_does_not_shake_the_model(seed, share):
    data, model = rare_domain(share, seed=seed), LOGISTIC
    found = loss_by_domain(sartor.Agnostic(rounds=500).fit(model, data, seed=seed), data)
    usual = loss_by_domain(sartor.FedAvg(rounds=500).fit(model, data, seed=seed), data)
    assert max(found.values()) < np.log(2)  # a guess
    assert found["rare"] < usual["rare"]


@pytest.mark.filterwarnings("ignore:Agnostic ends with a training loss")
@pytest.mark.parametrize(
    ("weights", "counts"),
    [("size", "population"), ("uniform", "population"), ("size", "window")],
)
def test_seats_for_a_rare_domain_leave_the_mean_update_unchanged(weights, counts):
    # Steps so small that the model stays where it is: in the end it has moved by the sum of the
    # updates of all rounds. Clients have sizes and targets of their own; those of rare ones are
    # larger.
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(100), draw.integers(1, 9, 100) * np.where(np.arange(100) < 3, 4, 1))
    y = (0.3 * draw.normal(size=100)[owner] + 1 + (owner < 3)).astype(np.float32)
    domain = np.where(owner < 3, "rare", np.where(owner < 40, "some", "most"))
    data = sartor.data.from_arrays(np.zeros((len(y), 1), np.float32), y, owner, domain=domain)
    step = 1e-5

    def update(cohort, rounds, window):
        algorithm = sartor.Agnostic(
            rounds=rounds, cohort=cohort, batch=100, server_learning_rate=step, server_momentum=0.0,
            domain_step=0.0, weights=weights, counts=counts, window=window, learning_rate=0.05,
        )  # fmt: skip
        return float(algorithm.fit(QUADRATIC, data).params["h"]) / (step * rounds)

    assert update(10, 4000, 40) == pytest.approx(update(100, 400, 4), rel=0.02)


def test_runs_with_a_rare_domain_resume_and_ignore_the_order_of_clients(tmp_path):
    data = rare_domain(0.01, clients=200, each=4)
    algorithm = sartor.Agnostic(rounds=12, learning_rate=0.05)
    whole = algorithm.fit(LOGISTIC, data, seed=3)
    path = tmp_path / "checkpoint"
    sartor.Agnostic(rounds=5, learning_rate=0.05).fit(LOGISTIC, data, seed=3, checkpoint=path)
    resumed = algorithm.fit(LOGISTIC, data, seed=3, checkpoint=path)
    jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)
    turned = data.select(data.ids[::-1])
    other = algorithm.fit(LOGISTIC, turned, seed=3, engine=sartor.Engine(lanes=3))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), other.params, whole.params
    )


def test_mapper_keeps_the_seats_of_a_rare_domain():
    data = rare_domain(0.01, clients=200, each=8)
    central = sartor.Agnostic(rounds=60, learning_rate=0.05).fit(LOGISTIC, data)
    mapper = plain.Mapper(rounds=40, cohort=10, cover=(0.0, 0.5), select="train")
    personal = mapper.fit(central, data)
    # Two clients are rare, and take two of ten seats in every round, where 1% of them are due.
    visits = personal.central.cost.down > 0
    rare = data.metadata["domain"] == "rare"
    per_round = personal.central.cost.down[visits].min()
    assert personal.central.cost.down[rare].tolist() == [40 * per_round] * 2
    assert loss_by_domain(personal, data)["rare"] < np.log(2)


def test_every_client_can_be_a_domain():
    data = domains().split(unseen=0.25, seed=0)
    central = sartor.Agnostic(domains="clients", rounds=5, cohort=3).fit(LOGISTIC, data)
    assert central.history["domain_weights"].shape == (6, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"domain_step": -1.0}, "domain_step must be a number of at least 0"),
        ({"domain_start": "random"}, "domain_start must be one of"),
        ({"counts": "all"}, "counts must be one of"),
        ({"window": 0}, "window must be a whole number"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        sartor.Agnostic(**settings)


def test_missing_domains_are_refused():
    data = domains()
    with pytest.raises(DataError, match="no metadata 'place'"):
        sartor.Agnostic(domains="place").fit(LOGISTIC, data)
    for seed in range(50):
        split = data.split(unseen=0.5, seed=seed)
        if len(set(split.metadata["domain"][split.seen])) == 1:
            break
    with pytest.raises(DataError, match="no seen client has the domain"):
        sartor.Agnostic().fit(LOGISTIC, split)


def test_large_losses_do_not_overflow():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((40, 2)).astype(np.float32)
    y = (300 * draw.standard_normal(40)).astype(np.float32)
    client = np.repeat(np.arange(4), 10)
    data = sartor.data.from_arrays(x, y, client, domain=np.array(["a", "b"])[client % 2])
    model = sartor.models.linear(features=2, scale=False)
    algorithm = sartor.Agnostic(rounds=5, cohort=4, domain_step=1.0, learning_rate=0.001)
    weights = algorithm.fit(model, data).history["domain_weights"]
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)


def test_saved_models_remember_the_weights(tmp_path):
    central = sartor.Agnostic(rounds=5, cohort=3).fit(LOGISTIC, domains())
    central.save(tmp_path / "m")
    loaded = sartor.load(tmp_path / "m")
    np.testing.assert_allclose(
        loaded.history["domain_weights"][-1], central.history["domain_weights"][-1]
    )

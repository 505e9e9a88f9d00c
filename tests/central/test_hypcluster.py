"""HypCluster against FedAvg and Local: its starts, restarts, choices and checkpoints."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import sartor
from sartor.central import fitting
from sartor.engine import losses_by_client, rounds
from sartor.engine.arguments import separate
from sartor.errors import ConfigError

DENSITY = sartor.models.categorical(symbols=50)


def two_tasks(clients=8, size=24, seed=0, validation=0.0):
    """Clients of two kinds, whose labels contradict each other."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((clients, size, 3)).astype(np.float32)
    kind = np.arange(clients) % 2
    y = (x[..., 0] > 0).astype(int) ^ kind[:, None]
    rows = {f"c{k}": {"x": x[k], "y": y[k]} for k in range(clients)}
    data = sartor.data.from_dict(rows)
    return (data.split(validation=validation, seed=0) if validation else data), kind


LOGISTIC = sartor.models.logistic(features=3, classes=2, scale=False)


def test_one_cluster_from_a_random_start_is_fedavg_bit_for_bit():
    data, _ = two_tasks()
    model = sartor.models.mlp(3, (5,), classes=2, scale=False)
    common = {"rounds": 6, "cohort": 3, "learning_rate": 0.1}
    one = sartor.HypCluster(q=1, start="random", **common).fit(model, data, seed=3)
    fedavg = sartor.FedAvg(**common).fit(model, data, seed=3)
    jax.tree.map(np.testing.assert_array_equal, one.params, fedavg.params)
    np.testing.assert_array_equal(one.loss, fedavg.loss)


def test_permuted_clusters_permute_the_result(monkeypatch):
    data, _ = two_tasks()
    algorithm = sartor.HypCluster(q=3, start="random", rounds=5, cohort=4, learning_rate=0.3)
    model = sartor.models.mlp(3, (5,), classes=2, scale=False)
    plain = algorithm.fit(model, data, seed=1)
    order = np.array([2, 0, 1])

    def permuted(self, state, fit):
        return jax.tree.map(lambda a: a[order] if a.ndim else a, state)

    monkeypatch.setattr(sartor.HypCluster, "begin", permuted)
    other = algorithm.fit(model, data, seed=1)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[order], b, atol=1e-6),
        plain.hypotheses, other.hypotheses,
    )  # fmt: skip
    assert (order[other.assign(data)] == plain.assign(data)).all()


def test_as_many_clusters_as_clients_leave_every_client_alone():
    data = sartor.data.synthetic(clients=6, samples=40, layout="shifted", seed=3)
    algorithm = sartor.HypCluster(
        q=6, start="clients", start_epochs=15, rounds=5, cohort=6, batch=100,
        learning_rate=2.0, server_momentum=0.0,
    )  # fmt: skip
    central = algorithm.fit(DENSITY, data, seed=0)
    cluster = central.assign(data)
    assert sorted(cluster) == list(range(6))
    local = sartor.Local(epochs=20, batch=100, learning_rate=2.0).fit(DENSITY, data, seed=0)
    for k, client in enumerate(data.ids):
        mine = central.hypotheses["logits"][cluster[k]]
        np.testing.assert_allclose(mine, local.params(client)["logits"], atol=1e-5)


@pytest.mark.parametrize("start", ["warm", "clients", "kmeans++", "random"])
def test_every_start_trains_and_separates_contradicting_clients(start):
    data, kind = two_tasks(clients=12)
    algorithm = sartor.HypCluster(
        q=2, start=start, rounds=30, cohort=6, learning_rate=0.5, warm_rounds=2, restarts=2
    )
    model = sartor.models.mlp(3, (4,), classes=2, scale=False)
    central = algorithm.fit(model, data, seed=0)
    assert adjusted_rand_score(kind, central.assign(data)) == 1.0
    assert central.history["share"].shape == (30, 4)
    np.testing.assert_allclose(central.history["share"].sum(axis=1), 2, atol=1e-6)
    assert central.history["margin"].shape == (30, 2)


def test_warm_rounds_train_the_hypotheses_in_turn():
    data, _ = two_tasks()
    algorithm = sartor.HypCluster(q=2, rounds=9, warm_rounds=3, cohort=4, learning_rate=0.1)
    share = algorithm.fit(LOGISTIC, data, seed=0).history["share"]
    np.testing.assert_array_equal(share[:6], [[1, 0], [0, 1]] * 3)


def test_an_empty_cluster_keeps_parameters_and_memory():
    data, _ = two_tasks()
    algorithm = sartor.HypCluster(q=2, rounds=3, warm_rounds=1, cohort=4, learning_rate=0.1)
    states = []
    model = sartor.models.mlp(3, (4,), classes=2, scale=False)
    algorithm.fit(model, data, seed=0, on_chunk=lambda c: states.append((c.stop, c.state)))
    (stop, first), second = states[0], states[1][1]
    assert stop == 1  # only hypothesis 0 has moved; in round 2 only hypothesis 1 does
    begin = fitting.first_state(algorithm, fitting.Fit(model, data, 0, sartor.Engine()))
    for leaf in ("hypotheses", "memory"):
        before, after = getattr(begin, leaf), getattr(first, leaf)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b[1]), before, after)
        jax.tree.map(
            lambda a, b: np.testing.assert_array_equal(a[0], b[0]), after, getattr(second, leaf)
        )
    pairs = zip(jax.tree.leaves(begin.hypotheses), jax.tree.leaves(first.hypotheses), strict=True)
    assert any(np.any(a[0] != b[0]) for a, b in pairs)


def test_several_q_are_chosen_by_hold_out():
    data, _ = two_tasks(clients=12, size=60, validation=0.25)
    algorithm = sartor.HypCluster(
        q=(1, 2, 3), start="kmeans++", rounds=40, cohort=12, learning_rate=0.5
    )
    central = algorithm.fit(LOGISTIC, data, seed=0)
    assert central.q == 6
    assert central.clusterings == (1, 2, 3)
    cluster = central.assign(data)
    assert (cluster > 0).all()  # one model for all cannot be right for anybody
    held = losses_by_client(
        LOGISTIC, data, np.arange(12), central.hypotheses, sartor.Engine(),
        part="validation", plain=True,
    )  # fmt: skip
    blocks = [held[:, :1], held[:, 1:3], held[:, 3:]]
    train = losses_by_client(LOGISTIC, data, np.arange(12), central.hypotheses, sartor.Engine())
    firsts = [0, 1, 3]
    of_block = [
        block[np.arange(12), train[:, a : a + block.shape[1]].argmin(axis=1)]
        for a, block in zip(firsts, blocks, strict=True)
    ]
    np.testing.assert_allclose(held[np.arange(12), cluster], np.min(of_block, axis=0))


def test_a_list_of_one_q_is_that_q():
    data, _ = two_tasks()
    one, listed = (
        sartor.HypCluster(q=q, rounds=4, cohort=4, start="random").fit(LOGISTIC, data)
        for q in (2, [2])
    )
    jax.tree.map(np.testing.assert_array_equal, one.hypotheses, listed.hypotheses)
    assert listed.clusterings == (2,)


def test_collapse_is_warned_of():
    data = sartor.data.synthetic(clients=12, samples=40)
    with pytest.warns(UserWarning, match=r"almost no clients \(sizes"):
        sartor.HypCluster(q=3, start="random", rounds=3, cohort=12).fit(DENSITY, data)


def test_no_recompilation_across_cohorts():
    data = sartor.data.synthetic(clients=40, samples=list(range(3, 43)))
    algorithm, engine = sartor.HypCluster(q=2, rounds=30, cohort=7, warm_rounds=2), sartor.Engine()
    algorithm.fit(DENSITY, data, seed=0, engine=engine)
    run = rounds._compiled(separate(algorithm)[0], DENSITY, engine, 1, 30)
    assert run.compiled == 1
    for seed, rate in ((1, 0.03), (0, 0.1)):  # nor for other cohorts, nor for other step sizes
        again = dataclasses.replace(algorithm, learning_rate=rate)
        again.fit(DENSITY, data, seed=seed, engine=engine)
    assert run.compiled == 1


def test_resumed_runs_end_with_the_same_bits(tmp_path):
    data, _ = two_tasks(clients=10)
    make = lambda rounds: sartor.HypCluster(  # noqa: E731
        q=2, start="kmeans++", rounds=rounds, cohort=4, learning_rate=0.2
    )
    whole = make(12).fit(LOGISTIC, data, seed=0)
    make(5).fit(LOGISTIC, data, seed=0, checkpoint=tmp_path / "c.safetensors")
    resumed = make(12).fit(LOGISTIC, data, seed=0, checkpoint=tmp_path / "c.safetensors")
    jax.tree.map(np.testing.assert_array_equal, whole.hypotheses, resumed.hypotheses)
    np.testing.assert_array_equal(whole.history["share"], resumed.history["share"])


@pytest.mark.parametrize("start", ["warm", "clients"])
def test_a_clustering_goes_on_from_where_it_was(start):
    data, _ = two_tasks(clients=10)
    common = {"q": 2, "cohort": 10, "learning_rate": 0.2, "start": start, "warm_rounds": 3}
    first = sartor.HypCluster(rounds=30, **common).fit(LOGISTIC, data, seed=0)
    short = sartor.HypCluster(rounds=8, **common)
    after = short.fit(LOGISTIC, data, seed=1, start=first)
    assert (after.assign(data) == first.assign(data)).all()
    np.testing.assert_allclose(after.history["share"], 0.5, atol=1e-6)
    # It lends no models, which the ledger would have counted: 8 rounds and f, of 1 + 2 models.
    own = data.sizes("train").sum()
    assert after.cost.total()["examples"] == (8 * 3 + 2) * own


def test_start_must_be_of_the_same_class():
    data, _ = two_tasks(clients=10)
    start = sartor.FedAvg(rounds=1).fit(LOGISTIC, data)
    other = sartor.models.mlp(3, (3,), classes=2, scale=False)
    with pytest.raises(ConfigError, match="another class"):
        sartor.FedAvg(rounds=1).fit(other, data, start=start)
    named = dataclasses.replace(data, label_names=("no", "yes"))
    with pytest.raises(sartor.errors.DataError, match="labels"):
        sartor.FedAvg(rounds=1).fit(LOGISTIC, named, start=start)


def test_lanes_and_streaming_do_not_change_the_result():
    data, _ = two_tasks(clients=10)
    algorithm = sartor.HypCluster(q=2, start="clients", rounds=6, cohort=5, learning_rate=0.2)
    results = [
        algorithm.fit(LOGISTIC, data, seed=0, engine=engine).hypotheses
        for engine in (
            sartor.Engine(lanes=1),
            sartor.Engine(lanes=4),
            sartor.Engine(resident=False),
        )
    ]
    for other in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), results[0], other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"q": 0}, "must be a whole number|empty list"),
        ({"q": ()}, "must be a whole number|empty list"),
        ({"q": 2.5}, "must be a whole number|empty list"),
        ({"start": "kmeans"}, "start must be one of"),
        ({"q": 4, "rounds": 40, "warm_rounds": 10}, "a warm start takes 40 rounds"),
        ({"restarts": 0}, "must be a whole number|empty list"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        sartor.HypCluster(**settings)


def test_more_clusters_than_clients_and_missing_hold_outs():
    data, _ = two_tasks(clients=3)
    with pytest.raises(ConfigError, match="only 3 seen clients"):
        sartor.HypCluster(q=4, start="clients").fit(LOGISTIC, data)
    with pytest.raises(ConfigError, match="need a validation part"):
        sartor.HypCluster(q=(1, 2)).fit(LOGISTIC, data)


def test_restarts_of_a_warm_start_differ_and_one_cluster_may_have_them():
    data = sartor.data.synthetic(clients=20, samples=30)
    algorithm = sartor.HypCluster(q=2, rounds=7, warm_rounds=3, cohort=5, restarts=3)
    states = []
    algorithm.fit(DENSITY, data, on_chunk=lambda c: states.append(c.state.hypotheses["logits"]))
    first, second, third = np.asarray(states[-1]).reshape(3, 2, 50)
    for other in (second, third):
        assert not np.allclose(first, other)
        assert not np.allclose(first, other[::-1])
    one = sartor.HypCluster(q=1, rounds=2, cohort=5, restarts=3).fit(DENSITY, data)
    assert one.params["logits"].shape == (50,)

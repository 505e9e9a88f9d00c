"""Mapper's joint rounds against those of other algorithms, and its local models along them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
from mapper_cases import LOGISTIC, MODEL, clients
from plain import Mapper

import sartor
from sartor.central.checkpoint import Checkpoint
from sartor.errors import ConfigError
from sartor.personal.fitting import Work
from sartor.randomness import mix


@pytest.fixture(scope="module")
def data():
    return clients().split(unseen=0.2, validation=0.25, test=0.2, seed=1)


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=3, cohort=3).fit(MODEL, data, seed=0)


def test_a_joint_round_with_lambda_one_leaves_the_central_model(data, central):
    personal = Mapper(cover=(1.0,), rounds=4, cohort=3).fit(central, data, seed=0)
    jax.tree.map(np.testing.assert_array_equal, personal.central.hypotheses, central.hypotheses)
    moved = Mapper(cover=(0.5,), rounds=4, cohort=3).fit(central, data, seed=0)
    assert any(
        np.any(a != b)
        for a, b in zip(
            jax.tree.leaves(moved.central.hypotheses),
            jax.tree.leaves(central.hypotheses),
            strict=True,
        )
    )
    jax.tree.map(np.testing.assert_array_equal, moved.baseline.hypotheses, central.hypotheses)


def test_a_joint_round_with_lambda_zero_is_a_round_of_fedavg(data):
    common = {"rounds": 5, "cohort": 3}
    fedavg = sartor.FedAvg(learning_rate=0.05, server_momentum=0.0, **common)
    fedavg = fedavg.fit(MODEL, data, seed=4)
    algorithm = Mapper(cover=(0.0,), central_learning_rate=0.05, **common)
    joint = algorithm.fit(MODEL, data, seed=4).central
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        joint.hypotheses, fedavg.hypotheses,
    )  # fmt: skip


@pytest.mark.parametrize("stop", ["in the joint rounds", "after them"])
def test_joint_rounds_that_were_stopped_are_resumed(data, central, tmp_path, monkeypatch, stop):
    mapper = Mapper(cover=(0.0, 0.5), rounds=4, cohort=3, keep_local=True)
    whole = mapper.fit(central, data, seed=0)
    saved = []

    def save(self, round_, *rest):
        if stop == "in the joint rounds" and round_ > 1:
            raise SystemExit
        saved.append(round_)
        return usual(self, round_, *rest)

    def nothing(self):
        raise SystemExit

    usual = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", save)
    decide = Work.decide
    monkeypatch.setattr(Work, "decide", nothing)
    with pytest.raises(SystemExit):
        mapper.fit(central, data, seed=0, directory=tmp_path / "models")
    done, stop = max(saved), ""
    monkeypatch.setattr(Work, "decide", decide)
    saved.clear()
    resumed = mapper.fit(central, data, seed=0, directory=tmp_path / "models")
    assert min(saved, default=5) > done  # no round runs twice
    for client in data.ids:
        one, other = (models.params(client) for models in (whole, resumed))
        jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.filterwarnings("ignore:HypCluster")
def test_clusters_and_domains_go_on_by_their_own_rule(data):
    domain = np.array(["a", "b"] * 3)
    with_domains = sartor.ClientData(
        data.columns, data.rows, data.bounds, data.ids, data.seen, {"domain": domain}
    )
    common = {"rounds": 3, "cohort": 6, "learning_rate": 0.2}
    for algorithm in (
        sartor.KMeansClusters(q=2, features=("domain",), **common),
        sartor.Agnostic(domain_step=0.5, **common),
    ):
        central = algorithm.fit(LOGISTIC, with_domains, seed=0)
        mapper = Mapper(rounds=3, cohort=6, cover=(0.0,), central_learning_rate=0.2)
        personal = mapper.fit(central, with_domains, seed=5)
        assert personal.central.q == central.q
        assert personal.cluster == dict(
            zip(data.ids, central.assign(with_domains).tolist(), strict=True)
        )
        # With λ = 0 they are rounds of the algorithm itself; of Agnostic nearly so, as clients tell
        # the loss along their training and not the one before it.
        seed = int(mix(5, "joint"))
        alone = algorithm.fit(LOGISTIC, with_domains, seed=seed, start=central)
        tolerance = 1e-5 if algorithm.__class__ is sartor.KMeansClusters else 5e-3
        jax.tree.map(
            lambda a, b, t=tolerance: np.testing.assert_allclose(a, b, atol=t),
            personal.central.hypotheses, alone.hypotheses,
        )  # fmt: skip
    assert personal.central.history["domain_weights"].shape == (4, 2)
    first, last = personal.central.history["domain_weights"][[0, -1]]
    np.testing.assert_allclose(first, central.history["domain_weights"][-1], atol=1e-6)
    assert np.abs(last - first).max() > 1e-3


def test_from_nothing_it_is_the_pseudo_code(data):
    """One client a round, one step along the gradient of its mixture: no momentum anywhere."""
    one = data.select(["c2"])
    common = {"cover": (0.0,), "cohort": 1, "central_epochs": 0, "central_learning_rate": 0.3}
    three = Mapper(rounds=3, **common).fit(MODEL, one, seed=0).central.params
    params = sartor.FedAvg(rounds=1, learning_rate=1e-30).fit(MODEL, one, seed=0).params
    own = one.client("c2")
    x, y = own["x"], jnp.asarray(own["y"])
    for _ in range(3):
        gradient = jax.grad(lambda p: MODEL.loss(p, x, y).mean())(params)
        params = jax.tree.map(lambda p, g: p - 0.3 * g, params, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), three, params)


def test_joint_rounds_and_trials_are_not_done_again(data, central, tmp_path, monkeypatch):
    from sartor.personal import choosing
    from sartor.personal.mapper import Joint

    algorithm = Mapper(rounds=2, cohort=3, cover=(0.0, 0.5))
    algorithm.fit(central, data, directory=tmp_path / "m")
    noted = []
    monkeypatch.setattr(choosing.TrialLosses, "note", lambda self, block: noted.append(block))
    monkeypatch.setattr(Joint, "clients", None)
    algorithm.fit(central, data, directory=tmp_path / "m")
    assert not noted
    # Trials of other work are not these.
    losses = choosing.TrialLosses(tmp_path / "m" / choosing.TRIALS, "another", 3)
    assert not losses.done.any()


def test_kept_local_models_go_on_where_they_were(data, central):
    """λ = 1 alone: h_c stays, and every visit is one more stretch of training for the client."""
    common = {"cover": (1.0,), "cohort": 10, "epochs": 1, "batch": 1000, "learning_rate": 0.1}
    kept = Mapper(rounds=3, keep_local=True, select="train", **common).fit(central, data, seed=0)
    anew = Mapper(rounds=3, select="train", **common).fit(central, data, seed=0)
    alone = {
        epochs: plain.Finetune(epochs=epochs, batch=1000, learning_rate=0.1).fit(central, data)
        for epochs in (1, 4)
    }
    x = data.columns["x"][:10]
    for k, client in enumerate(data.ids):
        visits = 3 if data.seen[k] else 0  # and the final rerun
        for personal, epochs in ((kept, visits + 1), (anew, 1)):
            np.testing.assert_allclose(
                personal.predict_proba(client, x),
                alone[epochs].predict_proba(client, x),
                atol=1e-5,
            )
    little = sartor.Engine(memory=4000, lanes=1)  # room for the states of one round
    again = Mapper(rounds=3, keep_local=True, select="train", **common)
    again = again.fit(central, data, seed=0, engine=little)
    for client in data.ids:
        found, wanted = (m.predict_proba(client, x) for m in (again, kept))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_joint_rounds_choose_lambda_zero_where_it_is_best():
    """Labels are noise, so that a local model can only be worse than the central one."""
    draw = np.random.default_rng(0)
    rows = {
        f"c{k}": {
            "x": draw.standard_normal((30, 4)).astype(np.float32),
            "y": draw.integers(0, 3, 30),
        }
        for k in range(6)
    }
    noise = sartor.data.from_dict(rows).split(validation=0.4, seed=0)
    central = sartor.FedAvg(rounds=20, cohort=6, learning_rate=0.02).fit(MODEL, noise)
    algorithm = Mapper(cover=(0.0, 1.0), rounds=3, cohort=6, epochs=30, learning_rate=0.3)
    personal = algorithm.fit(central, noise)
    assert set(personal.lambda_.values()) == {0.0}
    np.testing.assert_array_equal(personal.central.history["lambda"], 0)


def test_streamed_joint_rounds_with_folds():
    data = clients(sizes=(10,) * 8)
    central = sartor.FedAvg(rounds=2, cohort=2).fit(LOGISTIC, data)
    algorithm = Mapper(select="kfold", cover=(0.0, 0.5, 1.0), folds=2, rounds=2, cohort=2)
    results = [
        algorithm.fit(central, data, seed=1, engine=sartor.Engine(resident=resident, lanes=3))
        for resident in (True, False)
    ]
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, atol=1e-6),
        *(personal.central.hypotheses for personal in results),
    )


def test_kept_models_are_not_tried_on_what_they_have_seen(data, central):
    unsplit = clients()
    with pytest.raises(ConfigError, match="chosen by hold-out"):
        Mapper(keep_local=True).fit(central, unsplit)
    narrow = sartor.models.logistic(features=2, classes=3, scale=False)
    with pytest.raises(sartor.errors.DataError, match="takes"):
        Mapper(local=narrow).fit(central, data)


def test_clients_of_one_example_take_the_smallest_lambda():
    """Nobody can hold anything out, so that λ cannot be chosen."""
    data = clients(sizes=(1,) * 12)
    central = sartor.FedAvg(rounds=2, cohort=4).fit(LOGISTIC, data)
    algorithm = Mapper(cover=(0.2, 0.5), rounds=3, cohort=4)
    with pytest.warns(UserWarning, match=r"no (seen )?client has enough data") as warned:
        personal = algorithm.fit(central, data)
    assert len(warned) == 2  # the joint rounds and the end
    assert "the smallest λ of the cover, 0.2" in str(warned[0].message)
    assert set(personal.lambda_.values()) == {0.2}
    given = dataclasses.replace(algorithm, cover=(0.2,)).fit(central, data)
    jax.tree.map(np.testing.assert_array_equal, personal.central.params, given.central.params)


@pytest.mark.parametrize("guard", [False, True])
def test_some_clients_of_one_example_follow_the_others(guard):
    data = clients(sizes=(1, 9, 1, 12, 1, 1))
    central = sartor.FedAvg(rounds=2, cohort=4).fit(LOGISTIC, data)
    algorithm = Mapper(cover=(0.0, 1.0), rounds=4, cohort=3, select="kfold", guard=guard)
    with pytest.warns(UserWarning, match="4 of 6 clients have too little data"):
        personal = algorithm.fit(central, data)
    how = {client: decided["how"] for client, decided in personal.clients.items()}
    assert [how[f"c{k}"] for k in range(6)] == ["prior", "kfold", "prior", "kfold"] + 2 * ["prior"]
    assert np.isfinite(personal.predict_proba("c0", data.columns["x"])).all()
    if guard:
        assert all(personal.clients[f"c{k}"]["kept"] for k in (0, 2, 4, 5))

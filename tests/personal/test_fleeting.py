"""Models that are only evaluated, and central models that are asked once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import sartor
from sartor.errors import ConfigError
from sartor.personal.joint import Joint, with_clusters
from sartor.personal.objectives import Mixture

MODEL = sartor.models.mlp(4, (6,), classes=3)
ALGORITHMS = {
    "Local": sartor.Local(epochs=2),
    "Finetune": sartor.Finetune(epochs=2, guard=True),
    "Dapper": sartor.Dapper(cover=(0.0, 0.5, 1.0), r=2),
    "Mapper": sartor.Mapper(cover=(0.0, 0.5, 1.0), rounds=2, cohort=3),
    "Mapper, guarded": sartor.Mapper(cover=(0.0, 0.5), rounds=2, cohort=3, guard=True),
}


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    sizes = (23, 6, 60, 8, 40, 17)
    client = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    x = draw.standard_normal((len(client), 4)).astype(np.float32)
    y = draw.integers(0, 3, len(client))
    whole = sartor.data.from_arrays(x, y, client)
    return whole.split(unseen=0.2, validation=0.25, test=0.2, seed=1)


@pytest.fixture(scope="module")
def central(data):
    return sartor.HypCluster(rounds=6, cohort=3, q=2, warm_rounds=2).fit(MODEL, data, seed=0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_models_that_are_not_kept_score_as_those_that_are(name, data, central):
    engine = sartor.Engine(lanes=4)
    kept, fleeting = (
        ALGORITHMS[name].fit(central, data, seed=2, engine=engine, keep=keep)
        for keep in (True, False)
    )
    a, b = kept.evaluate(data), fleeting.evaluate(data)
    np.testing.assert_array_equal(a.example_loss, b.example_loss)
    assert a.extra.keys() == b.extra.keys()
    for column in a.extra:
        np.testing.assert_array_equal(a.extra[column], b.extra[column])
    assert kept.clients == fleeting.clients
    assert kept.cost.total() == fleeting.cost.total()
    assert len(fleeting) == len(data)


def test_they_score_in_any_selection_and_again(data, central):
    models = sartor.Finetune(epochs=1).fit(central, data, keep=False)
    some = data.select(["c4", "c1"])
    first, again = models.evaluate(some, mixture=0), models.evaluate(some, mixture=0)
    np.testing.assert_array_equal(first.example_loss, again.example_loss)
    assert first.client == ("c4", "c1")


def test_what_was_not_kept_cannot_be_had(data, central, tmp_path):
    models = sartor.Finetune(epochs=1).fit(central, data, keep=False)
    with pytest.raises(ConfigError, match="keep=True"):
        models.params("c1")
    with pytest.raises(ConfigError, match="keep=True"):
        models.save(tmp_path / "models")
    with pytest.raises(ConfigError, match="leave out directory"):
        sartor.Finetune().fit(central, data, keep=False, directory=tmp_path / "models")
    with pytest.raises(ConfigError, match="leave out directory"):
        sartor.Dapper().fit(central, data, keep=False, directory=tmp_path / "models")


@dataclasses.dataclass(frozen=True)
class Unasked(Mixture):
    """The same mixture, whose central model is asked in every step."""

    def asks(self, central, readers):
        return False


@dataclasses.dataclass(frozen=True)
class UnaskedMapper(sartor.Mapper):
    """The same algorithm with that mixture; another class, so another compiled program."""

    def objective(self, model):
        return Unasked(model, model)


@pytest.mark.parametrize("q", [1, 2])
def test_a_central_model_that_is_asked_once_says_the_same(q, data, central):
    """In joint rounds and in trials, with as many examples as jobs have room for and fewer."""
    start = dataclasses.replace(
        central, hypotheses=jax.tree.map(lambda a: a[:q], central.hypotheses), blocks=(q,)
    )
    settings = {"cover": (0.0, 0.2, 0.5, 1.0), "rounds": 3, "cohort": 4, "folds": 2}
    once, apart = (
        kind(**settings).fit(start, data, seed=1, engine=sartor.Engine(lanes=3))
        for kind in (sartor.Mapper, UnaskedMapper)
    )
    assert once.lambda_ == apart.lambda_
    for client in data.ids:
        a, b = once.params(client), apart.params(client)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), a, b)
    for a, b in zip(*(jax.tree.leaves(m.central.hypotheses) for m in (once, apart)), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_asking_is_for_those_who_read_examples_often(central):
    mixture = Mixture(MODEL, MODEL)
    assert mixture.asks(central.hypotheses, 3)
    assert not mixture.asks(central.hypotheses, 2)
    assert not Mixture(MODEL, MODEL, joint=False).asks(central.hypotheses, 3)


def test_joint_rounds_do_not_depend_on_lanes(data, central):
    mapper = sartor.Mapper(cover=(0.0, 0.5, 1.0), rounds=2, cohort=4)
    clustered = with_clusters(data, central.assign(data))
    trained = [
        Joint.after(central, mapper).fit(
            MODEL, clustered, seed=1, start=central, engine=sartor.Engine(lanes=lanes)
        )
        for lanes in (1, 5)
    ]
    for a, b in zip(*(jax.tree.leaves(m.hypotheses) for m in trained), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("select", ["holdout", "train"])
def test_what_trials_have_trained_is_as_good_as_training_it_again(select, data, central):
    mapper = sartor.Mapper(cover=(0.0, 0.5, 1.0), rounds=3, cohort=4, select=select)
    clustered = with_clusters(data, central.assign(data))
    passes, trained = [], []
    for remember in (True, False):
        joint = Joint.after(central, mapper, remember)
        passes.append(set(joint.passes(clustered, 1)))
        trained.append(joint.fit(MODEL, clustered, seed=1, start=central))
    assert passes == [{"trial", "train"}, {"trial", "train", "personalize"}]
    for a, b in zip(*(jax.tree.leaves(m.hypotheses) for m in trained), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    assert trained[0].cost.total() == trained[1].cost.total()


def test_what_folds_have_trained_is_trained_again_on_everything(data, central):
    """Clients without a validation part, and those who choose by folds, train on more then."""
    some = data.split(seed=0)
    bounds = some.bounds.copy()
    bounds[2, 1] = bounds[2, 2]
    assert data.seen[2]
    lacking = dataclasses.replace(data, bounds=bounds)
    for select, where in (("kfold", data), ("holdout", lacking)):
        mapper = sartor.Mapper(cover=(0.0, 1.0), rounds=2, cohort=4, select=select, folds=2)
        assert "personalize" in Joint.after(central, mapper).passes(where, 1)


def test_little_memory_changes_how_but_not_what(data, central):
    """Room for a step, but not for all candidates of a cohort."""
    mapper = sartor.Mapper(cover=(0.0, 0.5, 1.0), rounds=3, cohort=4)
    fits = [
        mapper.fit(central, data, engine=sartor.Engine(lanes=2, memory=memory))
        for memory in (2**30, 2**14)
    ]
    assert fits[0].lambda_ == fits[1].lambda_
    for a, b in zip(*(jax.tree.leaves(m.central.hypotheses) for m in fits), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)

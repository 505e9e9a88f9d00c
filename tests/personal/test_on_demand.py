"""Models that are only evaluated, and central models that are asked once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import plain
import pytest

import sartor
from sartor.central import fitting
from sartor.engine import Own, programs
from sartor.engine.objectives import asking
from sartor.engine.planning import rehearse
from sartor.engine.programs import it_pays
from sartor.errors import ConfigError
from sartor.personal.mapper import CLUSTER, Joint
from sartor.personal.mixture import Mixture
from sartor.personal.task import Task

MODEL = sartor.models.logistic(4, 3, scale=False)
ROOMY, NARROW = (sartor.Engine(lanes=1, memory=memory) for memory in (2**30, 2**12))
"""One client at a time; with room for a step, but not for all candidates of a cohort, if narrow."""

ALGORITHMS = {
    "Local": plain.Local(epochs=2),
    "Finetune": plain.Finetune(epochs=2, guard=True),
    "Dapper": plain.Dapper(cover=(0.0, 0.5, 1.0), r=2),
    "Mapper": plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=2, cohort=3),
    "Mapper, guarded": plain.Mapper(cover=(0.0, 0.5), rounds=2, cohort=3, guard=True),
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
    kept, on_demand = (
        ALGORITHMS[name].fit(central, data, seed=2, engine=engine, keep=keep)
        for keep in (True, False)
    )
    a, b = kept.evaluate(data), on_demand.evaluate(data)
    np.testing.assert_array_equal(a.example_loss, b.example_loss)
    assert a.extra.keys() == b.extra.keys()
    for column in a.extra:
        np.testing.assert_array_equal(a.extra[column], b.extra[column])
    assert kept.clients == on_demand.clients
    assert kept.cost.total() == on_demand.cost.total()
    assert len(on_demand) == len(data)


def test_they_score_in_any_selection_and_again(data, central):
    models = plain.Finetune(epochs=1).fit(central, data, keep=False)
    some = data.select(["c4", "c1"])
    first, again = models.evaluate(some, mixture=0), models.evaluate(some, mixture=0)
    np.testing.assert_array_equal(first.example_loss, again.example_loss)
    assert first.client == ("c4", "c1")


def test_what_was_not_kept_cannot_be_had(data, central, tmp_path):
    models = plain.Finetune(epochs=1).fit(central, data, keep=False)
    with pytest.raises(ConfigError, match="keep=True"):
        models.params("c1")
    with pytest.raises(ConfigError, match="keep=True"):
        models.save(tmp_path / "models")
    with pytest.raises(ConfigError, match="leave out directory"):
        plain.Finetune().fit(central, data, keep=False, directory=tmp_path / "models")
    with pytest.raises(ConfigError, match="leave out directory"):
        plain.Dapper().fit(central, data, keep=False, directory=tmp_path / "models")


def test_models_from_statistics_are_made_on_demand_and_once(tmp_path):
    draw = np.random.default_rng(0)
    rows = {f"c{k}": {"x": draw.normal(size=(20, 2)), "y": draw.normal(size=20)} for k in range(5)}
    data = sartor.data.from_dict(rows).split(validation=0.2, test=0.2, seed=0)
    central = sartor.FedAvg(rounds=2, cohort=3).fit(sartor.models.linear(2, scale=False), data)
    algorithm, engine = plain.Dapper(source="statistics", cover=(0.0, 0.5)), sartor.Engine(lanes=2)
    on_demand = algorithm.fit(central, data, engine=engine, keep=False)
    for _ in range(2):
        kept = algorithm.fit(central, data, engine=engine, directory=tmp_path)
        a, b = kept.evaluate(data), on_demand.evaluate(data)
        np.testing.assert_array_equal(a.example_loss, b.example_loss)
        assert [len(shard.ids) for shard in kept.store.shards] == [5]


@pytest.mark.parametrize("q", [1, 2])
def test_a_central_model_that_is_asked_once_says_the_same(q, data, central, monkeypatch):
    """In joint rounds and in trials, with as many examples as jobs have room for and fewer."""
    start = dataclasses.replace(
        central, hypotheses=jax.tree.map(lambda a: a[:q], central.hypotheses), clusterings=(q,)
    )
    mapper = plain.Mapper(cover=(0.0, 0.2, 0.5, 1.0), rounds=3, cohort=4, folds=2)
    once = mapper.fit(start, data, seed=1, engine=sartor.Engine(lanes=3))
    monkeypatch.setattr(programs, "it_pays", lambda *args: False)
    # Another engine, so that other programs are compiled.
    apart = mapper.fit(start, data, seed=1, engine=sartor.Engine(lanes=3, memory=2**33 + q))
    assert once.lambda_ == apart.lambda_
    for client in data.ids:
        a, b = once.params(client), apart.params(client)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), a, b)
    for a, b in zip(*(jax.tree.leaves(m.central.hypotheses) for m in (once, apart)), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_asking_is_for_those_who_read_examples_often(data, central):
    ask = asking(Mixture(MODEL, MODEL), central.hypotheses)
    assert it_pays(ask, data.columns, 3)
    assert not it_pays(ask, data.columns, 2)
    assert not it_pays(ask._replace(once=True), data.columns, 3)
    assert asking(Own(MODEL), central.hypotheses) is None


def joint_rounds(mapper, data, central, engine=None, seed=1):
    """The rounds of a Mapper, the data they run on, and what a round of them consists of."""
    engine, cluster = engine or sartor.Engine(), central.assign(data)
    joint = Joint.after(mapper, Task(MODEL, central, cluster, data, seed, engine), seed)
    data = dataclasses.replace(data, metadata={**data.metadata, CLUSTER: cluster})
    what = fitting.Fit(MODEL, data, seed, engine, central)
    state = joint.begin(fitting.first_state(joint, what), what)
    clients = min(mapper.cohort, int(data.seen.sum()))
    found = rehearse(joint, MODEL, data, state, engine, clients, joint.attributes(data))
    return joint, data, found


def test_joint_rounds_do_not_depend_on_lanes(data, central):
    mapper = plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=3, cohort=4)
    joint, clustered, _ = joint_rounds(mapper, data, central)
    trained = [
        joint.fit(MODEL, clustered, seed=1, start=central, engine=engine)
        for engine in (ROOMY, sartor.Engine(lanes=5))
    ]
    for a, b in zip(*(jax.tree.leaves(m.hypotheses) for m in trained), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("select", ["holdout", "train"])
def test_what_trials_have_trained_is_as_good_as_training_it_again(select, data, central):
    mapper = plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=3, cohort=4, select=select)
    jobs, counted, trained = [], [], []
    for engine in ROOMY, NARROW:
        joint, clustered, found = joint_rounds(mapper, data, central, engine)
        jobs.append([one.jobs for one in found.passes])
        counted.append([one.counted for one in found.passes])
        trained.append(joint.fit(MODEL, clustered, seed=1, start=central, engine=engine))
    assert jobs == [[3, 1], [3, 1, 1]]  # trials, what is trained again, and the central model
    assert counted[1] == [True, False, True]
    for a, b in zip(*(jax.tree.leaves(m.hypotheses) for m in trained), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    assert trained[0].cost.total() == trained[1].cost.total()


def test_what_folds_have_trained_is_trained_again_on_everything(data, central):
    """Clients without a validation part, and those who choose by folds, train on more then."""
    bounds = data.bounds.copy()
    bounds[2, 1] = bounds[2, 2]
    assert data.seen[2]
    lacking = dataclasses.replace(data, bounds=bounds)
    for select, where in (("kfold", data), ("holdout", lacking)):
        mapper = plain.Mapper(cover=(0.0, 1.0), rounds=2, cohort=4, select=select, folds=2)
        _, _, found = joint_rounds(mapper, where, central)
        assert [one.counted for one in found.passes] == [True] * 3


def test_little_memory_changes_how_but_not_what(data, central):
    mapper = plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=3, cohort=4)
    fits = [mapper.fit(central, data, engine=engine) for engine in (ROOMY, NARROW)]
    assert fits[0].lambda_ == fits[1].lambda_
    for a, b in zip(*(jax.tree.leaves(m.central.hypotheses) for m in fits), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)

"""Every central algorithm with every personal one, on clients as uneven as they come."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sartor

MODEL = sartor.models.logistic(features=3, classes=4, scale=False)

CENTRAL = {
    "FedAvg": sartor.FedAvg(rounds=3, cohort=4),
    "Agnostic": sartor.Agnostic(rounds=3, cohort=4),
    "HypCluster": sartor.HypCluster(rounds=4, cohort=4, q=2, warm_rounds=1),
    "KMeansClusters": sartor.KMeansClusters(rounds=3, cohort=4, q=2),
    "BregmanClusters": sartor.BregmanClusters(rounds=3, cohort=4, q=2),
}
PERSONAL = {
    "Local": plain.Local(epochs=2),
    "Finetune": plain.Finetune(epochs=2),
    "Dapper": plain.Dapper(cover=(0.0, 0.5, 1.0), r=2),
    "Dapper, guarded": plain.Dapper(cover=(0.5,), r=2, step="weight", guard=True),
    "Mapper": plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=2, cohort=4),
    "Mapper, apart": plain.Mapper(cover=(0.0, 0.5, 1.0), joint=False),
}


def clients(sizes, seed=0, classes=4):
    """Clients that lack labels, one of a single class, and two domains."""
    draw = np.random.default_rng(seed)
    client = np.repeat(np.arange(len(sizes)), sizes)
    x = draw.standard_normal((len(client), 3)).astype(np.float32)
    y = (client + draw.integers(0, 2, len(client))) % classes  # two of the four classes
    y[client == 0] = 1
    domain = np.where(client % 2 == 0, "a", "b")
    return sartor.data.from_arrays(x, y, client.astype(str), domain=domain)


DATA = clients((12, 30, 9, 21, 40, 16, 25, 14)).split(unseen=0.25, validation=0.2, test=0.2, seed=3)


@functools.cache
def trained(name):
    return CENTRAL[name].fit(MODEL, DATA, seed=0)


# The paper's three by three, and one of each of the others.
PAIRS = [
    *itertools.product(("FedAvg", "Agnostic", "HypCluster"), ("Finetune", "Dapper", "Mapper")),
    ("FedAvg", "Local"),
    ("HypCluster", "Dapper, guarded"),
    ("FedAvg", "Mapper, apart"),
    ("KMeansClusters", "Mapper"),
    ("BregmanClusters", "Finetune"),
]


@pytest.mark.parametrize(("row", "name"), PAIRS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_trains_saves_loads_and_predicts(row, name, tmp_path):
    central = trained(row)
    personal = PERSONAL[name].fit(central, DATA, seed=0, directory=tmp_path / "work")
    personal.save(tmp_path / "models")
    loaded = sartor.load(tmp_path / "models")
    x = DATA.columns["x"][:6]
    for client in DATA.ids:
        before, after = (p.predict_proba(client, x) for p in (personal, loaded))
        np.testing.assert_allclose(before, after, atol=1e-6)
        np.testing.assert_allclose(after.sum(axis=1), 1, atol=1e-5)
    assert loaded.cluster == personal.cluster
    assert loaded.lambda_ == personal.lambda_
    scores = personal.evaluate(DATA)
    again = loaded.evaluate(DATA)
    np.testing.assert_allclose(scores.loss, again.loss, rtol=1e-5)
    np.testing.assert_allclose(scores.baseline.loss, again.baseline.loss, rtol=1e-5)
    # Work that is there already is not done again.
    resumed = PERSONAL[name].fit(central, DATA, seed=0, directory=tmp_path / "work")
    np.testing.assert_array_equal(
        resumed.predict_proba(DATA.ids[1], x), personal.predict_proba(DATA.ids[1], x)
    )


def check_uneven(sizes, central, personal):
    data = clients(sizes, seed=len(sizes))
    models = PERSONAL[personal].fit(CENTRAL[central].fit(MODEL, data, seed=0), data, seed=0)
    assert len(models) == len(sizes)
    for client in data.ids:
        p = models.predict_proba(client, data.columns["x"][:4])
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("central", "personal"),
    [("FedAvg", "Finetune"), ("Agnostic", "Dapper"), ("HypCluster", "Mapper")],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_clients_with_one_example_and_with_hundreds(central, personal):
    check_uneven((1, 500, 2, 37, 1), central, personal)


@pytest.mark.soak
@settings(max_examples=20)
@given(
    sizes=st.lists(st.integers(1, 500), min_size=3, max_size=7),
    central=st.sampled_from(["FedAvg", "Agnostic", "HypCluster"]),
    personal=st.sampled_from(["Finetune", "Dapper", "Mapper"]),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_uneven_clients_of_any_size(sizes, central, personal):
    """Every example is several programs to compile."""
    check_uneven(sizes, central, personal)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_unknown_clients_get_the_hypothesis_of_most():
    central = trained("HypCluster")
    personal = PERSONAL["Finetune"].fit(central, DATA, seed=0)
    usual = np.bincount(list(personal.cluster.values())).argmax()
    x = DATA.columns["x"][:4]
    np.testing.assert_allclose(
        personal.predict_proba("a stranger", x), central.predict_proba(x, cluster=usual), atol=1e-6
    )

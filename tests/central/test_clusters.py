"""k-means and Bregman clustering against scikit-learn, and where they part from HypCluster."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import sartor
from sartor.central.bregman import Points, hard_clustering
from sartor.errors import ConfigError, DataError

LOGISTIC = sartor.models.logistic(features=2, classes=2, scale=False)


def test_squared_distances_give_the_clusters_of_scikit_learn():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((60, 3)) + 6 * draw.integers(0, 3, (60, 1))
    centres = hard_clustering(Points(x, np.zeros((60, 0))), q=3, restarts=10, word=1)
    ours = Points(x, np.zeros((60, 0))).divergence(centres)
    theirs = KMeans(3, n_init=10, random_state=0).fit(x)
    assert adjusted_rand_score(theirs.labels_, ours.argmin(axis=1)) == 1.0
    assert ours.min(axis=1).sum() == pytest.approx(theirs.inertia_)


def test_kl_centres_are_means_and_no_point_has_a_nearer_one():
    draw = np.random.default_rng(1)
    p = draw.dirichlet(np.ones(5) * 0.5, 40)
    points = Points(np.zeros((40, 0)), p)
    centres = hard_clustering(points, q=4, restarts=5, word=0)
    cluster = points.divergence(centres).argmin(axis=1)
    for i in range(4):
        np.testing.assert_allclose(centres.simplex[i], p[cluster == i].mean(axis=0))


def places(clients=12, seed=0):
    """Two kinds of task; a meta-feature that tells them apart, and one that does not."""
    draw = np.random.default_rng(seed)
    kind = np.arange(clients) % 2
    x = draw.standard_normal((clients, 30, 2)).astype(np.float32)
    y = (x[..., 0] > 0).astype(int) ^ kind[:, None]
    metadata = {"city": np.array(["Oslo", "Rome"])[kind], "age": draw.integers(20, 60, clients)}
    rows = {f"c{k}": {"x": x[k], "y": y[k]} for k in range(clients)}
    return sartor.data.from_dict(rows, metadata=metadata), kind


def test_k_means_depends_on_the_meta_feature(tmp_path):
    data, kind = places()
    settings = {"q": 2, "rounds": 30, "cohort": 12, "learning_rate": 0.5}
    good = sartor.KMeansClusters(features=("city",), **settings).fit(LOGISTIC, data)
    assert adjusted_rand_score(kind, good.assign(data)) == 1.0
    blind = sartor.KMeansClusters(features=("age",), **settings).fit(LOGISTIC, data)
    assert adjusted_rand_score(kind, blind.assign(data)) < 0.5
    # Saved and loaded, new clients still find their cluster.
    good.save(tmp_path / "m")
    loaded = sartor.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.assign(data), good.assign(data))


def test_every_cluster_is_a_fedavg_of_its_own():
    data, _ = places()
    settings = {"rounds": 4, "cohort": 12, "batch": 100, "learning_rate": 0.3}
    central = sartor.KMeansClusters(features=("city",), q=2, **settings).fit(LOGISTIC, data, seed=1)
    for i in range(2):
        mine = data.select(central.assign(data) == i)
        alone = sartor.FedAvg(**settings).fit(LOGISTIC, mine, seed=1)
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b, atol=1e-6),
            central.hypotheses, alone.params,
        )  # fmt: skip


def test_bregman_clusters_of_label_distributions(tmp_path):
    data = sartor.data.synthetic(samples=200, layout="shifted", seed=1).split(unseen=0.2, seed=0)
    model = sartor.models.categorical(symbols=50)
    central = sartor.BregmanClusters(q=4, rounds=5, cohort=20).fit(model, data)
    assert adjusted_rand_score(data.metadata["cluster"], central.assign(data)) == 1.0
    central.save(tmp_path / "m")
    np.testing.assert_array_equal(sartor.load(tmp_path / "m").assign(data), central.assign(data))


def test_bregman_splits_on_the_background_and_hypcluster_on_the_task():
    draw = np.random.default_rng(0)
    task, background = np.arange(16) % 2, np.arange(16) // 2 % 2
    x = draw.standard_normal((16, 40, 2)).astype(np.float32)
    y = (x[..., 0] > 0).astype(int) ^ task[:, None]
    x[..., 1] += 8 * background[:, None]
    data = sartor.data.from_dict({f"c{k:02}": {"x": x[k], "y": y[k]} for k in range(16)})
    settings = {"q": 2, "rounds": 60, "cohort": 16, "learning_rate": 0.2}
    with pytest.warns(UserWarning, match="worse than a guess"):  # its clusters mix two tasks
        bregman = sartor.BregmanClusters(**settings).fit(LOGISTIC, data)
    hypcluster = sartor.HypCluster(start="kmeans++", **settings).fit(LOGISTIC, data)
    assert adjusted_rand_score(background, bregman.assign(data)) == 1.0
    assert adjusted_rand_score(task, hypcluster.assign(data)) == 1.0


def test_bad_input():
    data, _ = places(clients=3)
    with pytest.raises(ConfigError, match="only 3 seen clients"):
        sartor.BregmanClusters(q=4).fit(LOGISTIC, data)
    with pytest.raises(DataError, match="no metadata 'country'"):
        sartor.KMeansClusters(features=("country",)).fit(LOGISTIC, data)
    with pytest.raises(ConfigError, match="q must be a whole number"):
        sartor.KMeansClusters(q=0)


def test_labels_that_come_later_and_missing_metadata():
    data = sartor.data.synthetic(clients=8, samples=30, symbols=10)
    model = sartor.models.categorical(symbols=20)
    central = sartor.BregmanClusters(q=2, rounds=2).fit(model, data)
    later = sartor.data.synthetic(clients=8, samples=30, symbols=20)
    assert central.assign(later).shape == (8,)
    city, _ = places(clients=4)
    missing = sartor.ClientData(
        city.columns, city.rows, city.bounds, city.ids, city.seen,
        {"age": np.array([20.0, np.nan, 30.0, 40.0])},
    )  # fmt: skip
    with pytest.raises(DataError, match="client 'c1' has nan as its metadata 'age'"):
        sartor.KMeansClusters(q=2).fit(LOGISTIC, missing)

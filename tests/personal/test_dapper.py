"""Dapper against Finetune, against minimisers that can be written down, and against its theorem."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
from dapper_cases import DENSITY, MODEL, clients, same, trial_losses
from plain import Dapper

import sartor
from sartor.errors import ConfigError
from sartor.personal.sources import clients_sample
from sartor.trees import flatten


@pytest.fixture(scope="module")
def data():
    return clients().split(unseen=0.2, seed=1)


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=3, cohort=3).fit(MODEL, data, seed=0)


@pytest.mark.parametrize(("step", "epochs"), [("sample", 5), ("weight", 1)])
@pytest.mark.filterwarnings("ignore:Dapper")
def test_lambda_one_is_finetune_on_the_same_stream(data, central, step, epochs):
    dapper = Dapper(cover=(1.0,), r=5, step=step, learning_rate=0.05, batch=8)
    finetune = plain.Finetune(epochs=epochs, learning_rate=0.05, batch=8)
    a, b = dapper.fit(central, data, seed=3), finetune.fit(central, data, seed=3)
    for client in data.ids:
        same(a.params(client), b.params(client), 1e-6)
        assert a.lambda_[client] == 1.0


@pytest.mark.parametrize("step", ["sample", "weight"])
@pytest.mark.filterwarnings("ignore:Dapper")
def test_lambda_zero_never_reads_the_clients_data(data, central, step):
    unseen = data.ids[int(np.flatnonzero(~data.seen)[0])]
    algorithm = Dapper(cover=(0.0,), step=step, select="train")
    before = algorithm.fit(central, data, seed=3).params(unseen)
    x = data.columns["x"].copy()
    x[data.part(data.position(unseen))] = 1e6
    spoiled = dataclasses.replace(data, columns={**data.columns, "x": x})
    same(before, algorithm.fit(central, spoiled, seed=3).params(unseen))


def histogram(y, symbols=8):
    return np.bincount(y, minlength=symbols) / len(y)


def drawn(data, seed, r, client, size, cluster=None):
    """The r · m_k draws of a client."""
    from sartor.randomness import mix, uniforms

    sample = clients_sample(data, cluster)
    word = mix(seed, "personal", data.hashes[client])
    slots = np.arange(r * size)
    places = sample.first[client] + (uniforms(mix(word, "draw", slots)) * sample.counts[client])
    return data.rows[sample.pool[places.astype(int)]]


def test_weighted_form_converges_to_the_mixture_of_distributions():
    draw = np.random.default_rng(0)
    data = sartor.data.from_dict(
        {f"c{k}": {"y": draw.choice(8, 30, p=draw.dirichlet(np.ones(8)))} for k in range(5)}
    )
    central = sartor.FedAvg(rounds=20, batch=50, learning_rate=1.0).fit(DENSITY, data)
    for lambda_ in (0.0, 0.3, 0.8):
        algorithm = Dapper(
            cover=(lambda_,), step="weight", r=4, epochs=3000, batch=30, learning_rate=1.0,
            select="train",
        )  # fmt: skip
        personal = algorithm.fit(central, data, seed=7)
        for k, client in enumerate(data.ids):
            mine = histogram(data.client(client)["y"])
            others = histogram(data.columns["y"][drawn(data, 7, 4, k, 30)])
            expected = lambda_ * mine + (1 - lambda_) * others
            got = jax.nn.softmax(personal.params(client)["logits"])
            np.testing.assert_allclose(got, expected, atol=5e-3)


def test_weighted_form_converges_to_the_normal_equations():
    draw = np.random.default_rng(1)
    n, d = 24, 3
    x = draw.standard_normal((4, n, d)).astype(np.float32)
    w = draw.standard_normal((4, d))
    y = (np.einsum("knd,kd->kn", x, w) + 0.1 * draw.standard_normal((4, n))).astype(np.float32)
    data = sartor.data.from_dict({f"c{k}": {"x": x[k], "y": y[k]} for k in range(4)})
    model = sartor.models.linear(features=d, scale=False)
    central = sartor.FedAvg(rounds=5, cohort=4).fit(model, data)
    algorithm = Dapper(
        cover=(0.6,), step="weight", r=3, epochs=2000, batch=n, learning_rate=0.1, select="train"
    )
    personal = algorithm.fit(central, data, seed=2)
    for k, client in enumerate(data.ids):
        rows = drawn(data, 2, 3, k, n)
        one = np.concatenate([x[k], np.ones((n, 1))], axis=1)
        other = np.concatenate([data.columns["x"][rows], np.ones((3 * n, 1))], axis=1)
        left = 0.6 * one.T @ one / n + 0.4 * other.T @ other / (3 * n)
        right = 0.6 * one.T @ y[k] / n + 0.4 * other.T @ data.columns["y"][rows] / (3 * n)
        solution = np.linalg.solve(left, right)
        params = personal.params(client)["dense_1"]
        np.testing.assert_allclose(params["w"][:, 0], solution[:d], atol=1e-4)
        np.testing.assert_allclose(params["b"][0], solution[d], atol=1e-4)


def test_a_short_batch_weighs_only_what_is_in_it():
    from sartor.engine import Batch, Job
    from sartor.personal.objectives import Weighted

    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((15, 4)).astype(np.float32), draw.integers(0, 3, 15)
    params = MODEL.init(jax.random.key(0))
    objective = Weighted(MODEL, tuple(flatten(params)), r=2)
    mask = jnp.arange(15) < 3  # three of five own examples, then ten others of which six count
    batch = Batch(jnp.asarray(x), jnp.asarray(y), mask, jax.random.key(1))
    job = Job(0, None, None, values={"lambda": jnp.float32(0.3)})
    losses = np.asarray(MODEL.loss(params, x, jnp.asarray(y)))
    expected = 0.3 * losses[:3].mean() + 0.7 * losses[5:11].mean()
    got = objective.loss(flatten(params), None, batch, job)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_both_steps_have_the_same_expected_gradient():
    data = clients(sizes=(40, 30, 50))
    central = sartor.FedAvg(rounds=1, learning_rate=0.05).fit(MODEL, data)
    start = central.params
    means = {}
    for step, batch in (("sample", 40), ("weight", 40)):
        changes = []
        for seed in range(60):
            algorithm = Dapper(
                cover=(0.3,), step=step, r=1, batch=batch, learning_rate=1e-2, select="train"
            )
            after = algorithm.fit(central, data, seed=seed).params("c0")
            changes.append(jax.tree.leaves(jax.tree.map(lambda a, b: a - b, after, start)))
        flat = np.array([np.concatenate([np.ravel(a) for a in leaves]) for leaves in changes])
        means[step] = flat.mean(axis=0), flat.std(axis=0) / np.sqrt(len(flat))
    (a, sa), (b, sb) = means["sample"], means["weight"]
    z = (a - b) / np.maximum(np.hypot(sa, sb), 1e-9)
    assert np.abs(z).max() < 4.5
    assert np.abs(a).max() > 10 * sa.max()  # there is a gradient to be equal about
    # And the exact one: λ · the client's gradient + (1 − λ) · everybody's.
    exact = jax.grad(
        lambda p: (
            0.3 * MODEL.loss(p, *pair(data.client("c0"))).mean()
            + 0.7 * MODEL.loss(p, data.columns["x"], jnp.asarray(data.columns["y"])).mean()
        )
    )(start)
    expected = -1e-2 * np.concatenate([np.ravel(a) for a in jax.tree.leaves(exact)])
    assert (np.abs(b - expected) < 4.5 * np.maximum(sb, 1e-9)).all()


def pair(columns):
    return columns["x"], jnp.asarray(columns["y"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cover": ()}, "the cover is empty"),
        ({"cover": (0.5, 1.2)}, r"from 0 to 1 \(got 1.2\)"),
        ({"cover": (-0.1,)}, "from 0 to 1"),
        ({"cover": ("half",)}, "from 0 to 1"),
        ({"r": 0}, "r must be a whole number"),
        ({"step": "both"}, "step must be one of"),
        ({"select": "test"}, "select must be one of"),
        ({"source": "web"}, "source must be one of"),
        ({"folds": 1}, "folds must be a whole number from 2"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        Dapper(**settings)


def regression(clients=5, seed=0):
    draw = np.random.default_rng(seed)
    rows = {}
    for k in range(clients):
        x = draw.standard_normal((20 + 7 * k, 3))
        y = x @ draw.standard_normal(3) + 0.2 * draw.standard_normal(len(x)) + k
        rows[f"c{k}"] = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    return sartor.data.from_dict(rows).split(validation=0.2, test=0.2, seed=0)


def test_statistics_equal_pooled_least_squares_and_add_up():
    from sartor.engine import Spans
    from sartor.personal.statistics import mean_loss, minimiser, statistics_of

    data = regression()
    spans = Spans(data.bounds[:, 0], data.sizes("train"))
    own = statistics_of(data, spans)
    rows = np.concatenate([data.part(k) for k in range(len(data))])
    z = np.concatenate([data.columns["x"][rows], np.ones((len(rows), 1))], axis=1).astype(float)
    y = data.columns["y"][rows].astype(float)
    pooled = own.sums(np.zeros(len(data), int), 1)
    np.testing.assert_allclose(pooled.moment[0], z.T @ z, rtol=1e-12)
    np.testing.assert_allclose(pooled.cross[0][:, 0], z.T @ y, rtol=1e-12)
    solution = minimiser(pooled, pooled, np.ones(1))[0, :, 0]
    expected = np.linalg.lstsq(z, y, rcond=None)[0]
    np.testing.assert_allclose(solution, expected, atol=1e-10)
    error = mean_loss(pooled, solution[None, :, None])
    np.testing.assert_allclose(error, ((z @ solution - y) ** 2).mean(), atol=1e-10)


def test_statistics_give_every_client_the_minimiser_of_its_mixture():
    data = regression()
    model = sartor.models.linear(features=3, scale=False)
    central = sartor.FedAvg(rounds=5, cohort=5).fit(model, data)
    algorithm = Dapper(source="statistics", cover=(0.0, 0.3, 1.0))
    personal = algorithm.fit(central, data)
    rows = np.concatenate([data.part(k) for k in np.flatnonzero(data.seen)])

    def moments(rows):
        z = np.concatenate([data.columns["x"][rows], np.ones((len(rows), 1))], axis=1).astype(float)
        return z.T @ z / len(rows), z.T @ data.columns["y"][rows] / len(rows)

    for k, client in enumerate(data.ids):
        lambda_ = personal.lambda_[client]
        mine = np.concatenate([data.part(k), data.part(k, "validation")])
        (a, b), (c, d) = moments(mine), moments(rows)
        expected = np.linalg.solve(lambda_ * a + (1 - lambda_) * c, lambda_ * b + (1 - lambda_) * d)
        params = personal.params(client)["dense_1"]
        np.testing.assert_allclose(params["w"][:, 0], expected[:3], atol=1e-5)
        np.testing.assert_allclose(params["b"][0], expected[3], atol=1e-5)
    assert personal.cost.left == {"statistics": 5 * (4 * 5 // 2 + 4 + 2)}
    assert {d["lambda"] for d in personal.clients.values()} & {1.0, 0.3}
    with pytest.raises(ConfigError, match="solves linear regression"):
        Dapper(source="statistics").fit(sartor.FedAvg(rounds=1).fit(MODEL, clients()), clients())


@pytest.mark.parametrize("source", ["clients", "generated"])
@pytest.mark.parametrize("step", ["sample", "weight"])
def test_the_order_of_clients_does_not_matter(source, step):
    draw = np.random.default_rng(0)
    data = sartor.data.from_dict({f"c{k}": {"y": draw.choice(8, 9 + k)} for k in range(6)}).split(
        validation=0.25, seed=0
    )
    turned = data.select(list(data.ids)[::-1])
    central = sartor.FedAvg(rounds=2, cohort=6).fit(DENSITY, data)
    algorithm = Dapper(source=source, step=step, cover=(0.0, 0.5), learning_rate=0.5)
    one, two = (algorithm.fit(central, d) for d in (data, turned))
    assert one.lambda_ == two.lambda_
    for client in data.ids:
        np.testing.assert_allclose(
            one.params(client)["logits"], two.params(client)["logits"], atol=1e-5
        )


def test_the_theorem_holds_on_a_strongly_convex_problem():
    """E[λ·L_k(h_A) + (1−λ)·L_Ĉ(h_A)] exceeds the minimum by at most ε_λ, over many draws."""
    from sartor.personal.objectives import Theory

    model = sartor.models.Model(
        init=lambda key: {"h": jnp.zeros(2)},
        apply=lambda params, x, key: jnp.broadcast_to(params["h"], (x.shape[0], 2)),
        kind="regression",
        training_loss=lambda h, y: 0.5 * jnp.square(h - y).sum(axis=-1),  # μ = 1
    )
    draw = np.random.default_rng(0)
    radius = 0.25
    angle = np.pi / 3 * np.arange(6)
    means, size = 0.96 * radius * np.stack([np.cos(angle), np.sin(angle)], axis=1), 2000
    rows = {}
    for k, mean in enumerate(means):
        y = (mean + 0.05 * draw.standard_normal((size, 2))).astype(np.float32)
        rows[f"c{k}"] = {"x": np.zeros((size, 1), np.float32), "y": y}
    data = sartor.data.from_dict(rows)
    everybody = data.columns["y"]
    # h_c minimises the loss on Ĉ, as the theorem has it, and all examples are within 0.5 of it.
    central = sartor.FedAvg(rounds=60, cohort=6, batch=size, learning_rate=0.5, server_momentum=0.0)
    central = central.fit(model, data)
    np.testing.assert_allclose(central.params["h"], everybody.mean(axis=0), atol=1e-4)
    theory = Theory(mu=1.0, G=0.75, R=0.5)

    def objective(h, k, lambda_):
        mine = 0.5 * ((h - rows[f"c{k}"]["y"]) ** 2).sum(axis=1).mean()
        return lambda_ * mine + (1 - lambda_) * 0.5 * ((h - everybody) ** 2).sum(axis=1).mean()

    for lambda_, seeds in ((0.2, 2), (0.9, 20)):
        excess = np.zeros((seeds, 6))
        for seed in range(seeds):
            algorithm = Dapper(theory=theory, cover=(lambda_,), select="train")
            assert algorithm.r == 9
            personal = algorithm.fit(central, data, seed=seed)
            for k, client in enumerate(data.ids):
                h = personal.params(client)["h"]
                best = lambda_ * rows[client]["y"].mean(axis=0) + (1 - lambda_) * everybody.mean(
                    axis=0
                )
                excess[seed, k] = objective(h, k, lambda_) - objective(best, k, lambda_)
        epsilon = np.sqrt(lambda_**2 / size + (1 - lambda_) ** 2 / len(everybody))
        assert (excess >= -1e-6).all()
        assert (excess.mean(axis=0) <= epsilon).all()
        assert excess.mean() > 1e-6  # not trivially at the minimum
    # Nor would it do to stay where the central model is.
    h_c = np.asarray(central.params["h"])
    for k, client in enumerate(data.ids):
        best = 0.9 * rows[client]["y"].mean(axis=0) + 0.1 * everybody.mean(axis=0)
        assert objective(h_c, k, 0.9) - objective(best, k, 0.9) > 1.1 * epsilon
    with pytest.raises(ConfigError, match="one pass of SGD"):
        Dapper(theory=theory, step="weight")
    with pytest.raises(ConfigError, match="must be a positive number"):
        Theory(mu=0, G=1, R=1)


def test_statistics_by_cluster_and_folds():
    from sartor.personal.choosing import make_trials, trial_jobs
    from sartor.personal.statistics import Solver

    data = regression().split(unseen=0.4, seed=3)
    seen, unseen = np.flatnonzero(data.seen), np.flatnonzero(~data.seen)
    cluster = np.zeros(5, np.int64)
    cluster[seen[0]], cluster[unseen[0]] = 1, 2  # a cluster of one, and one of an unseen client
    solver = Solver.of(data, cluster)
    sizes = data.sizes("train")
    assert solver.pooled.examples[seen[0]] == sizes[seen[0]]
    assert solver.pooled.examples[seen[1]] == sizes[seen[1:]].sum()
    assert solver.pooled.examples[unseen[0]] == sizes[seen].sum()
    # A fold is held out of Ĉ: spoiling it changes its own loss, and nothing that it is tried on.
    together = np.zeros(5, np.int64)
    trials = make_trials(data, "kfold", 3, seed=0)
    jobs = trial_jobs(data, trials, 0, together, np.array([0.0]))
    tried = trial_losses(Solver.of(data, None), jobs)
    x, y = (data.columns[n][data.part(seen[0])] for n in ("x", "y"))
    rest = np.concatenate([data.part(k) for k in seen[1:]])
    z = np.concatenate([data.columns["x"][rest], np.ones((len(rest), 1))], axis=1).astype(float)
    w = np.linalg.lstsq(z, data.columns["y"][rest].astype(float), rcond=None)[0]
    expected = ((x @ w[:3] + w[3] - y) ** 2).mean()
    mine = jobs.client == seen[0]
    got = np.average(tried[mine], weights=jobs.held.sizes[mine])
    np.testing.assert_allclose(got, expected, rtol=1e-6)

"""One function finds the closed form or climbs; both agree, and clients are compared at once."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sartor
from sartor.errors import ConfigError, DataError
from sartor.models import categorical, linear, logistic
from sartor.theory import discrepancies, discrepancy, discrepancy_matrix, exact


def symbols(draw, n, k=5):
    return {"y": draw.choice(k, n, p=draw.dirichlet(np.ones(k)))}


def numbers(draw, n, features=3):
    x = draw.normal(size=(n, features)) * draw.uniform(0.3, 2, features)
    return {"x": x.astype(np.float32), "y": (x @ draw.normal(size=features)).astype(np.float32)}


CASES = {
    "categorical": (categorical(symbols=5), symbols, {"bound": 4.0}, {"radius": 40.0}),
    "linear": (linear(features=3), numbers, {"radius": 1.5}, {"bound": 1e6}),
}
of_each = pytest.mark.parametrize("name", CASES)


@of_each
@settings(max_examples=settings.default.max_examples // 4)
@given(seed=st.integers(0, 2**16))
def test_ascent_reaches_the_closed_form_and_does_not_pass_it(name, seed):
    model, make, told, more = CASES[name]
    draw = np.random.default_rng(seed)
    a, b = make(draw, 150), make(draw, 20)  # two batches, the second of them filled up; and one
    true = discrepancy(model, a, b, **told)
    found = discrepancy(model, a, b, **told, **more, method="ascent")
    assert true.exact and not found.exact
    assert 0.9 * true - 1e-6 <= found <= true * (1 + 1e-4) + 1e-6


@of_each
def test_it_is_a_distance(name):
    model, make, told, _ = CASES[name]
    draw = np.random.default_rng(0)
    a, b = make(draw, 30), make(draw, 20)
    assert discrepancy(model, a, a, **told) == pytest.approx(0, abs=1e-6)
    found = discrepancy(model, a, b, **told)
    assert found == pytest.approx(float(discrepancy(model, b, a, **told))) and found > 0


def test_ascent_is_symmetric_and_zero_for_the_same_samples():
    model, draw = logistic(features=3, classes=2), np.random.default_rng(0)
    a, b = ({"x": numbers(draw, n)["x"], "y": draw.integers(0, 2, n)} for n in (20, 30))
    how = {"bound": 5.0, "radius": 4.0}
    assert discrepancy(model, a, a, **how) == pytest.approx(0, abs=1e-5)
    one, other = discrepancy(model, a, b, **how), discrepancy(model, b, a, **how)
    assert one == pytest.approx(other, rel=0.02) and 0 < one < 5


def test_permutations_tell_chance_from_difference():
    model, draw = categorical(symbols=4), np.random.default_rng(1)
    same = [{"y": draw.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])} for n in (60, 40)]
    other = {"y": draw.choice(4, 40, p=[0.1, 0.2, 0.3, 0.4])}
    chance = discrepancy(model, *same, bound=5.0, permutations=200)
    real = discrepancy(model, same[0], other, bound=5.0, permutations=200)
    assert chance.p_value > 0.05 and chance.chance[0] < chance < chance.chance[1]
    assert real.p_value < 0.01 and real > real.chance[1]
    climbed = discrepancy(
        model, same[0], other, bound=5.0, radius=40.0, method="ascent", permutations=20, steps=60
    )
    assert climbed.p_value == pytest.approx(1 / 21) and climbed > climbed.chance[1]
    assert "by chance" in repr(climbed) and "at least" in repr(climbed)


def test_p_values_are_uniform_where_nothing_differs():
    model, draw = categorical(symbols=3), np.random.default_rng(2)
    found = [
        discrepancy(
            model, *({"y": draw.choice(3, 25, p=[0.5, 0.3, 0.2])} for _ in range(2)), bound=4.0,
            permutations=99, seed=n,
        ).p_value
        for n in range(200)
    ]  # fmt: skip
    assert np.mean(np.array(found) <= 0.05) <= 0.1 and 0.4 < np.mean(found) < 0.65


@pytest.fixture(scope="module")
def clients():
    draw, sizes = np.random.default_rng(3), (10, 13, 10, 13, 16)  # each size is compiled for
    return {
        name: sartor.data.from_dict({f"c{k}": make(draw, m) for k, m in enumerate(sizes)})
        for name, (_, make, *_) in CASES.items()
    }


@of_each
@pytest.mark.parametrize("method", [None, "ascent"])
def test_all_clients_at_once_as_one_by_one(name, method, clients):
    model, _, told, more = CASES[name]
    data = clients[name]
    how = {**told, **({**more, "steps": 60} if method else {}), "method": method}
    rough = {"rel": 0.05, "abs": 1e-3} if method else {"abs": 1e-6}
    matrix = discrepancy_matrix(model, data, **how)
    assert matrix.shape == (5, 5) and np.allclose(matrix, matrix.T)
    assert np.allclose(np.diag(matrix), 0, atol=1e-6)
    one = data.client("c1"), data.client("c4")
    assert matrix[1, 4] == pytest.approx(float(discrepancy(model, *one, **how)), **rough)
    everybody = discrepancies(model, data, **how)
    some = [0, 1, 2, 3] if method else range(5)  # two sizes, and so two programs
    alone = [float(discrepancy(model, data.client(data.ids[k]), data, **how)) for k in some]
    assert everybody[list(some)] == pytest.approx(alone, **rough)


@of_each
def test_mixtures_of_clusters(name, clients):
    model, _, told, _ = CASES[name]
    data, clusters = clients[name], np.array([0, 0, 1, 1, 2])
    found = discrepancies(model, data, clusters=clusters, **told)
    assert found[4] == pytest.approx(0, abs=1e-6)  # alone in its cluster
    pair = data.select(["c0", "c1"])
    assert found[0] == pytest.approx(float(discrepancy(model, data.client("c0"), pair, **told)))


def test_unseen_clients_are_no_part_of_the_mixture(clients):
    data = clients["categorical"].split(unseen=0.4, seed=0)
    model, seen = categorical(symbols=5), [c for c, s in zip(data.ids, data.seen, strict=True) if s]
    found = discrepancies(model, data, bound=4.0)
    alone = [discrepancy(model, data.client(c), data.select(seen), bound=4.0) for c in data.ids]
    assert found == pytest.approx([float(d) for d in alone])


def test_a_ball_around_a_model(clients):
    """Close to a model there is less room for a difference."""
    model, data = logistic(features=3, classes=2), np.random.default_rng(0)
    a, b = ({"x": numbers(data, 40)["x"], "y": data.integers(0, 2, 40)} for _ in range(2))
    centre = model.init(jax.random.key(5))
    found = [
        float(discrepancy(model, a, b, bound=8.0, radius=r, centre=centre)) for r in (0.01, 0.3, 3)
    ]
    assert found == sorted(found)
    losses = [float(model.score(centre, d["x"], d["y"])[0].mean()) for d in (a, b)]
    assert found[0] == pytest.approx(abs(losses[0] - losses[1]), abs=0.03)


def test_losses_without_a_bound_are_refused(clients):
    data, model = (np.ones((4, 3)), np.array([0, 1, 1, 0])), logistic(features=3, classes=2)
    with pytest.raises(ConfigError, match=r"no largest value.*bound=B"):
        discrepancy(model, data, data)
    with pytest.raises(ConfigError, match="radius: give the radius"):
        discrepancy(model, data, data, bound=3.0)
    with pytest.raises(ConfigError, match=r"with 2 classes a guess already loses 0\.693"):
        discrepancy(model, data, data, bound=0.5, radius=1.0)
    with pytest.raises(ConfigError, match="closed form for linear models with radius= alone and"):
        discrepancy(model, data, data, bound=3.0, method="exact")
    with pytest.raises(ConfigError, match="method must be one of 'exact', 'ascent'"):
        discrepancy(model, data, data, bound=3.0, method="guess")
    for wrong in ({"radius": -1.0}, {"radius": np.nan}, {"bound": -3.0}):
        with pytest.raises(ConfigError, match="must be a positive number"):
            discrepancy(model, data, data, **{"bound": 3.0, "radius": 1.0, **wrong})


def test_both_sides_mean_the_same_by_their_numbers():
    x = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    one, other = (
        sartor.data.from_dict({"a": (x, words)})
        for words in (["no", "yes", "no", "yes"], ["aaa", "no", "aaa", "no"])
    )
    told = {"bound": 3.0, "radius": 1.0, "steps": 2}
    with pytest.raises(DataError, match="other labels: number 0 is 'no' there and 'aaa' here"):
        discrepancy(logistic(features=2, classes=2), one, other, **told)
    for call in (lambda m: discrepancy(m, one, one, radius=1.0),
                 lambda m: discrepancies(m, one, radius=1.0)):  # fmt: skip
        with pytest.raises(DataError, match="labels are words"):
            call(linear(features=2))
    with pytest.raises(DataError, match="x: inputs must be numbers"):
        discrepancy(linear(features=2), (np.array([["a", "b"]]), [1.0]), (x, x[:, 0]), radius=1.0)
    with pytest.raises(DataError, match="y: targets of shape"):
        discrepancy(linear(features=2, outputs=2), (x, x), (x, x[:, 0]), radius=1.0)


def test_what_is_given_counts():
    """A bound cuts a squared error off, a centre moves the ball: both leave the closed form."""
    draw, model = np.random.default_rng(0), linear(features=3)
    a, b = numbers(draw, 20), numbers(draw, 20)
    assert (
        discrepancy(model, a, b, radius=5.0) > 1 > discrepancy(model, a, b, radius=5.0, bound=1.0)
    )
    centre = model.init(jax.random.key(0))
    for more in ({"bound": 1.0}, {"centre": centre}):
        with pytest.raises(ConfigError, match="method='exact'"):
            discrepancy(model, a, b, radius=5.0, method="exact", **more)


def test_images_of_bytes_are_seen_as_the_model_sees_them():
    draw, model = np.random.default_rng(0), linear(features=(4, 4))
    a, b = ((draw.integers(0, 256, (9, 4, 4), np.uint8), draw.normal(size=9)) for _ in range(2))
    true = discrepancy(model, a, b, radius=1.0)
    floats = [(x.astype(np.float64) / 255, y) for x, y in (a, b)]
    assert true == pytest.approx(float(discrepancy(model, *floats, radius=1.0)), rel=1e-5)
    found = discrepancy(model, a, b, radius=1.0, bound=1e5, method="ascent")
    assert 0.95 * true <= found <= true * (1 + 1e-4)
    data = sartor.data.from_dict({n: {"x": x, "y": y} for n, (x, y) in {"a": a, "b": b}.items()})
    assert discrepancy_matrix(model, data, radius=1.0)[0, 1] == pytest.approx(float(true))


def test_labels_and_inputs_that_do_not_fit():
    model, good = categorical(symbols=3), {"y": np.array([0, 1, 2])}
    for wrong in ([-1, 0], [0, 3], [0.5, 1.0], [np.nan, 1.0]):
        with pytest.raises(DataError, match="labels are whole numbers from 0 to 2"):
            discrepancy(model, {"y": np.array(wrong)}, good, bound=4.0)
    model, x = linear(features=2), np.ones((3, 2))
    with pytest.raises(DataError, match=r"shape \(3,\), and the model takes \(2,\)"):
        discrepancy(model, (np.ones((3, 3)), x[:, 0]), (x, x[:, 0]), radius=1.0)
    for bad in ((np.full((3, 2), np.nan), x[:, 0]), (x, np.full(3, np.inf))):
        with pytest.raises(DataError, match="not finite"):
            discrepancy(model, bad, (x, x[:, 0]), radius=1.0)
    with pytest.raises(DataError, match="losses are not finite"):
        discrepancy(model, (1e30 * x, x[:, 0]), (x, x[:, 0]), radius=1e9, bound=1e38)
    column = discrepancy(model, (x, np.arange(3.0)[:, None]), (x, x[:, 0]), radius=1.0)
    assert column == discrepancy(model, (x, np.arange(3.0)), (x, x[:, 0]), radius=1.0)


@pytest.mark.parametrize("method", [None, "ascent"])
def test_a_cluster_of_unseen_clients_has_no_mixture(clients, method):
    data = clients["categorical"].split(unseen=0.4, seed=0)
    more = {"radius": 9.0} if method else {}
    with pytest.raises(DataError, match="cluster 1 has no seen clients"):
        discrepancies(
            categorical(symbols=5), data, clusters=(~data.seen).astype(int), bound=4.0,
            method=method, **more,
        )  # fmt: skip


def test_drawn_examples_find_most_of_it_and_are_measured_on_all():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(240, 8)).astype(np.float32)
    tilts = draw.normal(size=(4, 8, 3))
    data = sartor.data.from_dict(
        {f"c{k}": {"x": x[60 * k : 60 * k + 60],
                   "y": (x[60 * k : 60 * k + 60] @ tilts[k]).argmax(axis=1)} for k in range(4)}
    )  # fmt: skip
    model, where = sartor.models.logistic(features=8, classes=3), {"bound": 4.0, "radius": 5.0}
    full = discrepancies(model, data, **where, sample=10_000)
    quick = discrepancies(model, data, **where, sample=10_000, starts=2, steps=30, draw=32)
    assert (quick > 0.6 * full).all() and (quick <= full * 1.001).all()
    with pytest.raises(ConfigError, match="draw must be"):
        discrepancies(model, data, **where, draw=0)


def test_far_away_losses_saturate_and_short_steps_find_more():
    """In a large ball a log-loss is at its bound nearly everywhere but at the centre."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(120, 30)).astype(np.float32)
    y = (x @ draw.normal(size=(30, 10))).argmax(axis=1)
    a, b = (x[:60], y[:60]), (x[60:], (y[60:] + 1) % 10)
    model = sartor.models.logistic(features=30, classes=10)
    near = discrepancy(model, a, b, bound=4.6, radius=5.0, starts=2)
    far = discrepancy(model, a, b, bound=4.6, radius=500.0, starts=2)
    assert far > 0.8 * near


def test_one_compilation_for_all_clusters(clients):
    from sartor.theory import ascent

    model, _, told, more = CASES["categorical"]
    data, how = clients["categorical"], {**told, **more, "method": "ascent", "steps": 7}
    discrepancies(model, data, clusters=[0, 0, 1, 1, 2], **how)
    program = ascent.search_program(model, told["bound"], ascent.Ascent(more["radius"], 4, 7))
    assert program._cache_size() == 1


def test_empty_and_missing_examples(clients):
    model = categorical(symbols=5)
    with pytest.raises(DataError, match="no examples"):
        discrepancy(model, {"y": np.zeros(0, int)}, clients["categorical"], bound=4.0)
    with pytest.raises(DataError, match="the model needs inputs"):
        discrepancy(linear(features=3), {"y": np.ones(2)}, clients["linear"], radius=1.0)
    with pytest.raises(DataError, match="3 inputs and 2 labels"):
        discrepancy(
            linear(features=3), (np.ones((3, 3)), np.ones(2)), clients["linear"], radius=1.0
        )
    with pytest.raises(ConfigError, match="clusters must hold one for each of 5 clients"):
        discrepancies(model, clients["categorical"], clusters=[0, 1], bound=4.0)


def test_exact_forms_are_those_of_the_module(clients):
    data = clients["categorical"]
    first, second = (exact.label_frequencies(data.client(c)["y"], 5) for c in ("c0", "c2"))
    matrix = discrepancy_matrix(categorical(symbols=5), data, bound=4.0)
    assert matrix[0, 2] == pytest.approx(float(exact.categorical(first, second, 4.0)))


def test_examples_that_are_none_are_refused():
    model, good = linear(features=2), (np.ones((3, 2)), np.zeros(3))
    told = {"radius": 1.0}
    with pytest.raises(DataError, match="examples need labels 'y'; there are 'x'"):
        discrepancy(model, {"x": np.ones((3, 2))}, good, **told)
    with pytest.raises(ConfigError, match=r"ClientData.* or a pair .got ndarray"):
        discrepancy(model, np.ones((3, 2)), np.zeros(3), **told)
    with pytest.raises(DataError, match="labels must be numbers"):
        discrepancy(model, (np.ones((3, 2)), np.array(["a", "b", "a"])), good, **told)
    with pytest.raises(ConfigError, match="permutations must be"):
        discrepancy(model, good, good, permutations=-1, **told)
    data = sartor.data.from_dict({"a": good, "b": good})
    with pytest.raises(ConfigError, match="sample must be"):
        discrepancies(model, data, sample=0, **told)

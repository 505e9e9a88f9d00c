"""FedAvg against plain SGD, and against gradient descent on everybody's data."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sartor
from sartor.engine import rounds as engine_rounds
from sartor.engine.arguments import separate
from sartor.errors import ConfigError, DataError, DivergedError


def classification(clients=6, size=30, classes=3, seed=0, uneven=True):
    draw = np.random.default_rng(seed)
    sizes = draw.integers(5, 2 * size, clients) if uneven else np.full(clients, size)
    client = np.repeat(np.arange(clients), sizes)
    x = draw.standard_normal((len(client), 4)).astype(np.float32)
    y = (x @ draw.standard_normal((4, classes)) + 0.3 * client[:, None] % 2).argmax(axis=1)
    return sartor.data.from_arrays(x, y, client)


MODEL = sartor.models.logistic(features=4, classes=3, scale=False)


def close(a, b, tolerance=1e-5):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=tolerance, rtol=0), a, b)


def start_of(model, data, seed=0):
    """The model that training with a seed starts from: a run that does not move shows it."""
    still = sartor.FedAvg(rounds=1, learning_rate=1e-30, server_momentum=0.0)
    return still.fit(model, data, seed=seed).params


def test_one_client_with_server_rate_one_is_plain_sgd():
    data = classification(clients=1, size=50, uneven=False)
    algorithm = sartor.FedAvg(
        rounds=3, cohort=1, epochs=2, batch=8, learning_rate=0.1, server_momentum=0.0
    )
    federated = algorithm.fit(MODEL, data, seed=4).params
    # The same orders as the engine's: they are a function of seed, purpose, round and client.
    from sartor.randomness import mix, shuffles

    params = start_of(MODEL, data, seed=4)
    x, y = (data.client("0")[name] for name in ("x", "y"))
    for round_ in range(3):
        word = mix(4, "train", round_, data.hashes)
        for epoch in range(2):
            order = shuffles(mix(word, "epoch", epoch), np.array([50]))
            for begin in range(0, 50, 8):
                rows = order[begin : begin + 8]
                gradient = jax.grad(lambda p, r=rows: MODEL.loss(p, x[r], jnp.asarray(y[r])).mean())
                params = jax.tree.map(lambda a, g: a - 0.1 * g, params, gradient(params))
    close(federated, params, 1e-6)


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_one_full_batch_step_of_everybody_is_gradient_descent(weights):
    data = classification(clients=5)
    algorithm = sartor.FedAvg(
        rounds=4, cohort=5, batch=1000, learning_rate=0.5, server_momentum=0.9, weights=weights
    )
    federated = algorithm.fit(MODEL, data, seed=1).params
    params = start_of(MODEL, data, seed=1)
    optimizer = optax.sgd(0.5, momentum=0.9)
    memory = optimizer.init(params)
    share = data.sizes() / data.sizes().sum() if weights == "size" else np.full(5, 0.2)
    everybody = [data.client(client) for client in data.ids]

    def objective(p):
        losses = [MODEL.loss(p, c["x"], jnp.asarray(c["y"])).mean() for c in everybody]
        return sum(w * loss for w, loss in zip(share, losses, strict=True))

    for _ in range(4):
        updates, memory = optimizer.update(jax.grad(objective)(params), memory)
        params = optax.apply_updates(params, updates)
    close(federated, params, 2e-6)


def test_the_order_of_clients_does_not_matter():
    data = classification(clients=8)
    shuffled = data.select([data.ids[k] for k in (5, 2, 7, 0, 1, 6, 3, 4)])
    fits = [sartor.FedAvg(rounds=6, cohort=3).fit(MODEL, d, seed=0) for d in (data, shuffled)]
    close(fits[0].params, fits[1].params, 1e-6)


def test_streamed_data_gives_the_same_bits_as_resident_data(tmp_path):
    data = classification(clients=12).split(test=0.2, seed=0)
    data.save(tmp_path / "data")
    mapped = sartor.data.open(tmp_path / "data")
    algorithm = sartor.FedAvg(rounds=7, cohort=4)
    for resident, source in ((True, data), (False, data), (False, mapped)):
        engine = sartor.Engine(resident=resident)
        central = algorithm.fit(MODEL, source, seed=0, engine=engine)
        personal = sartor.Finetune(epochs=2).fit(central, source, seed=0)
        scores = personal.evaluate(source)
        result = jax.tree.leaves(central.params), scores.loss, scores.extra["mixture_loss"]
        if resident:
            expected = result
        jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_one_compilation_for_all_cohorts_and_chunks(monkeypatch):
    data = classification(clients=40)
    algorithm = sartor.FedAvg(rounds=30, cohort=5, learning_rate=0.0123)
    monkeypatch.setattr(engine_rounds, "CHUNK_SECONDS", 0.003)
    engine = sartor.Engine()
    program = engine_rounds._compiled(separate(algorithm)[0], MODEL, engine, 1, 30)
    before, chunks = program.compiled, []
    algorithm.fit(MODEL, data, engine=engine, on_chunk=chunks.append)
    assert len(chunks) > 3
    assert len({c.stop - c.start for c in chunks}) > 1
    assert program.compiled == before + 1


def test_chunks_do_not_change_a_bit(monkeypatch):
    data, algorithm = classification(), sartor.FedAvg(rounds=20, cohort=3)
    fits = []
    for seconds in (1e-9, 1.0):
        monkeypatch.setattr(engine_rounds, "CHUNK_SECONDS", seconds)
        fits.append(algorithm.fit(MODEL, data, seed=0))
    jax.tree.map(np.testing.assert_array_equal, fits[0].params, fits[1].params)
    np.testing.assert_array_equal(fits[0].loss, fits[1].loss)


def test_fitting_reads_only_training_parts_of_seen_clients():
    data = classification(clients=10).split(unseen=0.3, validation=0.2, test=0.2, seed=0)
    algorithm = sartor.FedAvg(rounds=5, cohort=4)
    before = algorithm.fit(MODEL, data, seed=0).params
    used = np.concatenate([data.part(k) for k in np.flatnonzero(data.seen)])
    x = data.columns["x"].copy()
    x[np.setdiff1d(np.arange(len(x)), used)] = np.nan  # all that must not be read
    spoiled = sartor.ClientData(
        {**data.columns, "x": x}, data.rows, data.bounds, data.ids, data.seen
    )
    after = algorithm.fit(MODEL, spoiled, seed=0).params
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize("seed", range(4))
def test_streams_hold_the_largest_cohort_and_the_row_that_idle_lanes_read(seed):
    draw = np.random.default_rng(0)
    client = np.repeat(np.arange(7), [3, 21, 21, 21, 21, 21, 21])
    data = sartor.data.from_arrays(None, draw.integers(0, 3, len(client)), client)
    model, results = sartor.models.categorical(3), []
    for resident in (True, False):
        engine = sartor.Engine(lanes=2, resident=resident)
        central = sartor.FedAvg(rounds=1, cohort=2).fit(model, data, seed=seed, engine=engine)
        personal = sartor.Finetune(epochs=1).fit(central, data, seed=seed, engine=engine)
        results.append([central.params, *(personal.params(client) for client in data.ids)])
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_another_seed_or_step_size_finds_the_compiled_program_again():
    data, engine = classification(clients=40), sartor.Engine()
    same, _ = separate(sartor.FedAvg(learning_rate=0.05))
    program = engine_rounds._compiled(same, MODEL, engine, 1, 25)
    before, results = program.compiled, []
    for seed, rate in ((0, 0.05), (1, 0.05), (1, 0.2)):
        algorithm = sartor.FedAvg(rounds=25, cohort=5, learning_rate=rate)
        results.append(algorithm.fit(MODEL, data, seed=seed, engine=engine).params)
    assert program.compiled == before + 1
    for a, b in ((0, 1), (1, 2)):
        assert not np.allclose(*(jax.tree.leaves(results[i])[0] for i in (a, b)))


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_targets_must_have_the_shape_of_predictions(shape):
    y = np.ones((8, *shape), np.float32)
    data = sartor.data.from_arrays(np.ones((8, 3)), y, [0, 0, 0, 0, 1, 1, 1, 1])
    outputs = 2 if shape == (2,) else 1
    model = sartor.models.linear(3, outputs, scale=False)
    if shape == (1,):
        with pytest.raises(DataError, match=r"target has shape \(1,\).*predicts \(\)"):
            sartor.FedAvg(rounds=1).fit(model, data)
    else:
        loss = sartor.FedAvg(rounds=200, server_momentum=0.0).fit(model, data).loss
        assert loss[-1] < 1e-3


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (lambda p, x, k: x @ p["w"] + 3, r"log-probabilities.*log_softmax"),
        (lambda p, x, k: jax.nn.log_softmax(x @ p["w"])[:, :2], r"\(2, 2\).*must be \(2, 3\)"),
        (lambda p, x: x, r"apply\(params, x, key\) raised TypeError"),
        (lambda p, x, k: x[:, :2] @ p["w"], r"x of shape \(2, 4\)"),
    ],
)
def test_a_model_that_breaks_its_promise_is_refused_before_training(apply, words):
    model = sartor.Model(lambda key: {"w": jnp.zeros((4, 3))}, apply, classes=3)
    with pytest.raises(ConfigError, match=words):
        sartor.FedAvg(rounds=1).fit(model, classification())


def test_integers_that_would_wrap_are_refused():
    data = sartor.data.from_dict({"a": ([[3_000_000_000]], [0]), "b": ([[1]], [1])})
    with pytest.raises(DataError, match=r"'x' holds 3000000000.*32 bits"):
        sartor.FedAvg().fit(sartor.models.logistic(1, 2, scale=False), data)


def test_labels_of_another_vocabulary_are_refused():
    def words(*labels):
        x = [[0.0], [1.0]] * 4
        return sartor.data.from_dict({k: (x, list(labels) * 4) for k in "ab"}).split(test=0.5)

    model = sartor.models.logistic(1, 2, scale=False)
    central = sartor.FedAvg(rounds=2).fit(model, words("cat", "dog"))
    with pytest.raises(DataError, match=r"'cat' there and 'dog' here.*do not mean the same"):
        central.evaluate(words("dog", "emu"))
    with pytest.raises(DataError, match="do not mean the same"):
        sartor.Finetune().fit(central, words("dog", "emu"))


def test_several_input_columns_go_all_the_way(tmp_path):
    draw = np.random.default_rng(0)
    x = {"left": draw.random((60, 2), np.float32), "right": draw.random((60, 3), np.float32)}
    y = (x["left"][:, 0] > x["right"][:, 0]).astype(int)
    data = sartor.data.from_arrays(x, y, np.arange(60) % 3).split(test=0.3, seed=0)

    def init(key):
        return {"left": jnp.zeros((2, 2)), "right": jnp.zeros((3, 2))}

    def apply(params, x, key):
        return jax.nn.log_softmax(x["left"] @ params["left"] + x["right"] @ params["right"])

    model = sartor.Model(init, apply, classes=2)
    central = sartor.FedAvg(rounds=60, learning_rate=0.5).fit(model, data)
    personal = sartor.Finetune(epochs=2).fit(central, data)
    assert personal.evaluate(data).accuracy.mean() > 0.8
    personal.save(tmp_path / "models")
    loaded = sartor.load(tmp_path / "models", model=model)
    sample = {name: column[:4] for name, column in x.items()}
    np.testing.assert_array_equal(loaded.predict("1", sample), personal.predict(1, sample))
    assert central.predict(sample).shape == (4,)


def test_checkpoints_of_other_optimizers_and_models_are_refused(tmp_path):
    from sartor.errors import CheckpointError

    data, path = classification(), tmp_path / "c.safetensors"
    sartor.FedAvg(rounds=2, server_optimizer=optax.sgd(1.0)).fit(MODEL, data, checkpoint=path)
    sartor.FedAvg(rounds=3, server_optimizer=optax.sgd(1.0)).fit(MODEL, data, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"algorithm\.server_optimizer"):
        sartor.FedAvg(rounds=3, server_optimizer=optax.sgd(2.0)).fit(MODEL, data, checkpoint=path)
    smooth = sartor.models.logistic(features=4, classes=3, smoothing=0.2, scale=False)
    with pytest.raises(CheckpointError, match=r"model\.loss"):
        sartor.FedAvg(rounds=3, server_optimizer=optax.sgd(1.0)).fit(smooth, data, checkpoint=path)


@pytest.mark.parametrize("optimizer", [{"name": "adam", "learning_rate": 0.05}, optax.yogi(0.05)])
def test_any_server_and_client_optimizer_learns(optimizer):
    data = classification(clients=8)
    plain = sartor.FedAvg(rounds=40, cohort=4, server_optimizer=optimizer)
    assert plain.fit(MODEL, data).loss[-5:].mean() < 0.7 * np.log(3)
    client = sartor.FedAvg(rounds=40, cohort=4, client_optimizer=optimizer, server_momentum=0.0)
    assert client.fit(MODEL, data).loss[-5:].mean() < 0.7 * np.log(3)


def test_bf16_learns_as_well_as_f32():
    data = classification(clients=8).split(test=0.3, seed=0)
    losses = [
        sartor.FedAvg(rounds=60, cohort=8)
        .fit(MODEL, data, engine=sartor.Engine(precision=precision))
        .evaluate(data)
        .loss.mean()
        for precision in ("f32", "bf16")
    ]
    assert abs(losses[0] - losses[1]) < 0.02


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 15))
@settings(max_examples=12)
def test_any_sizes_train_and_score(sizes, cohort):
    draw = np.random.default_rng(0)
    client = np.repeat(np.arange(len(sizes)), sizes)
    data = sartor.data.from_arrays(None, draw.integers(0, 4, len(client)), client)
    model = sartor.models.categorical(4)
    central = sartor.FedAvg(rounds=3, cohort=cohort, learning_rate=0.3).fit(model, data)
    scores = central.evaluate(data, part="train", allow_trained=True)
    counts = np.stack([np.bincount(data.client(c)["y"], minlength=4) for c in data.ids])
    log_probs = np.asarray(model.apply(central.params, None, None))
    expected = -(counts * log_probs).sum(axis=1) / np.array(sizes)
    np.testing.assert_allclose(scores.loss, expected, rtol=1e-5)


def test_divergence_names_the_round_and_the_client():
    data = classification(clients=6, uneven=False)
    x = data.columns["x"].copy()
    x[data.part(data.position("3"))] *= 1e30  # finite, but its gradient is not
    bad = sartor.ClientData({**data.columns, "x": x}, data.rows, data.bounds, data.ids, data.seen)
    with pytest.raises(DivergedError, match=r"round 1\b.*'3'.*learning rate") as caught:
        sartor.FedAvg(rounds=5, cohort=6).fit(MODEL, bad)
    assert caught.value.round == 1
    assert caught.value.clients == ("3",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rounds": 0}, r"rounds.*at least 1.*got 0"),
        ({"cohort": 2.5}, r"cohort.*whole number.*2\.5"),
        ({"learning_rate": -1.0}, r"learning_rate must be a positive number.*-1"),
        ({"learning_rate": "0.1"}, r"learning_rate must be a positive number.*'0.1'"),
        (
            {"client_optimizer": {"name": "adam", "learning_rate": [1]}},
            r"must be a positive number",
        ),
        ({"weights": "sizes"}, r"weights.*'size'.*'uniform'.*'sizes'"),
        ({"server_momentum": 1.5}, r"server_momentum.*1\.5"),
        ({"client_optimizer": {"name": "adamm"}}, r"'adamm'.*did you mean 'adam'"),
        ({"client_optimizer": {"name": "adam", "lr": 1}}, r"takes no 'lr'"),
    ],
)
def test_bad_hyper_parameters(arguments, words):
    with pytest.raises(ConfigError, match=words):
        sartor.FedAvg(**arguments)


def test_data_that_the_model_cannot_take_is_refused_before_training():
    data = classification(classes=4)
    with pytest.raises(DataError, match=r"client '\d+', column 'y'.*3.*classes=4"):
        sartor.FedAvg().fit(MODEL, data)
    with pytest.raises(DataError, match=r"takes \{'x': \(5,\)\}, but .* has \{'x': \(4,\)\}"):
        sartor.FedAvg().fit(sartor.models.logistic(5, 4, scale=False), data)
    with pytest.raises(DataError, match="density model takes no inputs"):
        sartor.FedAvg().fit(sartor.models.categorical(4), data)
    numbers = sartor.data.from_arrays(np.ones((4, 4)), np.ones(4), [0, 0, 1, 1])
    with pytest.raises(DataError, match="use a regression model"):
        sartor.FedAvg().fit(MODEL, numbers)
    with pytest.raises(ConfigError, match=r"engine.devices is 64"):
        sartor.FedAvg().fit(MODEL, classification(), engine=sartor.Engine(devices=64))
    with pytest.raises(ConfigError, match=r"make the batch.*smaller"):
        sartor.FedAvg().fit(MODEL, classification(), engine=sartor.Engine(memory=1000))


def test_evaluation_refuses_data_without_a_test_part():
    data = classification()
    central = sartor.FedAvg(rounds=1).fit(MODEL, data)
    with pytest.raises(DataError, match=r"no client has a test part.*split\(test"):
        central.evaluate(data)


def test_training_that_ends_worse_than_a_guess_says_so():
    data = classification()
    owners = np.repeat(data.ids, data.sizes())
    large = sartor.data.from_arrays(1e4 * data.columns["x"], data.columns["y"], owners)
    with pytest.warns(UserWarning, match=r"FedAvg ends with .* a guess \(the shares of the cl"):
        sartor.FedAvg(rounds=10, cohort=3, learning_rate=0.05).fit(MODEL, large, seed=0)
    line = sartor.models.linear(features=4, scale=False)
    slow = sartor.FedAvg(rounds=10, learning_rate=1e-4)
    x = data.columns["x"]
    numbers = sartor.data.from_arrays(x, 50 + x[:, 0], owners)
    with pytest.warns(UserWarning, match="worse than a guess .the mean of all targets"):
        slow.fit(line, numbers, seed=0)
    with pytest.warns(UserWarning, match="the mean of all targets: 0"):
        slow.fit(line, sartor.data.from_arrays(100 * x, np.full(len(x), 5.0), owners), seed=0)


def test_a_warning_of_losses_knows_training_examples_alone():
    """Wild test targets of clients, seen or not, do not make training look good."""
    data = classification()
    x, owners = data.columns["x"], np.repeat(data.ids, data.sizes())
    numbers = sartor.data.from_arrays(x, 50 + x[:, 0], owners).split(test=0.5, unseen=0.3, seed=0)
    wild = np.array(numbers.columns["y"])
    train = [numbers.part(k, "train") for k in np.flatnonzero(numbers.seen)]
    hidden = np.setdiff1d(np.arange(len(wild)), np.concatenate(train))
    wild[hidden] += 1e6 * (-1) ** np.arange(len(hidden))
    other = dataclasses.replace(numbers, columns={**numbers.columns, "y": wild})
    line, slow = (
        sartor.models.linear(features=4, scale=False),
        sartor.FedAvg(rounds=10, learning_rate=1e-4),
    )
    with pytest.warns(UserWarning, match="worse than a guess .the mean of all targets"):
        slow.fit(line, other, seed=0)


def test_words_are_no_numbers_to_regress_on():
    words = sartor.data.from_dict({"a": ([[0.0], [1.0]], ["yes", "no"])})
    with pytest.raises(DataError, match=r"labels are words \(no, yes, ...\)"):
        sartor.FedAvg(rounds=1).fit(sartor.models.linear(features=1, scale=False), words, seed=0)

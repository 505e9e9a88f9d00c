"""Local and Finetune against plain SGD, and the clients' models from fit to file and back."""

from __future__ import annotations

import gc
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import plain
import pytest

import sartor
from sartor.errors import ConfigError, DataError, DivergedError, FileError
from sartor.personal import store as store_module
from sartor.personal.store import ModelStore
from sartor.randomness import key_data, mix, shuffles
from sartor.trees import flatten

MODEL = sartor.models.mlp(features=3, hidden=(5,), classes=3, scale=False)


def make_clients(sizes=(30, 4, 17, 55, 1, 9, 23), test=0.25, unseen=0.3):
    draw = np.random.default_rng(0)
    client = np.repeat([f"client-{k}" for k in range(len(sizes))], sizes)
    x = draw.standard_normal((len(client), 3)).astype(np.float32)
    y = np.where(
        np.isin(client, ["client-1", "client-3", "client-5"]), x.argmin(axis=1), x.argmax(axis=1)
    )
    return sartor.data.from_arrays(x, y, client).split(test=test, unseen=unseen, seed=0)


@pytest.fixture(scope="module")
def data():
    return make_clients()


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=20, cohort=4).fit(MODEL, data, seed=0)


def plain_sgd(params, x, y, word, epochs, batch, rate):
    """The paper's local training, one step after another."""
    gradient = jax.jit(jax.grad(lambda p, x, y: MODEL.loss(p, x, y).mean()))
    for epoch in range(epochs):
        order = shuffles(mix(word, "epoch", [epoch]), np.array([len(y)]))
        for begin in range(0, len(y), batch):
            rows = order[begin : begin + batch]
            step = gradient(params, x[rows], jnp.asarray(y[rows]))
            params = jax.tree.map(lambda a, g: a - rate * g, params, step)
    return params


def close(a, b, tolerance=2e-6):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=tolerance, rtol=0), a, b)


def test_finetune_is_sgd_from_the_central_model(data, central):
    algorithm = plain.Finetune(epochs=3, batch=8, learning_rate=0.1)
    personal = algorithm.fit(central, data, seed=7)
    for client in data.ids:
        own = data.client(client)
        word = mix(7, "personal", data.hashes[data.position(client)])
        expected = plain_sgd(central.params, own["x"], own["y"], word, 3, 8, 0.1)
        close(personal.params(client), expected)


def test_local_is_sgd_from_scratch_and_takes_nothing_from_the_central_model(data, central):
    algorithm = plain.Local(epochs=2, batch=8, learning_rate=0.1)
    alone, beside = algorithm.fit(MODEL, data, seed=7), algorithm.fit(central, data, seed=7)
    for client in data.ids:
        own = data.client(client)
        word = mix(7, "personal", data.hashes[data.position(client)])
        key = jax.random.wrap_key_data(jnp.asarray(key_data(mix(word, "init"))))
        expected = plain_sgd(MODEL.init(key), own["x"], own["y"], word, 2, 8, 0.1)
        close(alone.params(client), expected)
        jax.tree.map(np.testing.assert_array_equal, alone.params(client), beside.params(client))


def test_named_layers_train_and_the_others_stay(data, central):
    personal = plain.Finetune(epochs=3, learning_rate=0.1, layers=("dense_2",)).fit(central, data)
    assert set(personal.store.shapes) == {"dense_2/w", "dense_2/b"}
    params = personal.params("client-3")
    jax.tree.map(np.testing.assert_array_equal, params["dense_1"], central.params["dense_1"])
    assert not np.array_equal(params["dense_2"]["w"], central.params["dense_2"]["w"])
    with pytest.raises(ConfigError, match=r"no layer 'dense_9'.*dense_1.*dense_2"):
        plain.Finetune(layers=("dense_9",)).fit(central, data)


def test_personalizing_reads_only_the_clients_training_part(data, central):
    algorithm = plain.Finetune(epochs=2)
    before = algorithm.fit(central, data, seed=0).params("client-3")
    x = data.columns["x"].copy()
    x[np.setdiff1d(np.arange(len(x)), data.part(data.position("client-3")))] = 1e3
    spoiled = sartor.ClientData(
        {**data.columns, "x": x}, data.rows, data.bounds, data.ids, data.seen
    )
    after = algorithm.fit(central, spoiled, seed=0).params("client-3")
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize("q", [1, 2])
def test_a_client_that_keeps_the_central_model_is_unchanged_to_the_bit(data, q):
    algorithm = sartor.FedAvg if q == 1 else sartor.HypCluster
    more = {} if q == 1 else {"q": 2}
    central = algorithm(rounds=30, cohort=4, **more).fit(MODEL, data, seed=0)
    personal = plain.Finetune(learning_rate=1e-30).fit(central, data)
    with pytest.warns(UserWarning, match="no test examples"):
        scores = personal.evaluate(data)
    with pytest.warns(UserWarning, match="no test examples"):
        alone = central.evaluate(data)
    np.testing.assert_array_equal(scores.example_loss, scores.baseline.example_loss)
    assert scores.summary().loss_change.unchanged == 1.0
    np.testing.assert_allclose(scores.baseline.example_loss, alone.example_loss, rtol=1e-5)
    assert not scores.example_range.any()


def test_targets_beyond_the_known_ones_are_not_reckoned_with():
    """The range of a regression is that of the training targets of all clients."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 2)).astype(np.float32)
    clients = np.repeat([f"client-{k}" for k in range(6)], 10)
    data = sartor.data.from_arrays(x, x.sum(axis=1), clients).split(test=0.5, seed=0)
    central = sartor.FedAvg(rounds=3, cohort=6).fit(sartor.models.linear(2), data)
    personal = plain.Finetune(learning_rate=0.1).fit(central, data)
    least, most = personal.evaluate(data).example_range.T
    known = np.concatenate([data.client(k, "train")["y"] for k in data.ids])
    ends = [known.min(), known.max()]
    for row, client in enumerate(data.ids):
        rows, there = slice(5 * row, 5 * row + 5), data.client(client, "test")["x"]
        a, b = central.predict(there), personal.predict(client, there)
        gain = np.stack([(y - a) ** 2 - (y - b) ** 2 for y in ends])
        np.testing.assert_allclose(least[rows], gain.min(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(most[rows], gain.max(axis=0), rtol=1e-4, atol=1e-5)


def test_evaluation_is_each_clients_own_model_on_its_own_test_part(data, central):
    personal = plain.Finetune(epochs=5, learning_rate=0.1).fit(central, data)
    with pytest.warns(UserWarning, match=r"1 of 7 clients have no test examples"):
        scores = personal.evaluate(data, mixture=20)
    assert "client-4" not in scores.client
    assert scores.baseline.method == "FedAvg"
    test = np.concatenate([data.part(k, "test") for k in np.flatnonzero(data.seen)])
    for row, client in enumerate(scores.client):
        own = data.client(client, "test")
        loss, correct = MODEL.score(personal.params(client), own["x"], jnp.asarray(own["y"]))
        np.testing.assert_allclose(scores.loss[row], loss.mean(), rtol=1e-5)
        np.testing.assert_allclose(scores.accuracy[row], correct.mean(), rtol=1e-6)
        loss, _ = MODEL.score(central.params, own["x"], jnp.asarray(own["y"]))
        np.testing.assert_allclose(scores.baseline.loss[row], loss.mean(), rtol=1e-5)
    gain = scores.baseline.example_loss - scores.example_loss
    assert (scores.example_range[:, 0] <= gain).all() and (gain <= scores.example_range[:, 1]).all()
    # With as many draws as there are test examples the mixture is all of them.
    with pytest.warns(UserWarning, match="no test examples"):
        scores = personal.evaluate(data, mixture=10_000)
    x, y = data.columns["x"][test], jnp.asarray(data.columns["y"][test])
    for row, client in enumerate(scores.client):
        loss, _ = MODEL.score(personal.params(client), x, y)
        np.testing.assert_allclose(scores.extra["mixture_loss"][row], loss.mean(), rtol=1e-5)
    loss, _ = MODEL.score(central.params, x, y)
    np.testing.assert_allclose(scores.extra["central_mixture_loss"], loss.mean(), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*no test examples")
def test_save_and_load_give_the_same_predictions(data, central, tmp_path):
    personal = plain.Finetune(epochs=2).fit(central, data)
    personal.save(tmp_path / "models")
    loaded = sartor.load(tmp_path / "models")
    x = data.client("client-3", "test")["x"]
    for client in data.ids:
        np.testing.assert_array_equal(
            loaded.predict_proba(client, x), personal.predict_proba(client, x)
        )
    np.testing.assert_array_equal(loaded.evaluate(data).loss, personal.evaluate(data).loss)
    np.testing.assert_array_equal(loaded.predict("stranger", x), central.predict(x))
    with pytest.raises(DataError, match="no model for client 'stranger'"):
        loaded.predict("stranger", x, strict=True)
    # Saving again replaces; saving over something else does not.
    personal.save(tmp_path / "models")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileError, match="nothing was written"):
        personal.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_central_model_saves_and_loads(data, central, tmp_path):
    central.save(tmp_path / "central")
    loaded = sartor.load(tmp_path / "central")
    x = data.columns["x"][:5]
    np.testing.assert_array_equal(loaded.predict_proba(x), central.predict_proba(x))


def test_words_come_back_as_words(tmp_path):
    frame = sartor.data.from_dict(
        {
            "ann": ([[0.0], [1.0]] * 9, ["cat", "dog"] * 9),
            "bob": ([[0.0], [1.0]] * 9, ["dog", "cat"] * 9),
        }
    )
    model = sartor.models.logistic(features=1, classes=2, scale=False)
    central = sartor.FedAvg(rounds=5).fit(model, frame)
    personal = plain.Finetune(epochs=50, learning_rate=1.0).fit(central, frame)
    personal.save(tmp_path / "models")
    loaded = sartor.load(tmp_path / "models")
    assert loaded.predict("ann", [[0.0], [1.0]]).tolist() == ["cat", "dog"]
    assert loaded.predict("bob", [[0.0], [1.0]]).tolist() == ["dog", "cat"]


def test_large_stores_live_in_files_and_clean_up(data, central, monkeypatch, tmp_path):
    algorithm = plain.Finetune(epochs=2)
    engine = sartor.Engine(lanes=2)
    small = algorithm.fit(central, data, engine=engine)
    monkeypatch.setattr(store_module, "IN_MEMORY", 100)
    large = algorithm.fit(central, data, engine=engine)
    folder = large.store.directory
    assert small.store.directory is None and folder.is_dir()
    assert len(list(folder.glob("*.safetensors"))) == 4  # 7 clients, 2 at a time
    for client in data.ids:
        jax.tree.map(np.testing.assert_array_equal, small.params(client), large.params(client))
    large.save(tmp_path / "models")
    del large
    gc.collect()
    assert not folder.exists()
    assert len(sartor.load(tmp_path / "models")) == 7


def test_finished_shards_are_not_made_again(data, central, tmp_path):
    algorithm, engine = plain.Finetune(epochs=2), sartor.Engine(lanes=2)
    first = algorithm.fit(central, data, engine=engine, directory=tmp_path / "a")
    whole = {client: first.params(client) for client in data.ids}
    for name in ("shard-00001.safetensors", "shard-00002.safetensors"):
        (tmp_path / "a" / name).unlink()
    kept = (tmp_path / "a" / "shard-00000.safetensors").stat().st_mtime_ns
    again = algorithm.fit(central, data, engine=engine, directory=tmp_path / "a")
    assert (tmp_path / "a" / "shard-00000.safetensors").stat().st_mtime_ns == kept
    for client in data.ids:
        jax.tree.map(np.testing.assert_array_equal, whole[client], again.params(client))
    # Shards of other work are not taken for ours; unfinished ones make way, finished ones do not.
    other = plain.Finetune(epochs=3).fit(central, data, engine=engine, directory=tmp_path / "a")
    fresh = plain.Finetune(epochs=3).fit(central, data, engine=engine)
    for client in data.ids:
        jax.tree.map(np.testing.assert_array_equal, other.params(client), fresh.params(client))
    other.save(tmp_path / "a")
    with pytest.raises(FileError, match="finished models of other work"):
        algorithm.fit(central, data, engine=engine, directory=tmp_path / "a")


def test_a_few_very_long_clients_do_not_blow_up_the_plan(monkeypatch, data, central):
    from sartor.engine import blocks

    algorithm, engine = plain.Finetune(epochs=2, batch=4), sartor.Engine(lanes=4)
    expected = algorithm.fit(central, data, engine=engine)
    planned = []
    plan = blocks._plan
    monkeypatch.setattr(blocks, "_plan", lambda *a: planned.append(plan(*a)) or planned[-1])
    monkeypatch.setattr(blocks, "PLAN_BYTES", 16 * 4 * 4 * 4)  # 16 steps of 4 lanes of 4 rows
    narrow = algorithm.fit(central, data, engine=engine)
    assert max(p.at.size * 4 for p in planned) <= 4 * max(22, 16 * 4)
    assert len({p.at.shape for p in planned}) == 2
    for client in data.ids:
        close(narrow.params(client), expected.params(client))


def test_the_mixture_does_not_depend_on_the_order_of_clients(data, central):
    personal = plain.Finetune(epochs=1).fit(central, data)
    turned = data.select(data.ids[::-1])
    losses = []
    for d in (data, turned):
        with pytest.warns(UserWarning, match="no test examples"):
            scores = personal.evaluate(d, mixture=10)
        losses.append(dict(zip(scores.client, scores.extra["mixture_loss"], strict=True)))
    assert losses[0].keys() == losses[1].keys()
    for client, loss in losses[0].items():
        np.testing.assert_allclose(loss, losses[1][client], rtol=1e-6)


def test_replaced_files_are_noticed(data, central, tmp_path):
    plain.Finetune(epochs=1).fit(central, data).save(tmp_path / "m")
    handle = sartor.load(tmp_path / "m")
    few = data.select(data.ids[::-1][:3])
    plain.Finetune(epochs=1).fit(central, few).save(tmp_path / "m", replace=True)
    with pytest.raises(FileError, match=r"replaced since it was opened|does not hold"):
        [handle.params(client) for client in data.ids[:3]]


def test_other_work_in_the_same_directory_is_noticed(data, central, tmp_path):
    first = plain.Finetune(epochs=1).fit(central, data, directory=tmp_path / "m")
    plain.Finetune(epochs=2).fit(central, data, directory=tmp_path / "m")
    with pytest.raises(FileError, match="replaced since it was opened"):
        first.params(data.ids[0])
    with pytest.raises(FileError, match="replaced since it was opened"):
        first.evaluate(data)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("mine")
    with pytest.raises(FileError, match=r"something else already.*todo"):
        plain.Finetune(epochs=1).fit(central, data, directory=tmp_path / "notes")
    central.save(tmp_path / "central")
    with pytest.raises(FileError, match="a saved central model"):
        plain.Finetune(epochs=1).fit(central, data, directory=tmp_path / "central")


def test_saving_does_not_lose_other_clients(data, central, tmp_path):
    path, algorithm = tmp_path / "m", plain.Finetune(epochs=1)
    everybody = algorithm.fit(central, data)
    everybody.save(path)
    loaded = sartor.load(path)
    later = algorithm.fit(loaded.central, data.select(data.ids[:2]))
    with pytest.raises(FileError, match=r"5 clients that are not among.*replace=True"):
        later.save(path)
    with pytest.raises(FileError, match=r"7 clients that are not among.*replace=True"):
        central.save(path)
    assert len(sartor.load(path)) == 7
    everybody.save(path)  # the same clients
    later.save(path, replace=True)
    assert set(sartor.load(path).clients) == set(data.ids[:2])
    everybody.save(path)  # more clients
    assert len(sartor.load(path)) == 7
    central.save(path, replace=True)
    assert sartor.load(path).q == 1
    with pytest.raises(FileError, match=r"holds a central model.*replace=True"):
        everybody.save(path)
    central.save(path)
    assert sartor.load(path).q == 1
    everybody.save(path, replace=True)
    assert len(sartor.load(path)) == 7


def test_fitting_does_not_lose_other_clients(data, central, tmp_path):
    path = tmp_path / "m"
    plain.Finetune(epochs=1).fit(central, data, directory=path)  # and not saved
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(FileError, match=r"models of 5 clients that are not among these"):
        plain.Finetune(epochs=1).fit(central, data.select(data.ids[:2]), directory=path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    plain.Finetune(epochs=2).fit(central, data, directory=path)  # the same clients


def test_saving_never_deletes_what_is_not_ours(data, central, tmp_path):
    personal = plain.Finetune(epochs=1).fit(central, data)
    personal.save(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match="nothing was written"):
        personal.save(tmp_path / "m")
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"


def test_damaged_and_foreign_models_are_named(data, central, tmp_path):
    path = tmp_path / "models"
    plain.Finetune(epochs=1).fit(central, data).save(path)
    with pytest.raises(FileError, match=rf"there are models in {path}"):
        sartor.load(tmp_path)
    shard = path / "shard-00000.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match=r"shard-00000.*damaged"):
        sartor.load(path).params("client-3")
    shard.unlink()
    with pytest.raises(FileError, match=r"shard-00000.safetensors is missing; restore"):
        sartor.load(path)
    manifest = path / "manifest.json"
    table = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**table, "version": 99}))
    with pytest.raises(FileError, match="version 99"):
        sartor.load(path)
    manifest.write_text("{")
    with pytest.raises(FileError, match="not readable JSON"):
        sartor.load(path)
    manifest.write_text("{}")
    with pytest.raises(FileError, match="does not hold models saved by Sartor"):
        sartor.load(path)
    manifest.write_text(json.dumps({k: v for k, v in table.items() if k != "objective"}))
    with pytest.raises(FileError, match="is damaged"):
        sartor.load(path)


def test_clients_are_trained_and_kept_a_block_at_a_time():
    data = make_clients(sizes=(20,) * 50)
    central = sartor.FedAvg(rounds=1).fit(MODEL, data)
    personal = plain.Finetune(epochs=1).fit(central, data, engine=sartor.Engine(lanes=4))
    assert [len(shard.ids) for shard in personal.store.shards] == [4] * 12 + [2]


def test_errors_of_use(data, central):
    with pytest.raises(ConfigError, match=r"starts from a central model.*FedAvg"):
        plain.Finetune().fit(MODEL, data)
    with pytest.raises(ConfigError, match=r"central must be a central model.*\(got 3\)"):
        plain.Finetune().fit(3, data)
    with pytest.raises(ConfigError, match="layers is empty"):
        plain.Finetune(layers=()).fit(central, data)
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        plain.Finetune().fit(central, data, seed=0.7)
    with pytest.raises(DataError, match=r"x has shape \(1, 2\).*\(n, 3\)"):
        central.predict([[1.0, 2.0]])
    with pytest.raises(DataError, match="NaN or infinite value in example 1"):
        central.predict([[1.0, 2.0, 3.0], [np.nan, 0.0, 0.0]])
    with pytest.raises(FileError, match="holds no models saved by Sartor"):
        sartor.load("nowhere")
    with pytest.raises(DataError, match="must be an array of numbers"):
        central.predict([["a", "b", "c"]])
    with pytest.raises(DataError, match="holds no examples"):
        central.predict(np.zeros((0, 3)))
    with pytest.raises(ConfigError, match="cluster=0 to 0"):
        central.predict(data.columns["x"], cluster=7)
    for fit in (sartor.FedAvg(rounds=1).fit, plain.Local().fit):
        with pytest.raises(ConfigError, match=r"data must be sartor's ClientData.*from_frame"):
            fit(MODEL, [1, 2, 3])
    with pytest.raises(ConfigError, match="model must be a model such as"):
        sartor.FedAvg(rounds=1).fit(data, MODEL)
    with pytest.raises(ConfigError, match="optimizer must be a"):
        plain.Finetune(optimizer="adam")
    with pytest.raises(ConfigError, match="local must be a model"):
        plain.Mapper(local="mlp")
    assert plain.Finetune(layers="dense_1").layers == ("dense_1",)
    with pytest.raises(ConfigError, match=r"epochs.*at least 1"):
        plain.Local(epochs=0)
    with pytest.raises(DivergedError, match=r"diverged for .* clients"):
        plain.Finetune(learning_rate=1e30).fit(central, data)
    personal = plain.Finetune(epochs=1).fit(central, data.select(data.ids[:3]))
    with pytest.raises(DataError, match=r"clients without a model here: [34]"):
        personal.evaluate(data)
    numbers = {"x": data.columns["x"], "y": data.columns["y"].astype(np.float32)}
    floats = sartor.ClientData(numbers, data.rows, data.bounds, data.ids, data.seen)
    regression = sartor.FedAvg(rounds=1).fit(sartor.models.linear(3, scale=False), floats)
    with pytest.raises(ConfigError, match="use predict"):
        regression.predict_proba(data.columns["x"])


def test_a_store_reads_one_client_without_the_others(tmp_path):
    shapes = flatten(jax.eval_shape(MODEL.init, jax.random.key(0)))
    store = ModelStore(shapes, tmp_path)
    stack = {
        n: np.random.default_rng(0).random((3, *s.shape), np.float32) for n, s in shapes.items()
    }
    store.add(("a", "b", "c"), stack)
    again = ModelStore(shapes, tmp_path)
    for name, leaf in again.get("b").items():
        np.testing.assert_array_equal(leaf, stack[name][1])


def test_a_frame_is_taken_by_the_names_of_its_columns(tmp_path):
    draw = np.random.default_rng(0)
    names = ("a", "b", "c")
    frame = pd.DataFrame(draw.standard_normal((60, 3)).astype(np.float32), columns=list(names))
    frame["c"] = frame["c"] > 0
    table = frame.assign(y=(frame["a"] > 0).astype(int), who=np.repeat(["u", "v"], 30))
    data = sartor.data.from_frame(table, client="who", label="y")
    assert data.feature_names == names
    data.save(tmp_path / "data")
    assert sartor.data.open(tmp_path / "data").feature_names == names
    model = sartor.models.logistic(features=3, classes=2, scale=False)
    central = sartor.FedAvg(rounds=5, cohort=2).fit(model, data, seed=0)
    central.save(tmp_path / "central")
    personal = plain.Finetune().fit(central, data, seed=0)
    personal.save(tmp_path / "personal")
    inputs = frame.to_numpy(np.float32)
    for one in (central, sartor.load(tmp_path / "central")):
        expected = one.predict_proba(inputs)
        turned = frame[["c", "b", "a"]].assign(more=1.0)
        np.testing.assert_array_equal(one.predict_proba(turned), expected)
        with pytest.raises(DataError, match="x has no column 'b'"):
            one.predict(frame[["a", "c"]])
        for client in ("u", 59):
            with pytest.raises(ConfigError, match="knows no clients"):
                one.predict(client, inputs)
    for some in (personal, sartor.load(tmp_path / "personal")):
        expected = some.predict_proba("u", inputs)
        np.testing.assert_array_equal(some.predict_proba("u", frame[["b", "c", "a"]]), expected)
    other = sartor.data.from_frame(table[["c", "b", "a", "y", "who"]], client="who", label="y")
    with pytest.raises(DataError, match="number 0 is 'a' there and 'c' here"):
        central.evaluate(other, part="train", allow_trained=True)
    with pytest.raises(DataError, match="x must be an array of numbers"):
        central.predict(frame.assign(b="word"))
    columns = {name: frame[name].to_numpy() for name in "bca"}
    np.testing.assert_array_equal(central.predict_proba(columns), central.predict_proba(inputs))
    twice = pd.concat([frame, frame[["a"]]], axis=1)
    with pytest.raises(DataError, match="more than one column 'a'"):
        central.predict(twice)
    nameless = sartor.data.from_arrays(inputs, table["y"], table["who"])
    plain.Finetune().fit(central, nameless, seed=0).save(tmp_path / "nameless")
    again = sartor.load(tmp_path / "nameless")
    assert again.feature_names == again.central.feature_names == names
    mixed = plain.Dapper(source="public", cover=(0.5,))
    with pytest.raises(DataError, match=r"the clients' data has other features.*number 0 is 'a'"):
        mixed.fit(central, data, public=other)


def test_names_of_columns_may_be_anything_that_pandas_takes():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.standard_normal((40, 2)).astype(np.float32))
    table = frame.assign(y=(frame[0] > 0).astype(int), who=np.repeat(["u", "v"], 20))
    data = sartor.data.from_frame(table, client="who", label="y")
    assert data.feature_names == ("0", "1")
    chosen = sartor.data.from_frame(table, client="who", label="y", features=[1, 0])
    assert chosen.feature_names == ("1", "0")
    model = sartor.models.logistic(features=2, classes=2, scale=False)
    central = sartor.FedAvg(rounds=2).fit(model, data, seed=0)
    expected = central.predict_proba(frame.to_numpy())
    np.testing.assert_array_equal(central.predict_proba(frame[[1, 0]]), expected)
    with pytest.raises(ConfigError, match="features: 'a' is named twice"):
        sartor.data.from_frame(
            table.rename(columns={0: "a"}), client="who", label="y", features=["a", "a"]
        )

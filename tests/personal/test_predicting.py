"""Predictions: for one client or one for each example, padded, compiled a few times, in words."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import plain
import pyarrow as pa
import pytest

import sartor
from sartor.errors import DataError
from sartor.personal import store

IDS = ("ann", "bob", "7", "8")


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    owner = np.repeat(IDS, (30, 8, 20, 12))
    x = draw.standard_normal((len(owner), 3)).astype(np.float32)
    turned = np.where(np.isin(owner, ("bob", "8")), -x[:, 0], x[:, 0])
    return sartor.data.from_arrays(x, np.where(turned > 0, "yes", "no"), owner)


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=10).fit(sartor.models.logistic(3, 2), data)


@pytest.fixture(scope="module")
def personal(central, data):
    return plain.Finetune(epochs=20, learning_rate=0.3).fit(central, data)


X = np.random.default_rng(1).standard_normal((700, 3)).astype(np.float32)
WHO = np.array([*IDS, "nobody"])[np.random.default_rng(2).integers(0, 5, len(X))]


def one_by_one(models, who, x):
    return np.concatenate(
        [models.predict_proba(name, row[None]) for name, row in zip(who, x, strict=True)]
    )


@pytest.mark.parametrize("form", [list, np.array, pd.Series, pa.array, pd.Categorical])
def test_every_example_has_a_client(personal, form):
    found = personal.predict_proba(form(WHO.tolist()), X)
    np.testing.assert_allclose(found, one_by_one(personal, WHO, X), atol=1e-6)
    words = personal.predict(form(WHO.tolist()), X)
    assert words.tolist() == np.array(["no", "yes"])[found.argmax(axis=1)].tolist()


def test_ids_that_are_numbers(personal):
    whole = personal.predict_proba(["7", "8", "7"], X[:3])
    for form in (np.array([7, 8, 7]), pd.Series([7.0, 8.0, 7.0]), [7, np.int64(8), "7"]):
        np.testing.assert_array_equal(personal.predict_proba(form, X[:3]), whole)
    np.testing.assert_array_equal(
        personal.predict(np.array("ann"), X[:3]), personal.predict("ann", X[:3])
    )


def test_ids_and_rows_with_different_indexes_are_refused(personal):
    frame = pd.DataFrame(X[:6], columns=list("abc"), index=list("uvwxyz"))
    who = pd.Series(WHO[:6], index=frame.index)
    whole = personal.predict_proba(who, frame)
    np.testing.assert_array_equal(whole, personal.predict_proba(WHO[:6], X[:6]))
    for ask in (personal.predict, personal.predict_proba):
        for turned in (who[::-1], who.reset_index(drop=True)):
            with pytest.raises(DataError, match=r"different indexes.*reindex.*to_numpy"):
                ask(turned, frame)
    np.testing.assert_array_equal(
        personal.predict_proba(who[::-1].reindex(frame.index), frame), whole
    )
    for client, x in ((who.to_numpy(), frame), (who, frame.to_numpy()), (who.tolist(), frame)):
        np.testing.assert_array_equal(personal.predict_proba(client, x), whole)
    with pytest.raises(DataError, match="client has 5 ids and x has 6"):
        personal.predict(who[:5], frame)


def test_many_ids_of_which_none_is_known_are_named(personal, central):
    who = np.array([17, 18, 17])  # which were '017' and '018'
    for ask in (personal.predict, personal.predict_proba):
        with pytest.warns(
            UserWarning, match=r"any of the 2 ids given, such as '17'.*'ann'"
        ) as said:
            ask(who, X[:3])
        assert len(said) == 1 and said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        personal.predict(["ann", "17", "18"], X[:3])
        personal.predict(["17"] * 3, X[:3])
        personal.predict(17, X[:3])


def test_unknown_clients_get_the_central_model_or_an_error(personal, central):
    who = ["ann", "x1", "bob", "x2", "x3", "x4"]
    found = personal.predict_proba(who, X[:6])
    np.testing.assert_allclose(
        found[[1, 3, 4, 5]], central.predict_proba(X[[1, 3, 4, 5]]), atol=1e-6
    )
    with pytest.raises(DataError, match=r"no model for 4 clients \('x1', 'x2', 'x3' …\)"):
        personal.predict(who, X[:6], strict=True)
    with pytest.raises(DataError, match="no model for client 'x1' among the 4 here; fit one"):
        personal.predict("x1", X[:1], strict=True)


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (["ann", "bob"], "client has 2 ids and x has 3 examples"),
        ([], "client has 0 ids and x has 3 examples"),
        (
            ("ann", "bob", "ann"),
            r"a client's id must be a text or a number.*got \('ann', 'bob', 'ann'\)",
        ),
        ({"ann": 1}, "a client's id must be a text or a number"),
        (None, "a client's id must be a text or a number.*got None"),
        (float("nan"), "a client's id must be a text or a number.*got nan"),
        (["ann", None, "bob"], "a client's id must be a text or a number.*got None"),
        (["ann", ["bob"], "bob"], "client must hold texts or numbers"),
        (
            [("ann",), ("bob",), ("ann",)],
            r"a client's id must be a text or a number.*got \('ann',\)",
        ),
    ],
)
def test_what_is_no_id_is_refused(personal, client, message):
    with pytest.raises(DataError, match=message):
        personal.predict(client, X[:3])
    if not isinstance(client, list):
        with pytest.raises(DataError, match=message):
            personal.params(client)


def test_a_class_without_a_word_is_no_answer(data):
    """The model has a third class, for which the data has no word."""
    model = sartor.models.logistic(3, 3)
    central = sartor.FedAvg(rounds=1).fit(model, data)
    leaves = {name: np.array(a) for name, a in central.hypotheses["dense_1"].items()}
    leaves["b"][..., 2] = 9.0  # which is sure to be the third
    third = sartor.CentralModel(
        model, {"dense_1": leaves}, central.algorithm, central.history, central.label_names
    )
    assert (third.predict_proba(X).argmax(axis=1) == 2).all()
    named = np.array(["no", "yes"])[third.predict_proba(X)[:, :2].argmax(axis=1)]
    assert third.predict(X).tolist() == named.tolist()
    personal = plain.Finetune(epochs=1).fit(third, data)
    assert set(personal.predict("ann", X)) <= {"no", "yes"}


compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)


def test_any_number_of_examples_takes_a_few_programs(personal, central):
    before = len(compiled)
    for count in range(1, 301, 6):
        central.predict_proba(X[:count])
        personal.predict_proba("ann", X[:count])
        personal.predict_proba(WHO[:count].tolist(), X[:count])
    assert len(compiled) - before <= 20  # of 150 calls


@pytest.mark.parametrize("count", [1, 3, 16, 17, 100, 257, 700])
def test_what_fills_up_a_batch_changes_nothing(personal, central, count):
    for predict in (central.predict_proba, lambda x: personal.predict_proba("bob", x)):
        whole = predict(X)
        np.testing.assert_allclose(predict(X[:count]), whole[:count], atol=1e-6)
        others = X.copy()
        others[count:] = 1e30  # whatever is next to an example in its batch
        np.testing.assert_array_equal(predict(others)[:count], whole[:count])


def test_more_examples_than_one_call_takes(personal, monkeypatch):
    whole = personal.predict_proba(WHO, X)
    monkeypatch.setattr("sartor.engine.predicting.AT_ONCE", 512)  # two tiles
    monkeypatch.setattr(store, "GATHERED", 2 * personal.store.bytes)  # two models
    np.testing.assert_allclose(personal.predict_proba(WHO, X), whole, atol=1e-6)


@pytest.mark.parametrize("wanted", [IDS, ("7",)])
def test_models_from_files(personal, tmp_path, wanted, data, central):
    many = plain.Finetune(epochs=1).fit(central, data)
    many.save(tmp_path / "m")
    loaded = sartor.load(tmp_path / "m")
    who = np.array(wanted)[np.arange(20) % len(wanted)]
    np.testing.assert_array_equal(
        loaded.predict_proba(who, X[:20]), many.predict_proba(who, X[:20])
    )


def test_few_models_of_a_large_file_are_read_alone(tmp_path):
    owner = np.repeat([f"c{k}" for k in range(40)], 3)
    x = np.random.default_rng(0).standard_normal((120, 3)).astype(np.float32)
    data = sartor.data.from_arrays(x, (x[:, 0] > 0).astype(int), owner)
    models = plain.Local(epochs=1).fit(sartor.models.logistic(3, 2), data)
    models.save(tmp_path / "m")
    loaded = sartor.load(tmp_path / "m")
    who = ["c3", "c30", "c3"]
    np.testing.assert_array_equal(
        loaded.predict_proba(who, x[:3]), models.predict_proba(who, x[:3])
    )


def test_mixtures_of_models(central, data):
    personal = plain.Mapper(rounds=1, cover=(0.3, 0.9), select="train").fit(central, data)
    found = personal.predict_proba(WHO, X)
    np.testing.assert_allclose(found, one_by_one(personal, WHO, X), atol=1e-6)


def test_models_without_inputs():
    owner = np.repeat(["a", "b"], 10)
    y = np.where(owner == "a", 1, 2)
    data = sartor.data.from_dict({k: {"y": y[owner == k]} for k in ("a", "b")})
    model = sartor.models.categorical(symbols=4)
    central = sartor.FedAvg(rounds=1).fit(model, data)
    personal = plain.Finetune(epochs=50, learning_rate=0.5).fit(central, data)
    assert personal.predict_proba("a", None).shape == (4,)
    assert personal.predict("a", None) == 1
    assert personal.predict(["a", "b", "b", "nobody"], None).tolist()[:3] == [1, 2, 2]


def test_features_with_names_of_their_own(tmp_path):
    """A model of the user's own that takes several columns."""
    draw = np.random.default_rng(0)
    owner = np.repeat(["a", "b"], 20)
    columns = {"u": draw.normal(size=40).astype(np.float32), "v": np.arange(40) % 3}
    y = (columns["u"] > 0).astype(int)
    data = sartor.data.from_dict(
        {k: {n: c[owner == k] for n, c in (columns | {"y": y}).items()} for k in ("a", "b")}
    )

    def apply(params, x, key):
        score = params["w"] * x["u"] + params["e"][x["v"]]
        return jax.nn.log_softmax(jnp.stack([-score, score], axis=-1))

    init = lambda key: {"w": jnp.ones(()), "e": jnp.zeros(3)}  # noqa: E731
    central = sartor.FedAvg(rounds=2).fit(sartor.Model(init, apply, classes=2), data)
    personal = plain.Finetune().fit(central, data)
    found = personal.predict_proba(owner, columns)
    for k in ("a", "b"):
        mine = {name: column[owner == k] for name, column in columns.items()}
        np.testing.assert_allclose(personal.predict_proba(k, mine), found[owner == k], atol=1e-6)


def test_values_too_far_to_be_scaled_are_named():
    x = np.random.default_rng(0).standard_normal((40, 2)) * [1e-3, 1.0]
    data = sartor.data.from_arrays(x, np.arange(40) % 2, np.arange(40) % 4)
    central = sartor.FedAvg(rounds=1).fit(sartor.models.logistic(2, 2), data)
    with pytest.raises(DataError, match="example 1 that is too far"):
        central.predict([[0.0, 0.0], [3e38, 0.0]])

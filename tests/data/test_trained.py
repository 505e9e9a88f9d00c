"""Rows are known by their content: models do not score what they were trained on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sartor
from sartor.data.trained import Trained, part_words
from sartor.errors import DataError

MODEL = sartor.models.logistic(features=3, classes=2)


def table(seed=0, clients=8, size=30):
    draw = np.random.default_rng(seed)
    owner = np.repeat([f"shop-{k}" for k in range(clients)], size)
    x = draw.standard_normal((len(owner), 3))
    y = (x[:, 0] + draw.standard_normal(len(owner)) > 0).astype(int)
    return x, y, owner


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    whole = sartor.data.from_arrays(*table())
    data = whole.split(unseen=0.25, test=0.25, seed=0)
    central = sartor.FedAvg(rounds=3).fit(MODEL, data)
    personal = sartor.Finetune(epochs=1, learning_rate=0.05, guard=False).fit(central, data)
    folder = tmp_path_factory.mktemp("models")
    central.save(folder / "central")
    personal.save(folder / "personal")
    loaded = [sartor.load(folder / kind) for kind in ("central", "personal")]
    return whole, data, [central, personal, *loaded]


def shuffled(seed):
    x, y, owner = table()
    order = np.random.default_rng(seed).permutation(len(y))
    return sartor.data.from_arrays(x[order], y[order], owner[order])


@pytest.mark.parametrize("which", range(4))
def test_rows_of_another_split_are_refused(fitted, which):
    whole, data, models = fitted
    assert models[which].evaluate(data).table() is not None
    for other in (whole.split(test=0.25, seed=1), shuffled(2).split(test=0.25, seed=3)):
        with pytest.raises(DataError, match=r"test rows of \d+ clients \('shop-.*allow_trained"):
            models[which].evaluate(other)
        scores = models[which].evaluate(other, allow_trained=True)
        assert scores.extra["trained_rows"].sum() > 0
        assert "TOO GOOD" in str(scores.summary())
        assert "trained_rows" in scores.table().column_names


def test_the_number_of_rows_is_exact_where_rows_differ(fitted):
    whole, data, (central, *_) = fitted
    other = whole.split(test=0.25, seed=1)
    seen = data.select(data.seen)
    used = {row for k in range(len(seen)) for row in seen.part(k)}
    expected = [sum(row in used for row in other.part(k, "test")) for k in range(len(other))]
    assert central.trained.among(other, "test").tolist() == expected


def test_training_and_chosen_rows_are_no_test_rows(fitted):
    _, data, (central, personal, *_) = fitted
    for model in (central, personal):
        with pytest.raises(DataError, match="train rows"):
            model.evaluate(data, part="train")
    split = sartor.data.from_arrays(*table()).split(validation=0.2, test=0.2, seed=0)
    central = sartor.FedAvg(rounds=2).fit(MODEL, split)
    central.evaluate(split, part="validation")  # nothing was chosen by it
    chosen = sartor.Dapper(cover=(0.0, 1.0), learning_rate=0.01).fit(central, split)
    with pytest.raises(DataError, match="validation rows"):
        chosen.evaluate(split, part="validation")


def test_personalizing_on_another_split_is_refused(fitted):
    whole, _, (central, *_) = fitted
    other = whole.split(validation=0.2, test=0.2, seed=5)
    with pytest.raises(DataError, match="validation and test rows"):
        sartor.Finetune().fit(central, other)
    models = sartor.Finetune(learning_rate=0.01, guard=False).fit(
        central, other, allow_trained=True
    )
    with pytest.raises(DataError, match="were trained on"):
        models.evaluate(other)
    sartor.Finetune(learning_rate=0.01, guard=False).fit(central, whole)  # nothing is held out


def test_a_seen_client_stays_seen(fitted):
    whole, data, (central, *_) = fitted
    swapped = dataclasses.replace(data, seen=~data.seen)
    assert (central.evaluate(swapped).seen == data.seen).all()
    assert whole.seen.all()


def test_compare_demands_the_same_rows(fitted):
    whole, data, (central, *_) = fitted
    one = central.evaluate(data)
    other = central.evaluate(whole.split(test=0.25, seed=1), allow_trained=True)
    assert (one.test_size == other.test_size).all()
    with pytest.raises(DataError, match="other test rows"):
        sartor.compare(one, other, metric="loss")
    assert sartor.compare(one, central.evaluate(data), metric="loss").trained_rows == 0
    marked = sartor.compare(other, other, metric="loss")
    assert marked.trained_rows == 2 * other.extra["trained_rows"].sum() > 0
    assert "TOO GOOD" in str(marked)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.float32, np.float64])
def test_rows_are_known_in_any_type(kind):
    x, y, owner = table()
    x = np.round(10 * x + 60)
    split = sartor.data.from_arrays(x.astype(np.int32), y, owner).split(test=0.25, seed=0)
    trained = Trained.on(split)
    other = sartor.data.from_arrays(x.astype(kind), y.astype(kind), owner)
    assert trained.among(other, "train").sum() == split.sizes("train").sum()


def test_clients_under_other_ids_are_known():
    x, y, owner = table()
    split = sartor.data.from_arrays(x, y, owner).split(test=0.25, seed=0)
    central = sartor.FedAvg(rounds=1).fit(MODEL, split)
    renamed = np.char.replace(owner, "shop-", "00")
    other = sartor.data.from_arrays(x, y, renamed).split(test=0.25, seed=1)
    with pytest.raises(DataError, match="under other ids"):
        central.evaluate(other)
    new = sartor.data.from_arrays(*table(seed=1)[:2], renamed).split(test=0.25, seed=1)
    assert not central.trained.among(new, "test").any()


def test_public_rows_are_trained_on(fitted):
    whole, data, (central, *_) = fitted
    mixing = sartor.Dapper(source="public", cover=(0.5,), learning_rate=0.01, guard=False)
    models = mixing.fit(central, data, public=whole)
    with pytest.raises(DataError, match="were trained on"):
        models.evaluate(data)
    mixing.fit(central, data, public=data).evaluate(data)  # its training parts


def test_rows_that_chose_a_step_size_are_known(fitted):
    split = sartor.data.from_arrays(*table()).split(validation=0.2, test=0.2, seed=0)
    central = sartor.FedAvg(rounds=2).fit(MODEL, split)
    models = sartor.Finetune(guard=False).fit(central, split)
    with pytest.raises(DataError, match="validation rows"):
        models.evaluate(split, part="validation")
    given = sartor.Finetune(guard=False, learning_rate=0.01).fit(central, split)
    given.evaluate(split, part="validation")


def test_equal_rows_of_discrete_data():
    """Of 50 symbols most are drawn again, so only whole tables tell rows apart."""
    drawn = sartor.data.synthetic(clients=20, samples=60)
    data, other = (drawn.split(test=0.25, seed=seed) for seed in (0, 1))
    trained = Trained.on(data)
    assert not trained.identifying
    assert trained.among(data, "test").sum() == 0
    assert trained.among(other, "test").sum() > 20
    fresh = sartor.data.synthetic(clients=20, samples=60, seed=5).split(test=0.25, seed=0)
    assert trained.among(fresh, "test").sum() == 0


@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 5))
def test_the_same_split_never_has_trained_rows(seed, size, symbols):
    draw = np.random.default_rng(seed)
    owner = draw.integers(0, 3, size)
    data = sartor.data.from_arrays(None, draw.integers(0, symbols, size), owner)
    split = data.split(validation=0.2, test=0.3, seed=seed)
    trained = Trained.on(split, validation=True, seen_only=False)
    assert trained.among(split, "test").sum() == 0
    assert Trained.on(data).among(data, "train").tolist() == data.sizes("train").tolist()
    assert trained.with_(Trained.on(split)).words.tolist() == trained.words.tolist()


@given(st.integers(0, 2**32))
def test_words_survive_order_and_type(seed):
    draw = np.random.default_rng(seed)
    x, y = draw.integers(0, 9, (30, 2)).astype(np.float32), draw.integers(0, 2, 30)
    owner, order = draw.integers(0, 4, 30), draw.permutation(30)
    one = sartor.data.from_arrays(x, y.astype(np.int8), owner)
    other = sartor.data.from_arrays(np.where(x, x, -0.0)[order], y[order], owner[order])
    other = other.select(one.ids)
    everyone = np.arange(len(one))
    words = part_words(one, everyone, "train")
    assert (words == part_words(other, everyone, "train")).all()
    changed = x.copy()
    changed[0, 0] += 1
    third = sartor.data.from_arrays(changed, y, owner)
    assert (words != part_words(third, everyone, "train")).sum() == 1


def test_labels_of_a_late_client_are_numbered_as_the_model_does():
    x, y, owner = table()
    words = np.array(["low", "mid"])[y]
    central = sartor.FedAvg(rounds=1).fit(MODEL, sartor.data.from_arrays(x, words, owner))
    late = sartor.data.from_arrays(x[:9] + 1, ["mid"] * 9, ["late"] * 9)
    with pytest.raises(DataError, match="with_labels"):
        sartor.Finetune(epochs=1).fit(central, late)
    late = sartor.data.with_labels(late, central.label_names)
    models = sartor.Finetune(epochs=1).fit(central, late)
    assert set(models.predict("late", x[:5])) <= {"low", "mid"}
    with pytest.raises(DataError, match="'low' is not among"):
        sartor.data.with_labels(sartor.data.from_arrays(None, ["low"], ["a"]), ["mid"])
    with pytest.raises(DataError, match="are numbers"):
        sartor.data.with_labels(sartor.data.from_arrays(None, [1], ["a"]), ["mid"])


def test_what_is_alike_by_chance_is_no_trained_row():
    """Idle sensors, and small counts: fresh clients have some rows that others had."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((1000, 3))
    x[:80] = 0.0
    idle = sartor.data.from_arrays(x, np.zeros(1000, int), np.arange(1000) % 40)
    trained = Trained.on(idle)
    fresh = sartor.data.from_arrays(np.zeros((20, 3)), np.zeros(20, int), ["new"] * 20)
    assert not trained.among(fresh, "train").any()
    counts = draw.integers(0, 30, (1200, 2))
    trained = Trained.on(sartor.data.from_arrays(counts, draw.integers(0, 2, 1200), ["a"] * 1200))
    others = sartor.data.from_arrays(
        draw.integers(0, 30, (2500, 2)), draw.integers(0, 2, 2500), np.arange(2500) // 5
    )
    assert not trained.among(others, "train").any()


def test_public_rows_under_another_id_are_known(fitted):
    _, data, (central, *_) = fitted
    x, y, _ = table()
    web = sartor.data.from_arrays(x, y, ["web"] * len(y))
    mixing = sartor.Dapper(source="public", cover=(0.5,), learning_rate=0.01, guard=False)
    models = mixing.fit(central, data, public=web)
    with pytest.raises(DataError, match="were trained on"):
        models.evaluate(data)


def test_models_of_an_earlier_version_say_that_they_know_no_rows(fitted, tmp_path):
    from sartor.central.manifest import TRAINED
    from sartor.files import save_tree
    from sartor.personal.load import _trained

    *_, (central, *_) = fitted
    words = central.trained._asdict()
    save_tree(tmp_path / TRAINED, {"central": words}, {})
    assert _trained(tmp_path, "central").words.tolist() == words.pop("words").tolist()
    del words["contents"]
    save_tree(tmp_path / TRAINED, {"central": words}, {})
    with pytest.warns(UserWarning, match="of an earlier version"):
        assert _trained(tmp_path, "central") is None

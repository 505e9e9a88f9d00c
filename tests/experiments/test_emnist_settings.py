"""The settings of the EMNIST experiment: its data, who is seen, and which methods it runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sartor
from sartor.advice.holdout import merge_validation
from sartor.errors import ConfigError, DataError
from sartor.experiments.common.saved import slug
from sartor.experiments.emnist import EmnistSettings, reproduce
from sartor.experiments.emnist.methods import families
from sartor.experiments.emnist.settings import COLUMNS, PARTS, ROWS, divide


@pytest.fixture(scope="module")
def writers():
    return sartor.data.handwriting(68, images=8)


def test_writers_are_shuffled_and_divided_as_in_the_paper(writers):
    data = divide(writers, "shuffled", seed=3)
    assert (int(data.seen.sum()), int((~data.seen).sum())) == (50, 18)
    again = divide(writers.select(list(writers.ids)[::-1]), "shuffled", seed=3)
    assert dict(zip(data.ids, data.seen, strict=True)) == dict(
        zip(again.ids, again.seen, strict=True)
    )
    assert (divide(writers, "shuffled", seed=4).seen != data.seen).any()
    # 548 writers give 403 and 145, and 3400 the paper's 2500 and 900.
    many = sartor.data.from_arrays(np.zeros((3400, 1)), np.zeros(3400, int), np.arange(3400))
    assert divide(many, "shuffled", seed=0).seen.sum() == 2500
    assert divide(many.select(many.ids[:548]), "shuffled", seed=0).seen.sum() == 403


def test_in_another_order_the_last_ones_are_unseen(writers):
    data = divide(writers, "id", seed=0)
    assert sorted(np.array(data.ids)[~data.seen]) == sorted(writers.ids)[-18:]
    data = divide(writers, "high school last", seed=0)
    late = np.array([d.endswith("high school") for d in data.metadata["domain"]])
    count = min(int(late.sum()), 18)
    assert late[~data.seen].sum() == count
    assert late[data.seen].sum() == late.sum() - count


def test_a_hash_before_a_writers_id_is_no_order(writers):
    draw = np.random.default_rng(0)
    named = {f"{draw.integers(2**60):016x}:f{k:04d}_00": k for k in range(68)}
    ids = tuple(sorted(named))
    data = divide(dataclasses.replace(writers, ids=ids), "id", seed=0)
    last = [named[client] for client, seen in zip(ids, data.seen, strict=True) if not seen]
    assert sorted(last) == list(range(50, 68))


def test_who_chooses_nothing_trains_on_all_training_images(writers):
    data = divide(writers, "shuffled", seed=0)
    everything = merge_validation(data)
    assert (everything.sizes("train") == data.sizes("train") + data.sizes("validation")).all()
    assert not everything.sizes("validation").any()
    np.testing.assert_array_equal(everything.part(3, "test"), data.part(3, "test"))
    assert set(everything.part(3)) == {*data.part(3), *data.part(3, "validation")}


def test_hyper_parameters_are_the_papers():
    found = {family.name: family for family in families(EmnistSettings())}
    assert set(found) >= set(ROWS)
    fedavg, agnostic, clusters = (found[row].central for row in ROWS)
    for central in (fedavg, agnostic, clusters):
        assert (central.rounds, central.cohort, central.epochs, central.batch) == (1000, 20, 1, 20)
        assert (central.server_learning_rate, central.server_momentum) == (1.0, 0.9)
    assert (fedavg.learning_rate, agnostic.learning_rate, clusters.learning_rate) == (
        0.05, 0.05, 0.03,
    )  # fmt: skip
    assert agnostic.domain_step == 0.05
    assert clusters.q == 2
    for row in ROWS:
        personal = found[row].personal
        tuned, dapper, mapper = (personal[column] for column in COLUMNS[1:])
        assert (tuned.epochs, tuned.learning_rate) == (5, 0.01)
        assert (dapper.epochs, dapper.learning_rate, dapper.r) == (1, 0.04, 5)
        assert (mapper.epochs, mapper.learning_rate, mapper.rounds) == (1, 0.03, 1000)
        assert mapper.central_learning_rate == found[row].central.learning_rate
        assert len(dapper.cover) == len(mapper.cover) == 11
        assert dapper.select == mapper.select == "holdout"
    model = EmnistSettings().model
    assert model.spec == {"name": "cnn", "classes": 62, "smoothing": 0.1}


def test_all_parts_have_cells_of_their_own():
    names = [name for family in families(EmnistSettings()) for name in family.methods()]
    assert len(set(names)) == len(names)
    assert len({slug(name) for name in names}) == len(names)
    fewer = [
        name for family in families(EmnistSettings(parts=("tables",))) for name in family.methods()
    ]
    assert len(fewer) == len(ROWS) * len(COLUMNS)
    assert set(fewer) < set(names)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": ("fedsgd",)}, "rows: choose some of"),
        ({"parts": ()}, "parts: choose some of"),
        ({"seeds": 0}, "seeds=0"),
        ({"writers": 2}, "writers=2"),
        ({"rounds": 1}, "rounds=1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        EmnistSettings(**wrong)


def test_settings_are_in_one_order():
    assert EmnistSettings(rows=("hypcluster", "fedavg")) == EmnistSettings(
        rows=("fedavg", "hypcluster")
    )
    assert EmnistSettings(parts=("order",)).parts == ("tables", "order")
    assert EmnistSettings(parts=PARTS[::-1]) == EmnistSettings()


@pytest.mark.filterwarnings("ignore:.*has no test images")
def test_data_without_sources_has_no_agnostic_row(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.integers(0, 255, (60, 28, 28), np.uint8)
    data = sartor.data.from_arrays(x, np.arange(60) % 62, np.repeat(np.arange(12), 5))
    data.save(tmp_path / "data")
    settings = EmnistSettings.small(
        data=str(tmp_path / "data"), rows=("fedavg", "hypcluster"), parts=("tables", "order")
    )
    with pytest.raises(DataError, match="--row fedavg --row hypcluster --part tables"):
        reproduce(settings, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    opened = dataclasses.replace(settings, parts=("tables",)).open()
    assert opened.sizes("test").any()


def test_data_that_is_not_what_the_experiment_needs(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("who,what\nann,1\n")
    with pytest.raises(DataError, match=r"is a table; .*sartor data convert .*--client COLUMN"):
        EmnistSettings(data=str(table)).open()
    few = sartor.data.handwriting(6)
    clients = {c: few.client(c) for c in few.ids}
    bright = {c: {**of, "x": of["x"].astype(np.float32)} for c, of in clients.items()}
    sartor.data.convert(sartor.data.from_dict(bright), tmp_path / "bright", "sartor")
    with pytest.raises(DataError, match=r"pixels go up to \d+, but EMNIST's from 0 to 1"):
        EmnistSettings(data=str(tmp_path / "bright")).open()
    sartor.data.convert(sartor.data.from_dict(clients), tmp_path / "whole", "sartor")
    told = EmnistSettings.small(data=str(tmp_path / "whole"), rows=("fedavg",), parts=("tables",))
    with pytest.warns(UserWarning, match="a tenth of every writer's images is used for testing"):
        data = told.open()
    assert len(data) == 6 and data.sizes("test").all()
    with (
        pytest.warns(UserWarning, match="a tenth"),
        pytest.raises(ConfigError, match=r"writers=100: .* has 6"),
    ):
        dataclasses.replace(told, writers=100).open()

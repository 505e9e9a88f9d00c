"""What is asked of a table: the rows held out, what labels are, and which estimators there are."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from run_cases import write
from tabled_cases import visits

from sartor.errors import ConfigError, DataError
from sartor.runs import TableConfig, parse_table_config
from sartor.runs.asked import advice_asked, run_asked
from sartor.runs.labels import labels_of
from sartor.runs.named import check_name, make_estimator
from sartor.runs.reading import read_rows

pytestmark = pytest.mark.filterwarnings("ignore:only .* rows are held out")


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("visits") / "visits.csv"
    visits().to_csv(path, index=False)
    return path


def held_out(csv, split, seed=0, **data):
    about = {"path": str(csv), "client": "shop", "label": "back", **data}
    table = {"data": about, "split": split, "seed": seed}
    return read_rows(parse_table_config(table)).test


def test_rows_are_held_out_as_asked(csv, tmp_path):
    frame = visits()
    test = held_out(csv, {})
    assert test.mean() == pytest.approx(0.2, abs=0.01)
    shares = pd.Series(test).groupby(frame["shop"]).mean()
    assert shares.between(0.15, 0.25).all()
    assert (held_out(csv, {}) == test).all() and (held_out(csv, {}, seed=1) != test).any()
    for split in ({}, {"by": "time", "test": 0.3}):  # times mean that what is later is held out
        test = held_out(csv, split, time="day")
        for _, mine in frame.groupby("shop"):
            later = test[mine.index]
            assert mine["day"][later].min() >= mine["day"][~later].max()
    test = held_out(csv, {"by": "2026-03-01"}, time="day")
    assert (test == (frame["day"] >= "2026-03-01")).all()
    test = held_out(csv, {"test": 0.3}, groups="day")
    together = pd.Series(test).groupby(frame["day"]).nunique()
    assert test.any() and (together == 1).all()
    part = np.where(np.arange(480) % 3 == 0, "Test", "train")
    frame.assign(part=part).to_csv(tmp_path / "given.csv", index=False)
    given = held_out(tmp_path / "given.csv", {"given": "part"})
    assert (given == (part == "Test")).all()
    rows = read_rows(parse_table_config({
        "data": {"path": str(tmp_path / "given.csv"), "client": "shop", "label": "back"},
        "split": {"given": "part"},
    }))  # fmt: skip
    assert "part" not in rows.table.column_names  # it would tell nothing of fresh rows


@pytest.mark.parametrize(
    "values, task, kind",
    [
        (["a", "b", "a"], None, "classification"),
        ([True, False, True], None, "classification"),
        ([0, 1, 1], None, "classification"),
        ([0.0, 1.0, 1.0], None, "classification"),
        ([k / 3 for k in range(40)], None, "regression"),
        (list(range(200)), None, "regression"),
        (list(range(40)), "regression", "regression"),
        (list(range(40)), "classification", "classification"),
        ([0, 1, 1], "regression", "regression"),
        ([False, True], "regression", "regression"),
    ],
)
def test_labels_say_what_they_are(values, task, kind):
    y, found = labels_of(pa.array(values), "it", task)
    assert found == kind and y.tolist() == values
    assert (y.dtype.kind == "f") == (kind == "regression")


@pytest.mark.parametrize(
    "values, task, error, said",
    [
        (list(range(40)), None, ConfigError, "40 different whole numbers: .*--task"),
        ([0.5, 1.0, 1.5], None, ConfigError, "3 different numbers: classes, or"),
        ([f"w{k}" for k in range(300)], None, ConfigError, "300 different words"),
        (["2026-01-01", "2026-01-02"], None, DataError, "holds dates"),
        (["a", "b"], "regression", DataError, "holds words, such as 'a'"),
        ([1.0, float("inf")], None, DataError, "infinite"),
    ],
)
def test_labels_that_say_nothing_are_asked_about(values, task, error, said):
    with pytest.raises(error, match=said):
        labels_of(pa.array(values), "it", task)


def test_estimators_are_named(csv):
    forest = {"name": "sklearn.ensemble.RandomForestClassifier", "n_estimators": 7}
    found = make_estimator(forest, "classification", 3)
    assert found.n_estimators == 7 and found.random_state == 3
    assert make_estimator({"name": "boosting"}, "regression", 0) is None
    assert type(make_estimator({"name": "linear"}, "regression", 0)).__name__ == "Ridge"
    for name in ("lightgbm", "xgboost"):
        pytest.importorskip(name)
        made = make_estimator({"name": name, "n_estimators": 5}, "regression", 1)
        assert made.n_estimators == 5 and made.random_state == 1
        assert type(made).__module__.startswith(name)


REFUSED = {
    "os.system": "estimators come from sklearn, lightgbm, xgboost",
    "evil.Model": "estimators come from sklearn",
    "sklearn._config.get_config": "estimators come from sklearn",
    "sklearn": "did you mean|choose one of",
    "lightgmb": "did you mean 'lightgbm'",
    "logstic": "did you mean 'logistic'",
}
REFUSED_LATER = {
    "sklearn.nothing.Model": "there is no module 'sklearn.nothing'",
    "sklearn.ensemble.RandomForestClassifer": "did you mean 'sklearn.ensemble.RandomForestClass",
    "sklearn.utils.check_array": "it is no estimator",
    "sklearn.ensemble.RandomForestRegressor": "needs a classifier.*--task regression",
    "sklearn.preprocessing.StandardScaler": "needs a classifier",
}


def test_nothing_else_is_imported(tmp_path, monkeypatch):
    write(tmp_path / "evil.py", "raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for name, said in REFUSED.items():
        with pytest.raises(ConfigError, match=said):
            check_name(name)
    for name, said in REFUSED_LATER.items():
        with pytest.raises(ConfigError, match=said):
            make_estimator({"name": name}, "classification", 0)
    assert "evil" not in sys.modules


def test_types_that_change_after_the_first_block(tmp_path):
    lines = ["shop,price,back", *(f"{k % 7},{k},{k % 2}" for k in range(120_000)), "x,1.5,1"]
    path = write(tmp_path / "long.csv", "\n".join(lines))
    rows = read_rows(
        parse_table_config({"data": {"path": str(path), "client": "shop", "label": "back"}})
    )
    assert rows.table["price"].to_pylist()[-1] == 1.5


def test_linear_is_of_jax_where_a_central_algorithm_is_named(csv):
    data = {"path": str(csv), "client": "shop", "label": "spent"}
    columns = {k: v for k, v in data.items() if k != "path"}
    assert isinstance(run_asked(csv, columns, {"model": "linear"}, []), TableConfig)
    jax = run_asked(csv, columns, {"model": "linear"}, ["central.rounds=3"])
    assert jax.central.rounds == 3 and jax.model == {"name": "linear"}
    with pytest.raises(ConfigError, match=r"\[central\] is for models in JAX"):
        parse_table_config({"data": data, "model": {"name": "boosting"}, "central": {}})


def test_what_asks_for_jax_gets_it(csv, tmp_path):
    columns = {"client": "shop", "label": "back"}
    for options, overrides in (
        ({"model": "logistic"}, []), ({"bound": 3.0}, []), ({}, ["central.rounds=3"]),
        ({"delta": 0.1}, []), ({"model": "linear"}, ["engine.lanes=2"]),
    ):  # fmt: skip
        assert advice_asked(csv, columns, options, overrides) is None
    assert advice_asked(csv, columns | {"domain": "kind"}, {}, []) is None
    assert advice_asked(tmp_path, columns, {}, []) is None
    for options in ({}, {"model": "linear"}, {"folds": 3}, {"model": "lightgbm"}):
        assert isinstance(advice_asked(csv, columns, options, []), TableConfig)

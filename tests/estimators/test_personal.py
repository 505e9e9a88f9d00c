"""Estimators of scikit-learn's kind: whose rows they are decides by which model."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_cases import FAST, shops
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils.estimator_checks import check_estimator

from sartor.errors import ConfigError, DataError
from sartor.estimators import makers
from sartor.estimators.personal import PersonalClassifier, PersonalRegressor


@pytest.fixture(scope="module")
def fitted():
    frame, y, _ = shops()
    return PersonalClassifier(FAST, client="shop").fit(frame[:1000], y[:1000])


def test_clients_that_differ_get_models_of_their_own(fitted):
    frame, y, _ = shops()
    everybody = PersonalClassifier(FAST, client="shop", approach="global")
    everybody.fit(frame[:1000], y[:1000])
    assert fitted.score(frame[1000:], y[1000:]) > everybody.score(frame[1000:], y[1000:]) + 0.1
    assert set(fitted.clients_["client"].to_pylist()) == set(frame["shop"][:1000])
    assert fitted.clients_["approach"].to_pylist().count("global") <= 3  # they hardly differ
    chances = fitted.predict_proba(frame)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (fitted.predict(frame) == fitted.classes_[chances.argmax(axis=1)]).all()


def test_clients_that_do_not_differ_get_the_global_model():
    frame, y, _ = shops(rows=3000)
    frame["shop"] = np.random.default_rng(1).permutation(frame["shop"])
    found = PersonalClassifier(FAST, client="shop").fit(frame, y)
    assert set(found.clients_["approach"].to_pylist()) == {"global"}


def test_numbers_have_models_of_their_own_too():
    frame, _, score = shops()
    found = PersonalRegressor(client="shop", budget=3).fit(frame[:1000], score[:1000])
    assert found.tried_.skipped  # there was no time for all
    assert found.score(frame[1000:], score[1000:]) > 0.9


@pytest.mark.parametrize("approach", [a for a in makers.CANDIDATES if "crossed" not in a])
def test_every_approach_beats_the_global_model(approach):
    frame, y, _ = shops()
    found, everybody = (
        PersonalClassifier(FAST, client="shop", approach=a).fit(frame[:1000], y[:1000])
        for a in (approach, "global")
    )
    better = found.score(frame[1000:], y[1000:]) - everybody.score(frame[1000:], y[1000:])
    assert better > 0.04 or approach == "global"


def test_rows_do_not_depend_on_the_rows_beside_them(fitted):
    frame, _, _ = shops()
    order = np.random.default_rng(0).permutation(200)
    alone = np.concatenate([fitted.predict_proba(frame.iloc[[i]]) for i in order[:10]])
    np.testing.assert_allclose(fitted.predict_proba(frame)[order[:10]], alone, rtol=1e-9)


def test_clients_that_are_new_or_missing_get_the_global_model(fitted):
    frame, y, _ = shops()
    everybody = PersonalClassifier(FAST, client="shop", approach="global")
    everybody.fit(frame[:1000], y[:1000])
    for unknown in ("shop 99", None):
        new = frame.assign(shop=unknown)
        np.testing.assert_allclose(fitted.predict_proba(new), everybody.predict_proba(new))


def test_rows_without_a_client_train_the_global_model_only():
    frame, y, _ = shops()
    frame.loc[frame.index[:500], "shop"] = None
    found = PersonalClassifier(FAST, client="shop").fit(frame, y)
    assert sum(found.clients_["rows"].to_pylist()) == 1000


def test_clients_may_be_given_beside_an_array():
    frame, y, _ = shops()
    x = frame[["price", "rain"]].to_numpy()
    found = PersonalClassifier(FAST, approach="slopes").fit(x, y, client=frame["shop"])
    named = PersonalClassifier(FAST, client="shop", approach="slopes").fit(
        frame[["price", "rain", "shop"]], y
    )
    chances = found.predict_proba(x, client=frame["shop"])
    np.testing.assert_allclose(chances, named.predict_proba(frame[["price", "rain", "shop"]]))
    with pytest.raises(ConfigError, match=r"predict\(X, client=\.\.\.\)"):
        found.predict(x)


def test_a_named_client_is_there_in_cross_validation():
    frame, y, _ = shops(rows=1200, clients=10)
    folds = KFold(2, shuffle=True, random_state=0)
    own, everybody = (
        cross_val_score(PersonalClassifier(FAST, client="shop", approach=a), frame, y, cv=folds)
        for a in ("auto", "global")
    )
    assert own.mean() > everybody.mean() + 0.1


def test_inside_and_around_pipelines():
    frame, y, _ = shops()
    columns = make_column_transformer(
        (OneHotEncoder(), ["kind"]), remainder="passthrough", verbose_feature_names_out=False
    )
    columns.set_output(transform="pandas")
    fill = FunctionTransformer(lambda f: f.fillna({"price": 0.0}).drop(columns="day"))
    dense = OneHotEncoder(sparse_output=False)
    columns.transformers = [("kind", dense, ["kind"])]
    outside = make_pipeline(fill, columns, PersonalClassifier(FAST, client="shop"))
    inside = PersonalClassifier(make_pipeline(fill, clone(columns), FAST), client="shop")
    for model in (outside, inside):
        model.fit(frame[:1000], y[:1000])
        assert model.score(frame[1000:], y[1000:]) > 0.7
    grid = GridSearchCV(outside, {"personalclassifier__approach": ["global", "linear"]}, cv=3)
    assert grid.fit(frame, y).best_params_ == {"personalclassifier__approach": "linear"}


def test_folds_follow_time_and_groups():
    frame, y, _ = shops()
    for roles in ({"time": "day"}, {"groups": "day"}):
        found = PersonalClassifier(FAST, client="shop", approach="slopes", **roles).fit(frame, y)
        assert found.score(frame, y) > 0.7
        without = frame.drop(columns="day")  # which new rows do not need
        np.testing.assert_allclose(found.predict_proba(without), found.predict_proba(frame))


def test_polars_frames_are_frames():
    polars = pytest.importorskip("polars")
    frame, y, _ = shops(rows=400, clients=5)
    found = PersonalClassifier(FAST, client="shop", approach="slopes")
    found.fit(polars.from_pandas(frame), y)
    same = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    np.testing.assert_allclose(
        found.predict_proba(polars.from_pandas(frame)), same.predict_proba(frame)
    )


@pytest.mark.parametrize(
    "change, kind, said",
    [
        ({"client": "store"}, ConfigError, "client='store': no such column; did you mean"),
        ({"approach": "slope"}, ConfigError, "approach='slope': did you mean 'slopes'"),
        ({"time": "date"}, ConfigError, "time='date': no such column"),
        ({"client": "day", "time": "day"}, ConfigError, "two roles"),
        ({"client": 7}, ConfigError, "client=7: no such column"),
    ],
)
def test_wrong_settings_are_refused(change, kind, said):
    frame, y, _ = shops(rows=50)
    frame = frame.rename(columns={"shop": "stores"}) if change.get("client") == "store" else frame
    settings = {"client": "shop" if "stores" not in frame else "stores", **change}
    with pytest.raises(kind, match=said):
        PersonalClassifier(FAST, **settings).fit(frame, y)


def test_tables_that_nothing_can_be_learned_from_are_refused():
    frame, y, _ = shops(rows=50)
    model = PersonalClassifier(FAST, client="shop")
    with pytest.raises(DataError, match="one class"):
        model.fit(frame, np.full(50, "yes"))
    with pytest.raises(DataError, match="columns to learn from"):
        model.fit(frame[["shop"]], y)
    with pytest.raises(DataError, match="two columns are called 'rain'"):
        model.fit(frame.rename(columns={"price": "rain"}), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(frame, y[:-1])
    fitted = model.fit(frame, y)
    with pytest.raises(ValueError, match="Feature names unseen at fit time"):
        fitted.predict(frame.rename(columns={"rain": "sun"}))


CHECKED = (
    PersonalClassifier(), PersonalRegressor(),
    PersonalClassifier(FAST, client=0, approach="slopes"),
    PersonalRegressor(Ridge(), client=0, approach="recalibrate"),
)  # fmt: skip
"""Boosting many small tables takes long: once for each class is enough."""


UNEQUAL = {
    "check_sample_weight_equivalence_on_dense_data": "folds are dealt by rows: a row of weight two "
    "is in one of them, and two rows are in two"
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", CHECKED, ids=repr)
def test_scikit_learns_own_checks(model, monkeypatch):
    monkeypatch.setattr(makers, "ITERATIONS", 30)
    expected = UNEQUAL if model.client is not None or model.estimator is None else {}
    found = check_estimator(model, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert {one["check_name"] for one in found if one["status"] == "failed"} == set()
    assert sum(one["status"] == "passed" for one in found) > 50


def test_new_rows_change_their_clients_and_nobody_else():
    frame, y, _ = shops()
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame[:800], y[:800])
    before = model.predict_proba(frame)
    new = frame.iloc[800:].copy()
    mine = (new["shop"] == "shop 3").to_numpy()
    late = (new["shop"] == "shop 4").to_numpy()
    new.loc[late, "shop"] = "shop 99"
    some = mine | late
    model.update(new[some], y[800:][some])
    after = model.predict_proba(frame)
    others = (frame["shop"] != "shop 3").to_numpy()
    np.testing.assert_array_equal(after[others], before[others])
    assert (after[~others] != before[~others]).all()
    table = model.clients_.to_pandas().set_index("client")
    assert table.loc["shop 99", "rows"] == late.sum()
    # The new shop is the one whose rows it got.
    same = model.predict_proba(new[late]), model.predict_proba(new[late].assign(shop="shop 4"))
    unknown = model.predict_proba(new[late].assign(shop="nobody"))
    assert np.abs(same[0] - same[1]).mean() < np.abs(unknown - same[1]).mean()


def test_whoever_is_dropped_gets_the_global_model():
    frame, y, _ = shops()
    model = PersonalClassifier(FAST, client="shop").fit(frame, y)
    mine = (frame["shop"] == "shop 3").to_numpy()
    before = model.predict_proba(frame)
    unknown = model.predict_proba(frame.assign(shop="nobody"))
    model.drop("shop 3")
    after = model.predict_proba(frame)
    np.testing.assert_array_equal(after[mine], unknown[mine])
    np.testing.assert_array_equal(after[~mine], before[~mine])
    assert "shop 3" not in model.clients_["client"].to_pylist()
    with pytest.raises(DataError, match="there is no client 'shop 3'"):
        model.drop("shop 3")


def test_labels_that_are_new_are_refused():
    frame, y, _ = shops()
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    with pytest.raises(DataError, match="label 'maybe' is new"):
        model.update(frame[:2], ["yes", "maybe"])


def test_scores_and_measures_of_fresh_rows():
    frame, y, _ = shops(rows=3000)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame[:2000], y[:2000])
    fresh, truth = frame[2000:].copy(), y[2000:]
    fresh.loc[fresh.index[:30], "shop"] = "new"
    fresh.loc[fresh.index[30:50], "shop"] = None
    scores = model.evaluate(fresh, truth)
    summary = scores.summary()
    assert summary.clients == 22 and summary.groups["unseen"].clients == 2
    assert summary.loss_change.mean > 0.05 and summary.loss_change.gained > 0.7
    chance = model.predict_proba(fresh)[np.arange(len(truth)), (truth == "yes").astype(int)]
    assert summary.loss.weighted_mean == pytest.approx(-np.log(chance).mean())
    table = model.measure(fresh, truth).to_pandas().set_index("measure")
    assert table.loc["accuracy", "all rows"] == pytest.approx(model.score(fresh, truth))
    everybody = model.measure(fresh.assign(shop="nobody"), truth).to_pandas().set_index("measure")
    assert table.loc["AUC", "all rows, global"] == pytest.approx(everybody.loc["AUC", "all rows"])
    assert (table["gain"] > 0).all()
    few = model.measure(fresh, truth, measures=["AUC"])
    assert few["measure"].to_pylist() == ["AUC"]
    numbers = PersonalRegressor(LinearRegression(), client="shop", approach="slopes")
    _, _, score = shops(rows=3000)
    numbers.fit(frame[:2000], score[:2000])
    found = numbers.measure(frame[2000:], score[2000:]).to_pandas().set_index("measure")
    assert found.loc["R²", "all rows"] == pytest.approx(numbers.score(frame[2000:], score[2000:]))

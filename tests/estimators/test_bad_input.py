"""Tables, labels, weights and estimators that are odd or wrong: a stated rule, or a clear error."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from estimator_cases import FAST
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

from sartor.errors import ConfigError, DataError, SartorError
from sartor.estimators import PersonalClassifier, PersonalRegressor, load

ROWS = 160


@pytest.fixture
def frame():
    draw = np.random.default_rng(0)
    return pd.DataFrame({
        "price": draw.normal(size=ROWS), "rain": draw.normal(size=ROWS),
        "kind": draw.choice(["new", "old"], ROWS),
        "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(ROWS) % 90, "D"),
        "shop": [f"shop {k % 4}" for k in range(ROWS)],
    })  # fmt: skip


@pytest.fixture
def y(frame):
    draw = np.random.default_rng(1)
    score = frame.price + np.where(frame.shop == "shop 1", 2, -1) * frame.rain
    return np.where(score + draw.logistic(size=ROWS) > 0, "yes", "no")


def classifier(estimator=FAST, approach="recalibrate", **settings):
    return PersonalClassifier(estimator, client="shop", approach=approach, **settings)


def regressor(approach="recalibrate", **settings):
    return PersonalRegressor(Ridge(), client="shop", approach=approach, **settings)


def sound(model, frame, **named):
    """Predictions are finite, and probabilities sum to one; what is saved is not looked at here."""
    found = model.predict_proba(frame, **named) if hasattr(model, "classes_") else (
        model.predict(frame, **named)
    )  # fmt: skip
    assert np.isfinite(found).all() and len(found) == len(frame)
    if hasattr(model, "classes_"):
        np.testing.assert_allclose(found.sum(axis=1), 1)
    return found


ODD_ROWS = np.arange(ROWS) % 3 == 0

CLIENTS = {
    "gaps": lambda f: f.shop.where(~ODD_ROWS),
    "empty texts": lambda f: f.shop.where(~ODD_ROWS, ""),
    "one client": lambda f: "a",
    "nobody": lambda f: None,
    "numbers": lambda f: np.arange(ROWS) % 5,
    "floats with gaps": lambda f: np.where(ODD_ROWS, np.nan, np.arange(ROWS) % 4),
    "nullable numbers": lambda f: pd.array(np.where(ODD_ROWS, None, 3), dtype="Int64"),
    "booleans": lambda f: ODD_ROWS,
    "dates": lambda f: pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(ROWS) % 3, "D"),
    "categories": lambda f: pd.Categorical(f.shop),
    "periods": lambda f: f.day.dt.to_period("M"),
    "a client for each row": lambda f: np.arange(ROWS),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_of_any_kind(frame, y, kind):
    given = frame.assign(shop=CLIENTS[kind](frame))
    model = classifier().fit(given, y)
    sound(model, given)
    table = model.clients_.to_pandas()
    known = given.shop.notna() & (given.shop.astype(str) != "")
    assert table["rows"].sum() == known.sum()
    assert len(table) == given.shop[known].nunique()
    unknown = sound(model, given.assign(shop="somebody else" if kind != "dates" else None))
    if kind in ("gaps", "empty texts", "floats with gaps"):
        np.testing.assert_allclose(sound(model, given)[~known], unknown[~known], rtol=1e-12)


def test_the_same_client_in_another_type(frame, y):
    given = frame.assign(shop=np.arange(ROWS) % 4)
    model = classifier().fit(given, y)
    for kind in (float, str, "Int64", "category"):
        again = sound(model, given.assign(shop=given.shop.astype(kind)))
        np.testing.assert_array_equal(again, sound(model, given))


@pytest.mark.parametrize(
    "values, said",
    [
        (lambda: [1 if k % 2 else "a" for k in range(ROWS)], r"column 'shop' .*one type"),
        (lambda: np.where(ODD_ROWS, np.inf, 1.0), "must be a text or a number"),
        (lambda: pd.to_timedelta(np.arange(ROWS), "D"), "must be a text or a number"),
        (lambda: [[1]] * ROWS, "make texts of it"),
    ],
)
def test_clients_that_cannot_be(frame, y, values, said):
    with pytest.raises(DataError, match=said):
        classifier().fit(frame.assign(shop=values()), y)


LABELS = {
    "booleans": lambda y: y == "yes",
    "nullable booleans": lambda y: pd.Series(y == "yes").astype("boolean"),
    "nullable numbers": lambda y: pd.Series((y == "yes") * 1).astype("Int64"),
    "categories": pd.Categorical,
    "strings": lambda y: pd.Series(y).astype("string"),
    "polars": pl.Series,
    "arrow": lambda y: pa.chunked_array([y[:50], y[50:]]),
    "a list": list,
    "a named column": lambda y: pd.Series(y, name="price"),
    "three classes": lambda y: np.where(ODD_ROWS, "perhaps", y),
    "a rare class": lambda y: np.where(np.arange(ROWS) == 7, "odd", y),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(frame, y, kind):
    given = LABELS[kind](y)
    model = classifier().fit(frame, given)
    sound(model, frame)
    assert set(model.predict(frame)) <= set(np.asarray(given).tolist())
    assert model.score(frame, np.asarray(given)) > 0.5


GAPS = np.arange(ROWS) == 3


@pytest.mark.parametrize(
    "labels, said",
    [
        (lambda y: np.where(GAPS, None, y), "1 labels are missing, the first one in row 3"),
        (lambda y: pd.Series(y).where(~GAPS), "1 labels are missing, the first one in row 3"),
        (lambda y: np.where(GAPS, np.nan, y == "yes"), "contains NaN"),
        (lambda y: np.full(ROWS, "yes"), "all labels are of one class"),
        (lambda y: pd.date_range("2026-01-01", periods=ROWS), "labels are times"),
        (lambda y: [datetime.date(2026, 1, 1 + k % 2) for k in range(ROWS)], "labels are times"),
        (lambda y: np.array([1 if g else "a" for g in GAPS], object), "several types .int, str"),
        (lambda y: np.arange(ROWS).astype(str), "160 classes in 160 rows"),
        (lambda y: np.arange(ROWS) / 7, "continuous"),
        (lambda y: np.arange(ROWS) * 1.0, "160 classes in 160 rows"),
        (lambda y: np.stack([y, y], axis=1), "1d array"),
        (lambda y: y[:-1], "inconsistent numbers of samples"),
    ],
)
def test_labels_that_cannot_be_classes(frame, y, labels, said):
    with pytest.raises(ValueError, match=said):
        classifier().fit(frame, labels(y))


@pytest.mark.parametrize(
    "labels, said",
    [
        (lambda s: np.where(GAPS, np.nan, s), "contains NaN"),
        (lambda s: pd.Series(s).astype("Float64").where(~GAPS), r"contains NaN|are missing"),
        (lambda s: np.where(GAPS, np.inf, s), "infinity"),
        (lambda s: np.where(GAPS, 1e300, s), "whose squares are infinite; scale"),
        (lambda s: np.where(GAPS, "a", "b"), "labels are words, such as 'b'; PersonalClassifier"),
        (lambda s: pd.to_timedelta(np.arange(ROWS), "D"), "labels are times"),
        (lambda s: s * 1j, "Complex"),
    ],
)
def test_labels_that_cannot_be_numbers(frame, labels, said):
    with pytest.raises(ValueError, match=said):
        regressor().fit(frame, labels(frame.price.to_numpy()))


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_the_unit_of_labels_does_not_matter(frame, unit):
    score = frame.price + 2 * (frame.shop == "shop 1") * frame.rain
    found = regressor(approach="slopes").fit(frame, score * unit).predict(frame) / unit
    same = regressor(approach="slopes").fit(frame, score).predict(frame)
    np.testing.assert_allclose(found, same, atol=1e-3)


def test_constant_targets_are_predicted(frame):
    np.testing.assert_allclose(sound(regressor().fit(frame, np.full(ROWS, 7.0)), frame), 7.0)


def test_the_label_must_not_be_a_column(frame, y):
    given = frame.assign(returned=y)
    with pytest.raises(DataError, match="the label 'returned' is a column of X, too"):
        classifier().fit(given, given["returned"])


COLUMNS = {
    "gaps everywhere": lambda f: f.assign(price=None),
    "infinite": lambda f: f.assign(price=np.where(ODD_ROWS, np.inf, f.price)),
    "huge": lambda f: f.assign(price=f.price * 1e300),
    "one huge": lambda f: f.assign(price=np.where(GAPS, 1e300, f.price)),
    "the largest": lambda f: f.assign(price=np.where(ODD_ROWS, 1.7e308, -1.7e308)),
    "tiny": lambda f: f.assign(price=f.price * 1e-310),
    "nullable": lambda f: f.convert_dtypes(),
    "arrow": lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
    "categories": lambda f: f.assign(kind=pd.Categorical(f.kind)),
    "categories of numbers": lambda f: f.assign(kind=pd.Categorical(np.arange(ROWS) % 3)),
    "periods": lambda f: f.assign(day=f.day.dt.to_period("M")),
    "spans": lambda f: f.assign(day=f.day - f.day.min()),
    "zones": lambda f: f.assign(day=f.day.dt.tz_localize("Europe/Zurich")),
    "times of day": lambda f: f.assign(day=[datetime.time(k % 24) for k in range(ROWS)]),
    "dates": lambda f: f.assign(day=f.day.dt.date),
    "bytes": lambda f: f.assign(kind=[b"a", b"b"] * (ROWS // 2)),
    "booleans with gaps": lambda f: f.assign(kind=np.array([True, None] * (ROWS // 2), object)),
    "only words": lambda f: f[["kind", "shop"]],
    "a key": lambda f: f.assign(order=[f"order {k}" for k in range(ROWS)]),
    "another index": lambda f: f.set_index(pd.Index(np.arange(ROWS)[::-1] // 2)),
    "wide": lambda f: pd.concat([f, pd.DataFrame(
        np.random.default_rng(0).normal(size=(ROWS, 500))).add_prefix("c")], axis=1),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("estimator", [FAST, HistGradientBoostingClassifier(max_iter=3)])
def test_columns_of_any_kind(frame, y, kind, estimator):
    given = COLUMNS[kind](frame)
    sound(classifier(estimator).fit(given, y), given)


def test_columns_of_polars(frame, y):
    given = pl.from_pandas(frame).with_columns(
        pl.col("kind").cast(pl.Categorical), enum=pl.col("kind").cast(pl.Enum(["new", "old"])),
        time=pl.time(1, 2, 3), span=pl.duration(days=3), nothing=pl.lit(None),
        decimal=pl.col("price").cast(pl.Decimal(10, 2)),
    )  # fmt: skip
    model = classifier().fit(given, pl.Series(y))
    sound(model, given)
    mine = classifier().fit(frame, y)
    np.testing.assert_array_equal(
        mine.predict_proba(pl.from_pandas(frame)), mine.predict_proba(frame)
    )


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda f: pd.concat([f, f[["rain"]]], axis=1), "two columns are called 'rain'"),
        (lambda f: f.rename(columns={"rain": 3}), "texts and others are not"),
        (lambda f: f[[]], "no columns"),
        (lambda f: f[["shop"]], "give columns to learn from"),
        (lambda f: f[["shop"]].assign(a=1), "are left to learn from .a: left out: one value"),
        (lambda f: f[["shop"]].assign(a=[f"k{i}" for i in range(ROWS)]), "a: left out: 160 diff"),
        (lambda f: f.drop(columns="shop"), "client='shop': no such column"),
        (lambda f: f.assign(rain=pd.arrays.SparseArray(f.rain)), "'rain' is sparse"),
        (lambda f: f.assign(rain=[1 if g else "a" for g in ODD_ROWS]), "'rain' .*one type"),
        (lambda f: f.assign(rain=[[1]] * ROWS), "column 'rain' holds list"),
        (lambda f: f.assign(rain=f.rain * 1j), "the real and the imaginary part"),
        (lambda f: f.assign(rain=[b"\xff", b"a"] * (ROWS // 2)), "column 'rain' .* not UTF-8"),
        (lambda f: f.assign(rain=pd.cut(f.rain, 3)), "column 'rain' holds .*interval"),
        (lambda f: f[:1], "n_samples = 1"),
        (lambda f: f[:0], r"n_samples = 0|0 sample|no rows"),
    ],
)
def test_frames_that_cannot_be(frame, y, change, said):
    given = change(frame)
    with pytest.raises((DataError, ConfigError, ValueError), match=said):
        classifier().fit(given, y[: len(given)])


def test_sparse_matrices_are_refused():
    with pytest.raises(TypeError, match=r"dense data is required\. Use '\.toarray\(\)'"):
        PersonalClassifier(FAST).fit(scipy.sparse.eye(20).tocsr(), np.arange(20) % 2)


def test_numbers_as_names_of_columns(frame, y):
    given = frame.set_axis(range(5), axis=1)
    model = PersonalClassifier(FAST, client=4, approach="recalibrate").fit(given, y)
    np.testing.assert_array_equal(sound(model, given), sound(classifier().fit(frame, y), frame))


def test_columns_of_new_rows(frame, y):
    model = classifier().fit(frame, y)
    usual = sound(model, frame)
    # Words that are new are rare words, dates may be texts, and anything may be missing.
    sound(model, frame.assign(kind="never seen", shop="new"))
    sound(model, frame.assign(price=None, rain=np.nan, kind=None, day=pd.NaT, shop=None))
    sound(model, frame.assign(rain=1e300, price=-np.inf))
    assert len(model.predict(frame[:0])) == 0
    texts = frame.assign(day=frame.day.dt.strftime("%Y-%m-%d"), rain=frame.rain.astype(str))
    np.testing.assert_allclose(sound(model, texts), usual)
    for change, said in {
        "missing": (lambda f: f.drop(columns="rain"), r"missing:\n- rain"),
        "reordered": (lambda f: f[f.columns[::-1]], "must be in the same order"),
        "additional": (lambda f: f.assign(more=1), r"unseen at fit time:\n- more"),
        "words": (lambda f: f.assign(rain="wet"), "'rain' was numbers before, and is not now"),
        "no date": (lambda f: f.assign(day="soon"), "column 'day' was dates before"),
    }.values():
        with pytest.raises(ValueError, match=said):
            model.predict(change(frame))


@pytest.mark.parametrize(
    "weight, said",
    [
        (np.zeros(ROWS), "at least one non-zero"),
        (np.where(GAPS, -1.0, 1.0), "[Nn]egative"),
        (np.where(GAPS, np.nan, 1.0), "NaN"),
        (np.where(GAPS, np.inf, 1.0), "infinity"),
        (np.full(ROWS, 1e308), "sample_weight is up to 1e"),
        (np.ones(3), "expected"),
        (np.where(GAPS, 1.0, 0.0), "n_samples = 1"),
    ],
)
def test_weights_that_cannot_be(frame, y, weight, said):
    with pytest.raises(ValueError, match=said):
        classifier().fit(frame, y, sample_weight=weight)


def test_rows_without_weight_are_not_there(frame, y):
    """So a client all of whose rows weigh nothing is unknown, and classes may be fewer."""
    weight = np.where(frame.shop == "shop 2", 0.0, 1.0)
    model = classifier().fit(frame, y, sample_weight=weight)
    there = weight > 0
    same = classifier().fit(frame[there], y[there], sample_weight=weight[there])
    np.testing.assert_array_equal(sound(model, frame), sound(same, frame))
    polars = classifier().fit(pl.from_pandas(frame), y, sample_weight=weight)
    np.testing.assert_array_equal(sound(polars, pl.from_pandas(frame)), sound(same, frame))
    assert model.clients_["client"].to_pylist() == same.clients_["client"].to_pylist()
    assert "shop 2" not in model.clients_["client"].to_pylist()


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"folds": 1}, "folds=1: a whole number of at least 2"),
        ({"folds": "5"}, "folds='5'"),
        ({"budget": -1.0}, r"budget=-1\.0: a number of at least 0"),
        ({"budget": "long"}, "budget='long'"),
        ({"columns": "all"}, "columns='all': 'auto' or None"),
        ({"approach": None}, "approach=None: the name"),
        ({"random_state": "seed"}, "random_state='seed'"),
        ({"estimator": LogisticRegression}, r"such as LogisticRegression\(\)"),
        ({"estimator": 3}, "estimator=3: an estimator of scikit-learn's kind"),
        ({"estimator": Ridge()}, "a classifier is needed; or use PersonalRegressor"),
        ({"estimator": LinearSVC()}, r"no predict_proba.*CalibratedClassifierCV\(LinearSVC\(\)\)"),
        ({"time": "rain", "groups": "rain"}, "two roles"),
    ],
)
def test_settings_that_cannot_be(frame, y, settings, said):
    with pytest.raises(ConfigError, match=said):
        classifier().set_params(**settings).fit(frame, y)


def test_what_the_errors_advise_works(frame, y):
    sound(classifier(CalibratedClassifierCV(LinearSVC(), cv=2)).fit(frame, y), frame)
    for state in (None, np.random.RandomState(0), np.int64(3)):
        sound(classifier(random_state=state).fit(frame, y), frame)


def test_folds_that_hold_out_nothing(frame, y):
    for role in ("time", "groups"):
        with pytest.raises(DataError, match=f"{role}='same': all rows have one value"):
            classifier(**{role: "same"}).fit(frame.assign(same=3), y)
    # Few values are enough, however the rows fall.
    few = frame.assign(few=np.where(np.arange(ROWS) < 10, 1, 2))
    for role in ("time", "groups"):
        sound(classifier(**{role: "few"}).fit(few, y), few)
    whole = frame.assign(week=frame.shop)  # each client is in one fold
    sound(classifier(groups="week").fit(whole, y), whole)
    with pytest.raises(DataError, match="the value is missing; fill it or drop the row"):
        classifier(time="day").fit(frame.assign(day=frame.day.where(~ODD_ROWS)), y)


@pytest.mark.filterwarnings("ignore:candidate .* failed and is left out")
@pytest.mark.parametrize("rows", [2, 3, 8])
def test_few_rows(frame, y, rows):
    few = frame[:rows]
    labels = np.where(np.arange(rows) % 2, "yes", "no")
    for approach in ("auto", "recalibrate", "local"):
        sound(classifier(approach=approach, folds=1000).fit(few, labels), frame)
        sound(regressor(approach=approach).fit(few, np.arange(rows)), frame)


def test_a_column_that_begins_late(frame, y):
    """In the first folds of time it is empty, which scikit-learn's boosting does not take."""
    given = frame.assign(price=np.where(np.arange(ROWS) < 100, np.nan, frame.price))
    given["when"] = np.arange(ROWS)
    for approach in ("recalibrate", "local"):
        model = classifier(HistGradientBoostingClassifier(max_iter=3), approach, time="when")
        sound(model.fit(given, y), given)


@pytest.mark.parametrize("approach", ["recalibrate", "slopes", "category", "2 clusters", "local"])
def test_folds_without_a_client(frame, y, approach):
    given = frame.assign(shop=frame.shop.where(np.arange(ROWS) < 3), week=np.arange(ROWS) < 3)
    sound(classifier(approach=approach, groups="week").fit(given, y), given)
    sound(regressor(approach=approach, groups="week").fit(given, np.arange(ROWS)), given)


def test_only_rare_words(frame, y):
    """Linear models have no column then, but for the intercept."""
    given = frame[["shop"]].assign(word=[f"w{k % 23}" for k in range(ROWS)])
    sound(classifier(HistGradientBoostingClassifier(max_iter=3), "linear").fit(given, y), given)
    with pytest.raises(DataError, match=r"are left to learn from .word: 23 categories"):
        classifier().fit(given, y)


class Picky(LogisticRegression):
    """Refuses some rows."""

    def fit(self, x, y, sample_weight=None):
        if len(y) < 30:
            raise RuntimeError("too few for me")
        return super().fit(x, y, sample_weight)


class Silent(LogisticRegression):
    """Predicts nothing where it was fitted to few rows."""

    def fit(self, x, y, sample_weight=None):
        self.few_ = len(y) < 30
        return super().fit(x, y, sample_weight)

    def predict_proba(self, x):
        return super().predict_proba(x) * (np.nan if self.few_ else 1.0)


@pytest.mark.parametrize("estimator, why", [
    (Picky(), "RuntimeError: too few for me"), (Silent(), "values that are not finite"),
])  # fmt: skip
def test_clients_whose_estimator_fails_keep_the_central_model(frame, y, estimator, why):
    given = frame.assign(shop=np.where(np.arange(ROWS) < 20, "small", frame.shop))
    labels = y.copy()
    labels[given.shop == "shop 3"] = "no"
    model = classifier(estimator, approach="local").fit(given, labels)
    notes = dict(zip(*(model.clients_[c].to_pylist() for c in ("client", "note")), strict=True))
    assert why in notes["small"] and notes["shop 1"] is None
    assert notes["shop 3"] == "keeps the central model: too few rows, or rows of one class"
    everybody = classifier(estimator, approach="global").fit(given, labels)
    kept = given.shop.isin(["small", "shop 3"])
    np.testing.assert_array_equal(sound(model, given[kept]), sound(everybody, given[kept]))
    assert (sound(model, given[~kept]) != sound(everybody, given[~kept])).any(axis=1).all()


@pytest.mark.filterwarnings("ignore:candidate .* failed and is left out")
def test_candidates_that_fail_are_left_out(frame, y):
    class Narrow(LogisticRegression):
        def fit(self, x, y, sample_weight=None):
            if x.shape[1] > self.C:
                raise RuntimeError("no further columns, please")
            return super().fit(x, y, sample_weight)

    plain = frame[["price", "rain", "shop"]]
    model = classifier(Narrow(C=2.0), approach="auto").fit(plain, y)
    assert "no further columns" in model.tried_.failed["category"]
    assert "linear" in model.tried_.losses and "category" not in model.tried_.losses
    sound(model, plain)
    with pytest.raises(RuntimeError, match="no further columns"):
        classifier(Narrow(C=2.0), approach="category").fit(plain, y)
    with pytest.raises(RuntimeError, match="no further columns"):  # then there is no model at all
        classifier(Narrow(C=1.0), approach="auto").fit(plain, y)


def test_words_that_a_clients_pipeline_has_not_seen(frame, y):
    """Rows that a client's own estimator cannot predict get the central model."""
    given = frame.copy()
    given.loc[(given.shop == "shop 1") & (given.kind == "old"), "kind"] = "new"
    encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="drop")
    model = classifier(make_pipeline(encode, LogisticRegression()), approach="local", groups="half")
    given["half"] = np.arange(ROWS) // 4 % 2
    model.fit(given, y)
    with pytest.warns(UserWarning, match="1 clients could not predict their rows"):
        sound(model, frame.assign(half=0))


def test_nothing_fitted_is_lost(frame, y, tmp_path):
    """Wrong new rows leave a model, and what is saved of it, as they were."""
    model = classifier().fit(frame, y)
    model.save(tmp_path / "model")
    before = sound(model, frame)
    for rows, labels in (
        (frame.assign(rain="wet"), y), (frame, np.full(ROWS, "perhaps")),
        (frame.drop(columns="shop"), y), (frame, y[:3]), (frame.drop(columns="rain"), y),
    ):  # fmt: skip
        with pytest.raises(ValueError):  # noqa: PT011
            model.update(rows, labels)
        np.testing.assert_array_equal(sound(model, frame), before)
    with pytest.raises(SartorError):
        model.drop("nobody")
    np.testing.assert_array_equal(sound(load(tmp_path / "model"), frame), before)

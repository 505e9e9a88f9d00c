"""Saved and loaded, in this process or another one, models predict the same."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from estimator_cases import FAST, contents, shops
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import sartor
from sartor.documents import SEAL, sealed
from sartor.errors import ConfigError, FileError
from sartor.estimators import (
    CANDIDATES,
    PersonalClassifier,
    PersonalRegressor,
    foreign,
    load,
    store,
)
from sartor.estimators.approaches import Added
from sartor.estimators.parts import Stored, apart, together


@pytest.mark.parametrize("approach", ["auto", *(a for a in CANDIDATES if "crossed" not in a)])
def test_the_same_numbers(approach, tmp_path):
    frame, y, _ = shops(rows=600, clients=8)
    model = PersonalClassifier(FAST, client="shop", approach=approach).fit(frame, y)
    model.save(tmp_path / "model")
    again = sartor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert (again.predict(frame) == model.predict(frame)).all()
    assert (
        again.clients_ == model.clients_ and again.get_params().keys() == model.get_params().keys()
    )
    found = contents(tmp_path / "model")
    assert not any(b"pickle" in content for content in found.values())
    again.save(tmp_path / "again")  # what is loaded is what was saved, to the last byte
    assert contents(tmp_path / "again") == found


def test_boosted_numbers_in_another_process(tmp_path, monkeypatch):
    monkeypatch.setattr("sartor.estimators.makers.ITERATIONS", 30)
    frame, _, score = shops(rows=600, clients=8)
    model = PersonalRegressor(client="shop", approach="category").fit(frame, score)
    model.save(tmp_path / "model")
    frame.to_parquet(tmp_path / "rows.parquet")
    code = (
        "import sys, pandas, sartor.estimators; assert 'skops' not in sys.modules;"
        "model = sartor.load(sys.argv[1]);"
        "print(model.predict(pandas.read_parquet(sys.argv[2])).tolist())"
    )
    words = [sys.executable, "-c", code, tmp_path / "model", tmp_path / "rows.parquet"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == model.predict(frame).tolist()


def foreign_estimators():
    yield HistGradientBoostingClassifier(max_iter=5, categorical_features=[1])
    yield make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=3))
    yield RandomForestClassifier(5)
    for library in ("lightgbm.LGBMClassifier", "xgboost.XGBClassifier"):
        package, _, name = library.partition(".")
        try:
            kind = getattr(__import__(package), name)
        except ImportError:
            continue
        yield kind(n_estimators=5)


@pytest.mark.parametrize("estimator", [*foreign_estimators()], ids=lambda e: type(e).__name__)
def test_estimators_of_other_libraries(estimator):
    draw = np.random.default_rng(0)
    x = np.column_stack([draw.normal(size=200), draw.integers(0, 3, 200)])
    y = (x[:, 0] + x[:, 1] > 1).astype(int) + (x[:, 1] > 1)
    content = foreign.dump(estimator.fit(x, y))
    again = foreign.restore(content, "file")
    np.testing.assert_array_equal(again.predict_proba(x), estimator.predict_proba(x))
    assert foreign.dump(again) == content
    assert foreign.dump(estimator) == content  # and the estimator is as it was


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_models_that_go_on_from_the_central_scores(library, tmp_path):
    package = pytest.importorskip(library)
    kind = package.LGBMRegressor if library == "lightgbm" else package.XGBRegressor
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    frame, _, score = shops(rows=300, clients=3)
    for approach in ("model interpolation", "category"):
        model = PersonalRegressor(
            kind(n_estimators=5, **quiet), client="shop", approach=approach, folds=2
        )
        model.fit(frame, score).save(tmp_path / approach)
        again = load(tmp_path / approach)
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
        ends = again.predict_interval(frame)
        np.testing.assert_array_equal(ends, model.predict_interval(frame))


@pytest.mark.parametrize("change", ["left", "right", "feature_idx"])
def test_trees_lead_nowhere_outside_themselves(change):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 2))
    boosted = HistGradientBoostingClassifier(max_iter=3).fit(x, x[:, 0] > 0)
    for place in (0, -1):
        nodes = boosted._predictors[place][0].nodes
        before, nodes[change][0] = nodes[change][0], 10_000
        with pytest.raises(ValueError, match="a tree"):
            foreign.restore(foreign.dump(boosted), "file")
        nodes[change][0] = before
    nodes["right"][0] = 0  # in a circle
    with pytest.raises(ValueError, match="a tree leads outside"):
        foreign.restore(foreign.dump(boosted), "file")


def test_what_cannot_be_saved_is_refused_with_the_remedy(tmp_path, monkeypatch):
    frame, y, _ = shops(rows=100, clients=3)
    own = make_pipeline(FunctionTransformer(lambda x: x[["rain"]]), FAST)
    model = PersonalClassifier(own, client="shop", approach="global").fit(frame, y)
    with pytest.raises(ConfigError, match=r"Pipeline cannot be saved without pickle.*lambdas"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    model = PersonalClassifier(FAST, client="shop", approach="global").fit(frame, y)
    monkeypatch.setitem(sys.modules, "skops", None)
    with pytest.raises(ConfigError, match="pip install skops"):
        model.save(tmp_path / "m")


def test_damage_is_noticed(tmp_path):
    frame, y, _ = shops(rows=200, clients=4)
    PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y).save(tmp_path / "m")
    for path in sorted((tmp_path / "m").iterdir()):
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 2):
            content = bytearray(whole)
            content[at] ^= 4
            path.write_bytes(content)
            with pytest.raises(FileError):
                load(tmp_path / "m")
        path.unlink()
        with pytest.raises(FileError):
            load(tmp_path / "m")
        path.write_bytes(whole)
    load(tmp_path / "m")


SETTINGS = {
    "approach": "slope", "folds": "many", "client": {"table": {}}, "columns": "some", "extra": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_in_a_file_are_checked(name, tmp_path):
    frame, y, _ = shops(rows=100, clients=3)
    PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y).save(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    del manifest[SEAL]
    manifest["model"]["of"]["settings"]["table"][name] = SETTINGS[name]
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(sealed(manifest)))
    with pytest.raises((ConfigError, FileError), match=name):
        load(tmp_path / "m")


def test_clients_are_not_lost(tmp_path):
    frame, y, _ = shops(rows=400, clients=6)
    model = PersonalClassifier(FAST, client="shop", approach="recalibrate")
    model.fit(frame, y).save(tmp_path / "m")
    few = frame["shop"] != "shop 3"
    smaller = PersonalClassifier(FAST, client="shop", approach="recalibrate")
    smaller.fit(frame[few], y[few])
    with pytest.raises(FileError, match=r"1 clients that are not among.*'shop 3'.*replace=True"):
        smaller.save(tmp_path / "m")
    model.save(tmp_path / "m")
    smaller.save(tmp_path / "m", replace=True)
    assert "shop 3" not in load(tmp_path / "m").models_.ids


class Killed(BaseException):
    """As if the process ended here."""


def test_a_kill_leaves_the_old_models_or_the_new_ones(tmp_path, monkeypatch):
    frame, y, _ = shops(rows=400, clients=6)
    model = PersonalClassifier(FAST, client="shop", approach="local").fit(frame[:300], y[:300])
    model.save(tmp_path / "m")
    old = model.predict_proba(frame)
    late = frame[300:].assign(shop="shop 99")
    model.update(late, y[300:])
    new = model.predict_proba(frame.assign(shop="shop 99"))
    steps, left = [0], [0]

    def killing(function):
        def counted(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            steps[0] += 1
            return function(*args, **kwargs)

        return counted

    for module, name in ((store, "write_atomic"), (store, "write_json"), (store.Path, "unlink")):
        monkeypatch.setattr(module, name, killing(getattr(module, name)))
    seen = set()
    for at in range(1, 100):
        left[0] = at
        try:
            model.save(tmp_path / "m")
        except Killed:
            left[0] = -1
            again = load(tmp_path / "m")
            known = "shop 99" in again.models_.ids
            seen.add(known)
            if known:
                found = again.predict_proba(frame.assign(shop="shop 99"))
                np.testing.assert_array_equal(found, new)
            else:
                np.testing.assert_array_equal(again.predict_proba(frame), old)
            continue
        break
    assert seen and steps[0] > 3
    left[0] = -1
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(frame.assign(shop="shop 99")), new)
    named = set(json.loads((tmp_path / "m" / "manifest.json").read_text())["files"])
    assert {file.name for file in (tmp_path / "m").iterdir()} == {"manifest.json", *named}


def test_who_reads_while_another_one_saves_gets_the_new_models(tmp_path, monkeypatch):
    frame, y, _ = shops(rows=200, clients=4)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    model.save(tmp_path / "m")
    old = store._manifest(tmp_path / "m")
    model.update(frame[:40], y[:40]).save(tmp_path / "m")
    read = [old, store._manifest(tmp_path / "m")]
    monkeypatch.setattr(store, "_manifest", lambda folder: read.pop(0) if read[1:] else read[0])
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_what_has_not_changed_is_not_written_again(tmp_path):
    frame, y, _ = shops(rows=400, clients=6)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    model.save(tmp_path / "m")
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "m").glob("estimator-*")}
    again = load(tmp_path / "m")
    again.update(frame[:10], y[:10]).save(tmp_path / "m")
    after = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "m").glob("estimator-*")}
    assert before and after == before


def test_large_arrays_are_saved_by_adding_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PIECE", 200)
    frame, y, _ = shops(rows=400, clients=12)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    model.save(tmp_path / "m")
    before = {file.name for file in (tmp_path / "m").glob("rows-*")}
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    again.update(frame[:40].assign(shop="shop 99"), y[:40]).save(tmp_path / "m")
    after = {file.name for file in (tmp_path / "m").glob("rows-*")}
    assert len(before) > 5 and len(before & after) > len(before) / 2 and after - before
    found = load(tmp_path / "m").predict_proba(frame.assign(shop="shop 99"))
    np.testing.assert_array_equal(found, again.predict_proba(frame.assign(shop="shop 99")))


def test_types_that_nobody_knows_are_not_restored(tmp_path):
    frame, y, _ = shops(rows=100, clients=3)
    PersonalClassifier(Odd(), client="shop", approach="global").fit(frame, y).save(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"not known to be harmless: .*Odd"):
        load(tmp_path / "m")
    kind = f"{Odd.__module__}.Odd"
    assert sartor.load(tmp_path / "m", trusted=[kind]).predict(frame[:3]).shape == (3,)


class Odd(type(FAST)):
    """A class of a user's own."""


def test_other_directories_are_refused(tmp_path):
    with pytest.raises(FileError, match="holds no estimator"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "sartor-models"}')
    with pytest.raises(FileError, match="something else"):
        load(tmp_path)
    frame, y, _ = shops(rows=100, clients=3)
    model = PersonalClassifier(FAST, client="shop", approach="global").fit(frame, y)
    with pytest.raises(FileError, match=r"other files \(manifest.json\)"):
        model.save(tmp_path)
    damaged = json.dumps({"format": store.FORMAT, "version": store.VERSION})
    (tmp_path / "manifest.json").write_text(damaged)
    with pytest.raises(FileError, match=r"manifest\.json is damaged"):
        model.save(tmp_path)
    (tmp_path / "manifest.json").rename(tmp_path / "notes.txt")
    with pytest.raises(FileError, match=r"other files \(notes.txt\)"):
        model.save(tmp_path)
    with pytest.raises(ConfigError, match="trusted is for estimators"):
        sartor.load(tmp_path, trusted=["Odd"])


@dataclasses.dataclass(frozen=True)
class Scales:
    """A part of a further approach."""

    scale: np.ndarray
    usual: float


@dataclasses.dataclass(frozen=True)
class Shifted(Added):
    """A further approach, of which saving knows nothing."""

    scales: Scales
    by: dict[int, str]
    estimators: dict[str, object]

    def scores(self, rows, central):
        known = np.array([0.0, *self.scales.scale])[np.clip(rows.owner, -1, 2) + 1]
        return (
            central + known[:, None] + self.estimators["all"].predict(rows.linear[:, :1])[:, None]
        )

    def updated(self, rows, central, clients):
        return self

    def without(self, client):
        return self


def test_further_approaches_are_saved_by_their_fields(tmp_path):
    frame, y, _ = shops(rows=200, clients=4)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    ridge = Ridge().fit([[0.0], [1.0]], [0.5, 1.5])
    shifted = Shifted(Scales(np.array([0.5, -2.0, 3.0]), np.nan), {7: "seven"}, {"all": ridge})
    model.models_ = dataclasses.replace(model.models_, added={"slopes": shifted})
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    found = again.models_.added["slopes"]
    assert found.by == {7: "seven"} and np.isnan(found.scales.usual)


@dataclasses.dataclass
class Odds(Stored):
    """All kinds of fields."""

    numbers: list[float]
    pair: tuple[int, str] | None
    words: np.ndarray
    anything: object
    secret: str = dataclasses.field(default="", metadata={"saved": False})


def test_parts_go_together_as_they_are_declared():
    whole = Odds(
        [1.5, np.inf, np.float32(2)], (1, "a"), np.array(["x", "yy"]), {1: [None, True]}, "s"
    )
    arrays, estimators = {}, {}
    plain = json.loads(json.dumps(apart(whole, arrays, estimators)))
    again = together(plain, Odds, arrays, estimators.get)
    assert (again.words == whole.words).all() and again.secret == ""
    assert dataclasses.replace(again, words=None, secret="s") == dataclasses.replace(
        whole, words=None
    )
    assert together(plain, object, arrays, estimators.get) is not None
    for wrong in (
        {"numbers": ["a"]}, {"pair": [1, "a"]}, {"words": {"array": 3}}, {"more": 1},
        {"anything": {"is": "Path", "of": {}}},
    ):  # fmt: skip
        with pytest.raises((ValueError, KeyError)):
            together({"is": "Odds", "of": {**plain["of"], **wrong}}, Odds, arrays, estimators.get)
    with pytest.raises(ConfigError, match="is of set"):
        apart({"a": {1}}, {}, {})

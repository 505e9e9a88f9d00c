"""``sartor predict`` and ``sartor update``: files in, files out, and what is said on the way."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sartor as library
from sartor.estimators import PersonalClassifier, PersonalRegressor, chunks


def rows(count=300, seed=0):
    """Rows of shops 1 to 6, whose customers behave differently."""
    draw = np.random.default_rng(seed)
    shop = draw.integers(1, 7, count)
    frame = pd.DataFrame({
        "price": draw.normal(size=count).round(3),
        "stars": draw.integers(1, 6, count),
        "gift": draw.random(count) < 0.3,
        "kind": draw.choice(["new", "old", "NA"], count),
        "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(draw.integers(0, 300, count), "D"),
        "shop": shop,
        "id": [f"{i:03}" for i in range(count)],
    })  # fmt: skip
    frame.loc[::7, "price"] = np.nan
    frame["returned"] = frame["price"].fillna(0) * np.where(shop % 2, 2, -2) > 0
    frame["paid"] = frame["price"].fillna(0) * shop + frame["stars"]
    return frame


FEATURES = ["price", "stars", "gift", "kind", "day", "shop"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A classifier and a regressor, saved; tests only look at them."""
    folder, frame = tmp_path_factory.mktemp("saved"), rows()
    classifier = PersonalClassifier(LogisticRegression(), client="shop", approach="slopes")
    classifier.fit(frame[FEATURES], frame["returned"]).save(folder / "c")
    regressor = PersonalRegressor(Ridge(), client="shop", approach="slopes")
    regressor.fit(frame[FEATURES], frame["paid"]).save(folder / "r")
    return folder


def test_files_of_both_kinds_are_predicted_as_frames_are(sartor, saved, tmp_path, monkeypatch):
    frame = rows(seed=1)
    frame.to_csv(tmp_path / "new.csv", index=False)
    frame.to_parquet(tmp_path / "new.parquet")
    model = library.load(saved / "c")
    chances, said = model.predict_proba(frame[FEATURES]), model.predict(frame[FEATURES])
    for most in (70, 65_536):  # in chunks, or at once
        monkeypatch.setattr(chunks, "MOST_ROWS", most)
        for source in ("csv", "parquet"):
            for out in ("csv", "parquet"):
                target = tmp_path / f"out.{out}"
                code, text, err = sartor(
                    "predict", saved / "c", tmp_path / f"new.{source}", "--out", target,
                    "--keep", "id", "--keep", "returned",
                )  # fmt: skip
                assert code == 0 and err == "" and "300: 300 by own models" in text
                found = pd.read_csv(target, dtype={"id": str}) if out == "csv" else (
                    pd.read_parquet(target))  # fmt: skip
                assert list(found) == [
                    "id", "returned", "client", "prediction", "probability_False",
                    "probability_True", "model",
                ]  # fmt: skip
                assert found["id"].tolist() == frame["id"].tolist()
                assert (found["prediction"] == said).all() and set(found["model"]) == {"own"}
                proba = found[["probability_False", "probability_True"]].to_numpy()
                np.testing.assert_allclose(proba, chances, rtol=1e-9)


def test_unknown_and_misspelt_clients_are_named(sartor, saved, tmp_path):
    frame = rows(seed=1)[:6].astype({"shop": object})
    frame["shop"] = ["1.0", "07", "002", "kiosk", None, "5"]
    frame.to_csv(tmp_path / "new.csv", index=False)
    code, text, err = sartor(
        "predict", saved / "r", tmp_path / "new.csv", "--out", tmp_path / "out.csv"
    )
    assert code == 0 and "3 by own models, 3 by the global model" in text
    assert "2 clients are unknown" in err and "(2 of 6 rows): '07', 'kiosk'" in err
    assert "1 row has no client" in err
    found = pd.read_csv(tmp_path / "out.csv", dtype=str)
    assert found["client"].tolist()[:4] == ["1", "07", "2", "kiosk"]
    assert found["model"].tolist() == ["own", "global", "own", "global", "global", "own"]
    names = rows(count=100).assign(shop="shop " + rows(count=100)["shop"].astype(str))
    model = PersonalRegressor(Ridge(), client="shop", approach="slopes")
    model.fit(names[FEATURES], names["paid"]).save(tmp_path / "m")
    names[:1].assign(shop="Shpo 3").to_parquet(tmp_path / "new.parquet")
    _, _, err = sartor(
        "predict", tmp_path / "m", tmp_path / "new.parquet", "--out", tmp_path / "out.csv"
    )
    assert "'Shpo 3' (did you mean 'shop 3'?)" in err


def test_intervals(sartor, saved, tmp_path):
    frame = rows(seed=1)
    frame.to_parquet(tmp_path / "new.parquet")
    words = ("predict", saved / "r", tmp_path / "new.parquet", "--out", tmp_path / "out.parquet")
    assert sartor(*words, "--interval", "0.9")[0] == 0
    found = pd.read_parquet(tmp_path / "out.parquet")
    ends = library.load(saved / "r").predict_interval(frame[FEATURES], 0.9)
    np.testing.assert_allclose(found[["lower", "upper"]].to_numpy(), ends, rtol=1e-9)
    assert "between 0 and 1" in sartor(*words, "--interval", "90")[2]
    assert "no intervals" in sartor("predict", saved / "c", *words[2:], "--interval", "0.9")[2]


def test_words_for_gaps_are_gaps_unless_the_model_knows_them(sartor, saved, tmp_path):
    frame = rows(seed=1)
    frame.astype({"price": object}).fillna({"price": "NA"}).to_csv(
        tmp_path / "new.csv", index=False
    )
    assert (
        sartor("predict", saved / "r", tmp_path / "new.csv", "--out", tmp_path / "a.parquet")[0]
        == 0
    )
    found = pd.read_parquet(tmp_path / "a.parquet")["prediction"]
    expected = library.load(saved / "r").predict(frame[FEATURES])  # where NA is a kind
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    other = frame.assign(kind=frame["kind"].replace("NA", None))
    model = PersonalRegressor(Ridge(), client="shop", approach="slopes")
    model.fit(other[FEATURES], other["paid"]).save(tmp_path / "m")
    assert (
        sartor("predict", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "a.parquet")[0]
        == 0
    )
    found = pd.read_parquet(tmp_path / "a.parquet")["prediction"]
    np.testing.assert_allclose(found, model.predict(other[FEATURES]), rtol=1e-9)


def test_an_update_is_that_of_python(sartor, saved, tmp_path):
    frame = rows(seed=1).assign(store=rows(seed=1)["shop"]).drop(columns="shop")
    frame.loc[frame["store"] == 6, "store"] = 9
    new = frame[frame["store"].isin([2, 9])]
    new.to_csv(tmp_path / "new.csv", index=False)
    model = library.load(saved / "c")
    model.save(tmp_path / "m")
    model.update(new.rename(columns={"store": "shop"})[FEATURES], new["returned"])
    code, text, err = sartor(
        "update", tmp_path / "m", tmp_path / "new.csv", "--label", "returned", "--client", "store"
    )
    assert code == 0 and err == "" and "1 known and 1 new clients ('9')" in text
    every = frame.rename(columns={"store": "shop"})[FEATURES]
    found = library.load(tmp_path / "m").predict_proba(every)
    np.testing.assert_allclose(found, model.predict_proba(every), rtol=1e-9)


@pytest.mark.parametrize(
    "words, said",
    [
        (("predict", "new.csv", "--out", "out.txt"), "must end in .csv or .parquet"),
        (("predict", "new.csv", "--out", "new.csv"), "is the file to be read"),
        (("predict", "none.csv", "--out", "out.csv"), "is no file"),
        (
            ("predict", "new.csv", "--out", "out.csv", "--keep", "idd"),
            "no column 'idd'; did you mean",
        ),
        (
            ("predict", "new.csv", "--out", "out.csv", "--keep", "model"),
            "--keep model: a column of",
        ),
        (("predict", "few.csv", "--out", "out.csv"), "no column 'price'"),
        (("predict", "empty.csv", "--out", "out.csv"), "has no rows"),
        (("predict", "wrong.csv", "--out", "out.csv"), "price"),
        (("update", "new.csv", "--label", "return"), "no column 'return'; did you mean 'returned'"),
        (("update", "new.csv", "--label", "kind"), "is new, and the models know false, true"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    sartor, saved, tmp_path, monkeypatch, words, said
):
    monkeypatch.chdir(tmp_path)
    frame = rows(count=20).assign(model="x")
    frame.to_csv("new.csv", index=False)
    frame.drop(columns="price").to_csv("few.csv", index=False)
    frame[:0].to_csv("empty.csv", index=False)
    frame.assign(price="cheap").to_csv("wrong.csv", index=False)
    library.load(saved / "c").save("m")
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*/*")}
    code, _, err = sartor(words[0], "m", *words[1:])
    assert code == 1 and said in err
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*/*")} == before
    assert not {f.name for f in tmp_path.glob("*out*")} and not list(tmp_path.glob(".*"))


def test_pipelines_get_frames_of_pandas(sartor, tmp_path):
    frame = rows()
    model = PersonalRegressor(
        make_pipeline(SimpleImputer(), StandardScaler(), Ridge()),
        client="shop",
        approach="recalibrate",
    )
    model.fit(frame[["price", "stars", "shop"]], frame["paid"]).save(tmp_path / "m")
    frame.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "out.parquet"
    assert sartor("predict", tmp_path / "m", tmp_path / "new.csv", "--out", out)[0] == 0
    expected = model.predict(frame[["price", "stars", "shop"]])
    np.testing.assert_allclose(pd.read_parquet(out)["prediction"], expected, rtol=1e-9)


def test_types_of_a_users_own_need_trust(sartor, tmp_path):
    frame = rows(count=60)
    model = PersonalRegressor(Mine(), client="shop", approach="global")
    model.fit(frame[FEATURES], frame["paid"]).save(tmp_path / "m")
    frame.to_parquet(tmp_path / "new.parquet")
    words = ("predict", tmp_path / "m", tmp_path / "new.parquet", "--out", tmp_path / "out.csv")
    code, _, err = sartor(*words)
    assert code == 1 and "--trust" in err
    assert sartor(*words, "--trust", f"{Mine.__module__}.Mine")[0] == 0


class Mine(Ridge):
    """A class of a user's own."""


def test_models_in_jax_are_predicted_too(sartor, tmp_path):
    frame = rows()[["price", "stars", "shop"]].fillna(0)
    frame["label"] = np.where(rows()["returned"], "back", "kept")
    data = library.data.from_frame(frame, client="shop", label="label")
    model = library.models.logistic(features=2, classes=2)
    central = library.FedAvg(rounds=2).fit(model, data, seed=0)
    personal = library.Finetune(epochs=1).fit(central, data, seed=0)
    personal.save(tmp_path / "m")
    central.save(tmp_path / "central")
    frame.loc[0, "shop"] = 99
    frame.to_csv(tmp_path / "new.csv", index=False)
    words = (tmp_path / "new.csv", "--out", tmp_path / "out.csv", "--client", "shop")
    code, text, err = sartor("predict", tmp_path / "m", *words)
    assert code == 0 and "299 by own models, 1 by the global model" in text and "'99'" in err
    found = pd.read_csv(tmp_path / "out.csv")
    expected = personal.predict(frame["shop"], frame[["price", "stars"]])
    assert (found["prediction"] == expected).mean() > 0.99 and "probability_back" in found
    assert "Say --client" in sartor("predict", tmp_path / "m", *words[:-2])[2]
    assert "no models of clients" in sartor("predict", tmp_path / "central", *words)[2]
    code, _, err = sartor("update", tmp_path / "m", tmp_path / "new.csv", "--label", "label")
    assert code == 1 and "not updated" in err


def test_pandas_is_not_needed(saved, tmp_path):
    rows(seed=1).to_csv(tmp_path / "new.csv", index=False)
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import sartor.cli; sartor.cli.main()"
    )
    words = ["predict", saved / "c", tmp_path / "new.csv", "--out", tmp_path / "out.csv"]
    subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True)
    assert len(pd.read_csv(tmp_path / "out.csv")) == 300

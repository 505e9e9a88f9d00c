"""Saved and loaded, in this process or another one, models predict the same."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from estimator_cases import FAST, shops

from sartor.errors import ConfigError, FileError
from sartor.estimators import CANDIDATES, PersonalClassifier, PersonalRegressor, load


@pytest.mark.parametrize("approach", ["auto", *CANDIDATES])
def test_the_same_numbers(approach, tmp_path):
    frame, y, _ = shops()
    model = PersonalClassifier(FAST, client="shop", approach=approach).fit(frame, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert (again.predict(frame) == model.predict(frame)).all()
    assert not any(b"pickle" in file.read_bytes() for file in (tmp_path / "model").iterdir())


def test_boosted_numbers_in_another_process(tmp_path, monkeypatch):
    monkeypatch.setattr("sartor.estimators.makers.ITERATIONS", 30)
    frame, _, score = shops()
    model = PersonalRegressor(client="shop", approach="category").fit(frame, score)
    model.save(tmp_path / "model")
    frame.to_parquet(tmp_path / "rows.parquet")
    code = (
        "import sys, pandas; from sartor.estimators import load;"
        "print(load(sys.argv[1]).predict(pandas.read_parquet(sys.argv[2])).tolist())"
    )
    words = [sys.executable, "-c", code, tmp_path / "model", tmp_path / "rows.parquet"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == model.predict(frame).tolist()


def test_damage_is_noticed(tmp_path):
    frame, y, _ = shops()
    PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y).save(tmp_path / "m")
    for path in sorted((tmp_path / "m").iterdir()):
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 2):
            content = bytearray(whole)
            content[at] ^= 4
            path.write_bytes(content)
            with pytest.raises(FileError):
                load(tmp_path / "m")
        path.write_bytes(whole)
    load(tmp_path / "m")


def test_clients_are_not_lost(tmp_path):
    frame, y, _ = shops()
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


def test_types_that_nobody_knows_are_not_restored(tmp_path):
    frame, y, _ = shops()
    PersonalClassifier(Odd(), client="shop", approach="global").fit(frame, y).save(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"not known to be harmless: .*Odd"):
        load(tmp_path / "m")
    kind = f"{Odd.__module__}.Odd"
    assert load(tmp_path / "m", trusted=[kind]).predict(frame[:3]).shape == (3,)


class Odd(type(FAST)):
    """A class of a user's own."""


def test_other_directories_are_refused(tmp_path):
    with pytest.raises(FileError, match="holds no estimator"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "sartor-models"}')
    with pytest.raises(FileError, match="something else"):
        load(tmp_path)

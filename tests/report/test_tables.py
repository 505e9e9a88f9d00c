"""The page about a table's models: who gains what, what was tried, and what was done to columns."""

from __future__ import annotations

import dataclasses
import html
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits

from sartor.errors import ConfigError
from sartor.estimators import PersonalClassifier, PersonalRegressor
from sartor.estimators.findings import effects_that_differ, findings, shown_gain
from sartor.report import write_report
from sartor.report.tables import SHOWN, chosen_words, gain_words


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def visits(rows=600, shops=8, seed=0):
    """Visits to shops of which every other one turns a slope around."""
    draw = np.random.default_rng(seed)
    shop = draw.integers(0, shops, rows)
    frame = pd.DataFrame({
        "shop": [f"s{k}" for k in shop], "price": draw.normal(size=rows), "one": "x"
    })  # fmt: skip
    score = np.where(shop % 2, 3, -3) * frame.price + draw.normal(size=rows)
    return frame, np.where(score > 0, "yes", "no"), np.asarray(score, float)


@pytest.fixture(scope="module")
def model():
    frame, y, _ = visits()
    with threadpool_limits(1):
        return PersonalClassifier(LogisticRegression(), client="shop").fit(frame[:400], y[:400])


def text_of(page):
    """A page without its tags; cells are separated by bars."""
    page = re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"</t[hd]>", "|", page)
    return html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"</(p|tr|h\d|caption)>", "\n", page)))


def test_a_model_writes_its_page(model, tmp_path):
    frame, y, _ = visits()
    model.report(tmp_path / "visits.html", frame[400:], y[400:])
    page = text_of((tmp_path / "visits.html").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["visits.html"]
    assert "Sartor report: visits" in page
    assert "Fitted to 400 rows of 8 clients" in page and "2 classes (no, yes)" in page
    assert "8 of 8 clients get a model of their own" in page
    scores = model.evaluate(frame[400:], y[400:])
    assert f"{scores.loss.mean():.4f} instead of {scores.baseline.loss.mean():.4f}" in page
    for name in model.tried_.losses:
        assert f"\n{name}|" in page
    assert "one|the same in all rows|left out: one value in all rows|" in page
    assert "AUC|" in page and "Brier|" in page and "How to reproduce it" not in page


def test_without_fresh_rows_it_shows_what_is_expected(model, tmp_path):
    model.report(tmp_path / "advice.html")
    page = text_of((tmp_path / "advice.html").read_text())
    assert "Advice: advice" in page and "Nothing was held out for a test" in page
    assert "On held-out rows that had no part in choosing, this gained +" in page
    assert "Fresh rows\n" not in page
    with pytest.raises(ConfigError, match="or neither"):
        model.report(tmp_path / "x.html", visits()[0])
    with pytest.raises(ConfigError, match="is a directory"):
        model.report(tmp_path)


def test_clients_come_by_their_expected_gain(model):
    results, clients = findings(model, None, None)
    table = clients.to_pandas()
    decision, names = model.decision_, model.models_.names
    for client, gain in zip(table["client"], table["expected_gain"], strict=True):
        number = model.models_.ids[client]
        assert gain == decision.gain[names[number]][number]
    assert (table["low"] < table["expected"]).all() and (table["expected"] < table["high"]).all()
    assert table["expected"].max() < 110  # a share of the loss
    assert json.loads(json.dumps(results, allow_nan=False)) == results


def test_gains_of_numbers_are_in_their_units():
    frame, _, score = visits()
    model = PersonalRegressor(Ridge(), client="shop", approach="slopes")
    model.fit(frame[:400], score[:400])
    fresh = frame[400:], score[400:]
    twice = PersonalRegressor(Ridge(), client="shop", approach="slopes")
    twice.fit(frame[:400], 2 * score[:400])
    tables = [
        findings(m, m.evaluate(*of), m.measure(*of))[1].to_pandas()
        for m, of in ((model, fresh), (twice, (fresh[0], 2 * fresh[1])))
    ]
    np.testing.assert_allclose(tables[1]["seen"], 2 * tables[0]["seen"], rtol=1e-3)
    assert (tables[0]["seen"] > 1).all()


def test_shown_gains_are_monotonous():
    gains = np.linspace(-3, 5, 30)
    for kind in ("classification", "regression"):
        shown = shown_gain(gains, np.full(30, 4.0), kind)
        assert (np.diff(shown) >= 0).all() and shown_gain(np.zeros(1), np.ones(1), kind) == 0


def test_who_keeps_the_global_model_and_why(model):
    frame, y, _ = visits()
    alone = PersonalClassifier(LogisticRegression(), client="shop", approach="global")
    alone.fit(frame[:400], y[:400])
    results, clients = findings(alone, None, None)
    assert results["kept"] == {"as asked": 8} and set(clients["why"].to_pylist()) == {"as asked"}
    assert chosen_words(results).startswith("All clients keep the global model")
    new = frame[400:].assign(shop=frame["shop"][400:].replace("s3", "s99"))
    new.loc[new.index[:20], "shop"] = None
    scores, measures = model.evaluate(new, y[400:]), model.measure(new, y[400:])
    results, clients = findings(model, scores, measures)
    why = dict(zip(clients["client"].to_pylist(), clients["why"].to_pylist(), strict=True))
    assert why["s99"].startswith("new") and why["(no client)"] == "rows without a client"
    assert results["kept"] == {"new: not among the training rows": 1}
    assert "8 of 9 clients" in chosen_words(results)


def test_failures_of_estimators_are_listed(model, tmp_path):
    """A client whose own model could not be fitted keeps the central one, and the page says why."""
    frame, y, _ = visits()
    other = PersonalClassifier(LogisticRegression(), client="shop", approach="local")
    other.fit(frame[:400], y[:400])
    added = other.models_.added["local"]
    number = other.models_.ids["s3"]
    broken = dataclasses.replace(added, failed={number: "ValueError: too odd"})
    other.models_ = dataclasses.replace(other.models_, added={"local": broken})
    other.report(tmp_path / "page.html")
    page = text_of((tmp_path / "page.html").read_text())
    assert "whose own model could not be fitted" in page and "s3|ValueError: too odd|" in page


def test_effects_that_differ_most_come_first():
    table = pa.table({
        "client": ["a", "b", "c"] * 2,
        "column": ["flat"] * 3 + ["steep"] * 3,
        "effect": [0.1, 0.0, -0.1, 3.0, -4.0, 0.0],
        "deviation": [1.0] * 6,
    })  # fmt: skip
    found = effects_that_differ(table)
    assert [one["column"] for one in found] == ["steep", "flat"]
    assert [one["client"] for one in found[0]["largest"]] == ["a", "c", "b"]
    assert found[0]["smallest"][0] == {"client": "b", "effect": -4.0, "deviation": 1.0}
    assert found[0]["clear"] == pytest.approx(2 / 3) and found[1]["clear"] == 0
    assert effects_that_differ(None) == []


def write_run(folder, model, **changes):
    """The files of a run, as far as its page needs them."""
    frame, y, _ = visits()
    fresh = frame[400:], y[400:]
    results, clients = findings(model, model.evaluate(*fresh), model.measure(*fresh))
    folder.mkdir()
    about = {"experiment": "table", "config": {"seed": 0, **changes}, "warnings": ["odd <b>"]}
    (folder / "results.json").write_text(json.dumps(results | about))
    return folder, clients


def test_a_page_lists_some_clients_and_says_so(model, tmp_path):
    folder, clients = write_run(tmp_path / "run", model)
    many = pa.concat_tables([
        clients.set_column(0, "client", pa.array([f"<i>{name} {k}" for name in range(8)]))
        for k in range(SHOWN // 8 + 5)
    ])  # fmt: skip
    pq.write_table(many, folder / "per_client.parquet")
    write_report([folder], folder / "report.html")
    source = (folder / "report.html").read_text()
    page = text_of(source)
    assert f"{SHOWN} of {len(many)} clients, all are in per_client.parquet" in page
    assert "<i>" not in source and "<b>" not in source and "Warning: odd <b>" in page
    gains = [float(g) for g in re.findall(r"^<i>.*?\|([+-][\d.]+)%\|", page, re.MULTILINE)]
    assert len(gains) == SHOWN and gains == sorted(gains, reverse=True)


def test_runs_are_compared(model, tmp_path):
    folders = []
    for name in ("one", "two"):
        folder, clients = write_run(tmp_path / name, model, budget=len(name) + len(folders))
        pq.write_table(clients, folder / "per_client.parquet")
        folders.append(folder)
    write_report(folders, tmp_path / "both.html")
    page = text_of((tmp_path / "both.html").read_text())
    assert "\nrun|global|personal|gain|gained|hurt|\none|" in page
    assert "setting|one|two|" in page and "budget|3|4|" in page


def test_gains_in_words():
    assert gain_words(float("nan"), "regression") == "–"
    assert gain_words(-0.0, "classification") == "+0.0%"
    assert gain_words(1234.5, "regression") == "+1,234"
    assert gain_words(0.00012, "regression") == "+0.00012"

"""Tables on the command line: from a file to models, scores and a report, and what it refuses."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from run_cases import blank_figures, strict_json, write
from tabled_cases import BACK, SPENT, visits
from threadpoolctl import threadpool_limits

import sartor as library
from sartor import estimators
from sartor.errors import ConfigError
from sartor.runs import read_any
from sartor.runs.asked import advice_asked, run_asked
from sartor.runs.reading import read_rows

pytestmark = pytest.mark.filterwarnings("ignore:only .* rows are held out")


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


SLOPES = ("--approach", "slopes")
FEW = ("--set", "approach.folds=3")


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("visits") / "visits.csv"
    visits().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def config(csv):
    columns = {"client": "shop", "label": "back", "features": ["price", "kind", "empty"]}
    return run_asked(csv, columns, {"model": "linear"}, FEW[1:])


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """A finished run with everything chosen; tests only look at it."""
    out = tmp_path_factory.mktemp("tabled") / "visits"
    with blank_figures(), threadpool_limits(1):
        return library.run(config, out, progress=False)


def test_a_table_needs_no_configuration(sartor, csv, tmp_path):
    out = tmp_path / "out"
    code, said, err = sartor("run", csv, *BACK, *SLOPES, "--out", out)
    assert (code, err) == (0, "")
    lines = said.splitlines()
    assert len(lines) < 16 and max(map(len, lines)) < 125
    assert "visits.csv: 480 rows, 8 clients (shop); back is one of no, yes" in said
    assert "price (" in said and "empty (left out: empty) need attention" in said
    assert "8 of 8 clients get a model of their own: slopes for 8" in said
    assert "AUC" in said and "log loss" in said and str(out / "report.html") in said
    for name in ("config.toml", "results.json", "per_client.parquet", "report.html", "SHA256SUMS"):
        assert (out / name).is_file()
    settings = read_any(out / "config.toml")
    assert settings.approach == {"name": "slopes"} and settings.model == {"name": "linear"}
    assert settings.split == {"test": 0.2, "by": "random"}


def test_results_say_what_the_models_do(finished, csv):
    """The saved models predict the held-out rows as the results say."""
    results, out = finished.results, finished.directory
    assert strict_json(out / "results.json") == results
    rows = read_rows(read_any(out / "config.toml"))
    fresh, truth = rows.part(rows.test)
    assert results["fresh"]["rows"] == len(truth) == pytest.approx(96, abs=8)
    loaded = estimators.load(out / "models")
    summary = loaded.evaluate(fresh, truth).summary()
    assert summary.to_dict() == results["fresh"]["summary"]
    frame = visits()[list(loaded.feature_names_in_)]
    assert (loaded.predict(frame) == visits()["back"]).mean() > 0.8
    everybody, own = finished.scores
    assert own.loss.mean() < everybody.loss.mean() - 0.1
    table = pq.read_table(out / "per_client.parquet").to_pandas().set_index("client")
    assert set(table["approach"]) != {"global"} and (table["why"] == "").all()
    assert (table["low"] < table["expected"]).all() and (table["expected"] < table["high"]).all()
    place = dict(zip(own.client, own.loss, strict=True))
    assert table["loss"].to_dict() == pytest.approx(place)
    assert (table["rows"] + table["test_rows"]).sum() == 480
    named = [row["name"] for row in results["tried"] if not row["skipped"]]
    assert "global" in named and sum(row["clients"] for row in results["chosen"]) == 8


def test_its_configuration_does_the_same_again(sartor, finished, tmp_path):
    out = tmp_path / "again"
    code, _, err = sartor("run", finished.directory / "config.toml", "--out", out)
    assert (code, err) == (0, "")
    first, second = (strict_json(d / "results.json") for d in (finished.directory, out))
    for key in ("chosen", "fresh", "expected", "config"):
        assert first[key] == second[key]
    tables = (pq.read_table(d / "per_client.parquet") for d in (finished.directory, out))
    assert next(tables).equals(next(tables))


def test_numbers_are_predicted_in_their_units(sartor, csv, tmp_path):
    code, said, _ = sartor("run", csv, *SPENT, *FEW, "--out", tmp_path / "out")
    assert code == 0 and "spent is a number" in said and "RMSE" in said
    results = strict_json(tmp_path / "out" / "results.json")
    assert results["kind"] == "regression" and results["config"]["data"].get("task") is None
    table = pq.read_table(tmp_path / "out" / "per_client.parquet").to_pandas()
    drop = np.sqrt(table["loss_global"]) - np.sqrt(table["loss"])
    np.testing.assert_allclose(table["seen"], drop)
    assert table["expected"].mean() == pytest.approx(drop.mean(), rel=0.5)


def test_parquet_gives_what_csv_gives(sartor, csv, finished, tmp_path):
    visits().to_parquet(tmp_path / "visits.parquet")
    code, *_ = sartor("run", tmp_path / "visits.parquet", *BACK, *FEW, "--out", tmp_path / "out")
    found = strict_json(tmp_path / "out" / "results.json")
    assert code == 0 and found["fresh"] == finished.results["fresh"]


def test_clients_whose_names_are_numbers(sartor, tmp_path):
    frame = visits().assign(shop=lambda f: f["shop"].str[1:].astype(int).map("{:03d}".format))
    frame.to_csv(tmp_path / "v.csv", index=False)
    assert sartor("run", tmp_path / "v.csv", *BACK, *SLOPES, "--out", tmp_path / "out")[0] == 0
    clients = pq.read_table(tmp_path / "out" / "per_client.parquet")["client"].to_pylist()
    assert sorted(clients) == [f"00{k}" for k in range(8)]


def test_rows_without_a_client_or_a_label(sartor, tmp_path):
    frame = visits()
    frame.loc[3:12, "shop"] = None
    frame.loc[20:24, "back"] = None
    frame.to_csv(tmp_path / "v.csv", index=False)
    code, said, _ = sartor("run", tmp_path / "v.csv", *BACK, *SLOPES, "--out", tmp_path / "out")
    assert code == 0 and "8 of 8 clients" in said
    said = " ".join(said.split())
    assert "10 rows without a client, 5 rows without a label left out" in said
    results = strict_json(tmp_path / "out" / "results.json")
    assert results["data"]["rows"] == 475
    models = estimators.load(tmp_path / "out" / "models")
    assert set(models.clients_["client"].to_pylist()) == {f"s{k}" for k in range(8)}


@pytest.mark.parametrize(
    "words, said",
    [
        (["--client", "shpo", "--label", "back"], "client='shpo': no such column; did you mean 's"),
        (["--client", "shop", "--label", "bakc"], "label='bakc': no such column; did you mean 'b"),
        (["--label", "back"], "Say --client COLUMN (data.client); it may be shop (8 values, m"),
        (["--client", "shop"], "Say --label COLUMN (data.label); it may be "),
        (["--client", "shop", "--label", "day"], "label='day' holds dates"),
        (["--client", "shop", "--label", "shop"], "'shop' is both client and label"),
        ([*BACK, "--time", "dya"], "time='dya': no such column; did you mean 'day'"),
        ([*BACK, "--features", "pirce"], "features='pirce': no such column; did you mean 'price'"),
        ([*BACK, "--features", "back"], "'back' is both label and a feature"),
        ([*BACK, "--task", "ranking"], "data.task must be"),
        ([*BACK, "--test", "1.5"], "split.test must be a number in [0, 1)"),
        ([*BACK, "--test", "0"], "no row is held out, so nothing can be measured; say --test 0.2"),
        ([*BACK, "--set", "split.by=time"], "say which column holds times: --time COLUMN"),
        ([*BACK, "--time", "day", "--set", "split.by=tiem"], "is no date, and did you mean 'time'"),
        ([*BACK, "--time", "day", "--set", "split.by=2030-01-01"], "no rows from then on; they"),
        ([*BACK[:4], "--set", "split.given=kind"], "must say test or train in each row"),
        ([*BACK, "--set", "split.given=kind", "--test", "0.3"], "leave out split.test"),
        ([*BACK, "--approach", "slope"], "approach.name is 'slope'; did you mean 'slopes'"),
        ([*BACK, "--set", "approach.fold=3"], "approach.fold does not exist; did you mean 'folds'"),
        ([*BACK, "--set", "model.c=3"], "model.c does not exist for linear; did you mean 'C'"),
        ([*BACK, "--set", "model.C=-3"], "linear does not take these arguments: The 'C' parameter"),
        ([*BACK, "--set", "central.rounds=3", "--approach", "slopes"], "approach and task are for"),
        ([*BACK[:-2], "--model", "boosting", "--set", "model.x=3"], "which sets itself"),
        ([*BACK[:-1], "xgboost", "--set", "central.rounds=3"], "[central] is for models"),
        ([*BACK, "--resume"], "there is nothing to resume"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_leaves_nothing_behind(sartor, csv, tmp_path, words, said):
    code, out, err = sartor("run", csv, "--out", tmp_path / "out", *words)
    assert (code, out) == (1, "") and said in err, err
    assert err.splitlines()[-1].startswith("error: ") and not (tmp_path / "out").exists()


def test_files_that_are_no_tables(sartor, csv, tmp_path):
    assert "there is no " in sartor("run", tmp_path / "absent.csv", *BACK)[2]
    write(tmp_path / "run.toml", "[data]\npath = 'absent.csv'\n[model]\nname = 'boosting'\n")
    said = sartor("run", tmp_path / "run.toml", "--client", "shop")[2]
    assert "is a configuration, which says that itself; change it by --set data.client=shop" in said
    assert "there is no " in sartor("run", tmp_path / "run.toml", "--out", tmp_path / "o")[2]
    write(tmp_path / "twice.csv", "a,a\n1,2\n")
    assert "two columns are called 'a'" in sartor("run", tmp_path / "twice.csv", *BACK)[2]
    out = tmp_path / "out"
    write(out / "mine.txt", "")
    said = sartor("run", csv, *BACK, *SLOPES, "--out", out)[2]
    assert "is not empty; choose another --out" in said and (out / "mine.txt").exists()


def test_models_in_jax_are_run_on_tables_too(sartor, csv, tmp_path):
    plain = tmp_path / "plain.csv"
    visits().fillna({"price": 0.0})[["shop", "price", "back"]].to_csv(plain, index=False)
    words = (
        "--client",
        "shop",
        "--label",
        "back",
        "--model",
        "logistic",
        "--set",
        "central.rounds=4",
    )
    code, said, _ = sartor("run", plain, *words, "--out", tmp_path / "out")
    assert code == 0 and "Finetune: 8 clients" in said
    assert (tmp_path / "out" / "models" / "Finetune").is_dir()


def test_a_stop_leaves_nothing_in_the_way(sartor, csv, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sartor.runs.tabled.write_report", stop)
        code, _, err = sartor("run", csv, *BACK, *SLOPES, "--out", tmp_path / "out")
    assert code == 130 and "Nothing was written. Start again with" in err
    assert "--resume" not in err and not list(tmp_path.iterdir())


def test_models_that_cannot_be_saved_cost_no_results(sartor, csv, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ConfigError("Mine cannot be saved without pickle")

    monkeypatch.setattr(estimators.PersonalClassifier, "save", refuse)
    code, said, err = sartor("run", csv, *BACK, *SLOPES, "--out", tmp_path / "out")
    assert code == 0 and "warning: the models were not saved: Mine cannot" in err
    assert "Models:" not in said and "Report:" in said
    assert "were not saved" in str(strict_json(tmp_path / "out" / "results.json")["warnings"])


def test_what_an_estimator_cannot_do_is_said(sartor, csv, tmp_path):
    words = (*BACK[:-1], "sklearn.svm.LinearSVC")
    code, _, err = sartor("run", csv, *words, *SLOPES, "--out", tmp_path / "out")
    assert code == 1 and "LinearSVC" in err and err.count("\n") == 1


def test_advice_on_a_table(sartor, csv, tmp_path):
    out = tmp_path / "advice"
    code, said, err = sartor("advise", csv, *BACK, "--out", out, "--folds", 3)
    assert (code, err) == (0, "")
    assert "8 of 8 clients get a model of their own" in said
    assert "of the loss, on held-out rows" in said and "Most:" in said
    results = strict_json(out / "results.json")
    assert results["experiment"] == "table advice" and results["rows"] == 480
    assert results["fresh"] is None and not (out / "models").exists()
    table = pq.read_table(out / "per_client.parquet").to_pandas()
    assert (table["low"] > 0).all() and (table["rows"].sum()) == 480
    page = (out / "report.html").read_text()
    assert "<h1>Advice: advice</h1>" in page and "sartor advise DIRECTORY" in page
    code, _, err = sartor("advise", out, "--approach", "slopes", "--out", tmp_path / "more")
    assert (code, err) == (0, "")
    settings = read_any(tmp_path / "more" / "config.toml")
    assert settings.approach == {"name": "slopes", "folds": 3}


def test_advice_on_a_run_leaves_its_test_rows_alone(finished):
    found = advice_asked(finished.directory, {}, {}, [])
    assert found == read_any(finished.directory / "config.toml")
    with pytest.raises(ConfigError, match="says itself which columns"):
        advice_asked(finished.directory, {"client": "shop"}, {}, [])


def test_two_groupings(sartor, csv, tmp_path):
    words = (*SPENT, "--approach", "crossed", "--second", "day")
    code, _, err = sartor("run", csv, *words, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert read_any(tmp_path / "out" / "config.toml").data["second"] == "day"
    code, _, err = sartor("run", csv, *BACK, "--second", "day", "--out", tmp_path / "no")
    assert code == 1 and "a second grouping is for regression" in err


def test_effects_that_differ_between_clients_are_in_the_report(sartor, csv, tmp_path):
    out = tmp_path / "out"
    code, *_ = sartor("run", csv, *BACK, *SLOPES, "--out", out)
    effects = pq.read_table(out / "effects.parquet").to_pandas()
    assert code == 0 and set(effects["client"]) == {f"s{k}" for k in range(8)}
    price = effects[effects["column"] == "price"].set_index("client")["effect"]
    first, *_ = strict_json(out / "results.json")["effects"]
    assert first["column"] == "price" and first["spread"] == pytest.approx(price.std(ddof=0))
    assert first["largest"][0]["client"] == price.idxmax()
    page = (out / "report.html").read_text()
    assert "Effects that differ between clients" in page and "effects.parquet" in page


def test_ids_that_were_written_as_floats(sartor, tmp_path):
    """As pandas writes whole numbers beside gaps."""
    frame = visits().assign(shop=lambda f: f["shop"].str[1:].astype(float) + 100)
    frame.loc[3:12, "shop"] = None
    frame.to_csv(tmp_path / "v.csv", index=False)
    assert "103.0" in (tmp_path / "v.csv").read_text()
    assert sartor("run", tmp_path / "v.csv", *BACK, *SLOPES, "--out", tmp_path / "out")[0] == 0
    clients = pq.read_table(tmp_path / "out" / "per_client.parquet")["client"].to_pylist()
    assert {f"10{k}" for k in range(8)} <= set(clients) and "103.0" not in clients
    frame = frame.dropna(subset="shop").astype({"shop": int})
    for suffix, save in ((".csv", frame.to_csv), (".parquet", frame.to_parquet)):
        save(tmp_path / f"new{suffix}", index=False)
        words = ("predict", tmp_path / "out" / "models", tmp_path / f"new{suffix}")
        code, said, err = sartor(*words, "--out", tmp_path / f"said{suffix}")
        assert code == 0 and err == "" and f"{len(frame)} by own models" in said


def test_rows_without_a_label_change_nothing_later(sartor, tmp_path):
    frame = visits()
    frame.to_csv(tmp_path / "v.csv", index=False)
    assert sartor("run", tmp_path / "v.csv", *BACK, *SLOPES, "--out", tmp_path / "out")[0] == 0
    frame.loc[:9, "back"] = None
    frame[:60].to_csv(tmp_path / "new.csv", index=False)
    words = ("update", tmp_path / "out" / "models", tmp_path / "new.csv", "--label", "back")
    code, said, err = sartor(*words)
    assert code == 0 and "50 rows of 8 known" in said and "10 rows without a label" in said
    code, _, err = sartor(*words, "--client", "kind")
    assert code == 1 and "learned from a column of this name" in err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("semi.csv", "shop;back\na;yes\nb;no\n", "separated by ';'"),
        (
            "keys.csv",
            "shop,price,back\n" + "".join(f"s{k},1,{'no' if k % 2 else 'yes'}\n" for k in range(9)),
            "is it a key?",
        ),
        ("table.xlsx", "PK", "save the table as CSV or Parquet"),
    ],
)
def test_tables_that_cannot_be_used_say_why(sartor, tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    code, _, err = sartor(
        "run", tmp_path / name, "--client", "shop", "--label", "back", "--out", tmp_path / "o"
    )
    assert code == 1 and said in err
    code, _, err = sartor(
        "run", tmp_path, "--client", "shop", "--label", "back", "--out", tmp_path / "o"
    )
    assert code == 1 and "is a directory" in err

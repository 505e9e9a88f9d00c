"""Advice as a command: from data or a run to a directory, and what it says when it cannot."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from run_cases import SMALL, strict_json, table, write

import sartor as library
from sartor.advice.client_bounds import default_largest_loss
from sartor.errors import ConfigError, FileError
from sartor.report import write_report
from sartor.runs import advice_config, advise_run, read_config
from sartor.runs.advised import summary
from sartor.runs.toml import to_toml

pytestmark = pytest.mark.filterwarnings("ignore:.*in one cluster", "ignore:HypCluster. some")

QUICK = ["central.rounds=5", "cluster.rounds=5", "cluster.warm_rounds=1", "local.epochs=2",
         "advice.folds=3", "interpolation.cover=[0.5, 1.0]"]  # fmt: skip
SETS = [word for text in QUICK for word in ("--set", text)]


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    return write(tmp_path_factory.mktemp("people") / "people.csv", table())


@pytest.fixture(scope="module")
def advised(people, tmp_path_factory):
    out = tmp_path_factory.mktemp("advised") / "out"
    columns = {"client": "user", "label": "label", "domain": "region"}
    config = advice_config(people, overrides=QUICK, columns=columns, seed=4)
    return (*advise_run(config, out, progress=False), out)


@pytest.fixture
def asked(advised, monkeypatch):
    """What is asked of advice, which says what it has said before instead of training."""
    advice, *_ = advised
    calls = []

    def advise(data, model, **options):
        calls.append((data, model, options))
        settings = {**advice.settings, "delta": options.get("delta", 0.05)}
        return dataclasses.replace(advice, settings=settings)

    monkeypatch.setattr("sartor.runs.advised.advise", advise)
    return calls


def test_a_directory_with_everything(advised):
    advice, results, out = advised
    assert strict_json(out / "results.json") == results
    assert results["experiment"] == "advice" and results["seed"] == 4
    clients = pq.read_table(out / "per_client.parquet").to_pydict()
    assert clients["client"] == list(advice.client)
    assert clients["advice"] == advice.advice.tolist()
    assert np.allclose(clients["held_out_local"], advice.held_out["local"])
    assert np.allclose(clients["gain_local"], advice.gain["local"])
    assert sum(results["shares"].values()) == pytest.approx(1)
    assert sum(pair["clients"] for pair in results["sharing"]) == len(advice.client)
    page = (out / "report.html").read_text()
    assert "What the bounds say" in page and "discrepancy to everybody" in page
    assert (out / "figures" / "plane.pdf").exists()
    assert clients["seen"] == advice.seen.tolist()


def test_a_stop_leaves_nothing_in_the_way(advised, asked, people, tmp_path, monkeypatch):
    """Advice does not resume: the same command starts anew, wherever it was stopped."""
    columns = {"client": "user", "label": "label", "domain": "region"}
    config = advice_config(people, overrides=QUICK, columns=columns)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sartor.runs.advised.write_report", stop)
        with pytest.raises(KeyboardInterrupt):
            advise_run(config, tmp_path / "out", progress=False)
    assert not list(tmp_path.iterdir())
    advise_run(config, tmp_path / "out", progress=False)
    assert "<h1>Advice: out</h1>" in (tmp_path / "out" / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_it_says_how_to_do_it_again(advised, asked, people, tmp_path):
    """From its own directory, advice is asked for the same: every argument is equal."""
    *_, out = advised
    columns = {"client": "user", "label": "label", "domain": "region"}
    config = advice_config(out)
    assert config.base.seed == 4 and config.others["cluster"].rounds == 5
    assert config == advice_config(people, overrides=QUICK, columns=columns, seed=4)
    advise_run(config, tmp_path / "again", progress=False)
    data, model, options = asked[0]
    assert data.fingerprint == config.base.open_data().fingerprint
    assert model == config.base.make_model(data)
    assert options == {
        "central": config.base.central, **config.others, "seed": 4, "engine": config.base.engine,
        "progress": False, "folds": 3,
    }  # fmt: skip
    assert (tmp_path / "again" / "config.toml").read_text() == (out / "config.toml").read_text()


def test_of_a_run_everything_is_taken_over(sartor, asked, tmp_path):
    more = SMALL + '\n[[personal]]\nname = "Dapper"\nr = 2\n'
    more = more.replace('name = "FedAvg"', 'name = "HypCluster"\nq = 3\nwarm_rounds = 2')
    run = tmp_path / "run"  # advice reads nothing of a run but its configuration
    resolved = read_config(write(tmp_path / "small.toml", more)).to_table()
    write(run / "config.toml", to_toml(resolved))
    config = advice_config(run)
    assert config.base.model["name"] == "categorical" and config.base.seed == 3
    assert config.base.split["unseen"] == 0.25 and config.base.engine.lanes == 4
    assert isinstance(config.base.central, library.FedAvg) and config.others["cluster"].q == 3
    assert config.base.central.rounds == config.others["cluster"].rounds == 12
    assert config.base.central.learning_rate == 0.5
    assert config.others["local"].epochs == 1 and config.others["interpolation"].r == 2
    cover = config.others["interpolation"].cover
    assert cover == (0.25, 0.5, 0.75, 1.0)  # eleven are no quick experiment
    code, said, err = sartor("advise", run, "--out", tmp_path / "out", "--folds", 3)
    assert code == 0 and "of the clients" in said and "as advised" in said
    assert "global by FedAvg, cluster by HypCluster, local by Local, interpolation by Dapper" in err
    data, model, options = asked[0]
    assert data.seen.tolist().count(False) == 2 and model.spec["name"] == "categorical"
    assert options["folds"] == 3 and options["seed"] == 3
    for name in ("cluster", "local", "interpolation"):
        assert options[name] == config.others[name]


def test_a_run_of_one_model_gives_its_settings_to_the_clusters(tmp_path):
    text = SMALL.replace("learning_rate = 0.5", "learning_rate = 0.5\nserver_momentum = 0.25")
    write(tmp_path / "run" / "config.toml", text)
    config = advice_config(tmp_path / "run")
    cluster = config.others["cluster"]
    assert cluster.learning_rate == 0.5 and cluster.server_momentum == 0.25
    assert cluster.rounds == 12 and cluster.start.rounds == 3
    assert type(config.others["interpolation"]).__name__ == "Finetune"


def test_the_model_fits_the_labels(people, tmp_path):
    assert advice_config(
        people, columns={"client": "user", "label": "label", "domain": "region"}
    ).base.model == {"name": "logistic"}
    floats = write(tmp_path / "f.csv", "user,x,y\n" + "a,1,0.5\nb,2,1.5\n" * 6)
    config = advice_config(floats, columns={"client": "user", "label": "y"})
    assert config.base.model == {"name": "linear"}


def test_squared_errors(sartor, asked, tmp_path):
    rows = "".join(f"c{k},{x},{x * (k % 3)}.5\n" for k in range(6) for x in range(8))
    write(tmp_path / "f.csv", "user,x,y\n" + rows)
    told = ["advise", tmp_path / "f.csv", "--client", "user", "--label", "y", *SETS]
    code, said, _ = sartor(*told, "--out", tmp_path / "out", "--delta", 0.1)
    assert code == 0 and "squared error" in said
    assert strict_json(tmp_path / "out" / "results.json")["settings"]["delta"] == 0.1
    data, model, options = asked[0]
    assert options["delta"] == 0.1 and "bound" not in options
    assert default_largest_loss(model, data) == 4 * 14.5**2


def test_without_interpolation(people, advised, asked, tmp_path):
    columns = {"client": "user", "label": "label", "domain": "region"}
    overrides = [*QUICK, "interpolation.name=none"]
    config = advice_config(people, overrides=overrides[:-2] + overrides[-1:], columns=columns)
    assert config.others["interpolation"] is None
    advise_run(config, tmp_path / "out", progress=False)
    assert asked[0][2]["interpolation"] is None
    assert config.to_table()["interpolation"] == {"name": "none"}


def test_results_of_advice_without_interpolation(advised):
    advice, *_ = advised
    sharing = ("global", "cluster", "local")
    gain, deviation = ({n: v[n] for n in sharing} for v in (advice.gain, advice.deviation))
    results = summary(
        dataclasses.replace(
            advice, gain=gain, deviation=deviation, advice=advice.sharing,
            lambda_=np.full(len(advice.client), np.nan),
        )
    )  # fmt: skip
    assert set(results["shares"]) == {"local", "global", "cluster"} and results["lambda"] == {}


def test_what_is_wrong_is_said_and_leaves_nothing_behind(sartor, people, tmp_path):
    out = tmp_path / "out"
    write(people.with_name("run.toml"), SMALL)
    columns = ["--client", "user", "--label", "label", "--domain", "region", "--out", out]
    for words, expected in {
        ("absent.csv",): "there is no absent.csv",
        (people, "--set", "advice.fold=3"): "advice.fold does not exist; did you mean 'folds'?",
        (people, "--set", "local.epoch=3"): "local.epoch does not exist; did you mean 'epochs'?",
        (people, "--set", "cluster.q=0"): "q",
        (people, "--model", "logstic"): "did you mean 'logistic'?",
        (people, "--folds", "2"): "folds must be a whole number from 3",
        (people, "--set", "locl.epochs=2"): "locl does not exist; did you mean 'local'?",
        (people, "--set", "central.name=HypCluster"): "makes several models",
        (people.with_name("run.toml"),): "is a configuration; run it first",
    }.items():
        code, _, err = sartor("advise", *words, *columns)
        assert code == 1 and expected in err, err
        assert not out.exists()
    out.mkdir()
    write(out / "mine.txt", "")
    code, _, err = sartor("advise", people, *columns, *SETS)
    assert code == 1 and "not empty; choose another --out" in err
    run = tmp_path / "run"
    write(run / "config.toml", SMALL)
    with pytest.raises(ConfigError, match="says itself which columns"):
        advice_config(run, columns={"client": "user"})
    write(run / "config.toml", "[emnist]\nseeds = 3\n")
    with pytest.raises(FileError, match="is not of a run"):
        advice_config(run)


def test_pages_of_networks_say_that_bounds_are_loose(advised, tmp_path):
    *_, out = advised
    other = shutil.copytree(out, tmp_path / "other")
    results = strict_json(other / "results.json")
    results["settings"] |= {"d": 1_206_590.0, "d_how": "parameters"}
    results["vacuous"] = 1.0
    write(other / "results.json", json.dumps(results))
    (other / "SHA256SUMS").unlink()
    write_report([other], other / "report.html")
    page = (other / "report.html").read_text()
    assert "very loose" in page and "promise nothing here, to anybody" in page

"""A run: what the directory holds, that its numbers agree, and what is refused before it starts."""

from __future__ import annotations

import dataclasses

import numpy as np
import optax
import pyarrow.parquet as pq
import pytest
from run_cases import config, contents, events, lonely, strict_json, table, table_config, write

import sartor
from sartor.errors import CheckpointError, ConfigError, DataError, DivergedError, FileError
from sartor.files import read_metadata
from sartor.report import write_report
from sartor.runs import read_config, run


def test_the_directory_holds_everything(finished):
    names = {str(p.relative_to(finished.directory)) for p in finished.directory.rglob("*.*")}
    assert names == {
        "config.toml",
        "results.json",
        "per_client.parquet",
        "events.jsonl",
        "report.html",
        *(f"figures/{n}.{e}" for n in ("clients", "gains", "training") for e in ("png", "pdf")),
        "checkpoint/central.safetensors",
        "models/central/central.safetensors",
        "models/central/manifest.json",
        "models/central/trained.safetensors",
        *(
            f"models/{method}/{file}"
            for method in ("Finetune", "Local")
            for file in (
                "central.safetensors",
                "manifest.json",
                "shard-00000.safetensors",
                "shard-00001.safetensors",
                "trained.safetensors",
                "trials.safetensors",
            )
        ),
    }
    assert read_config(finished.directory / "config.toml") == config()


def test_a_run_in_a_few_words(finished):
    assert repr(finished).startswith(f"Run('{finished.directory}': FedAvg of 8 clients, Finetune")
    assert len(repr(finished)) < 300


def test_results_are_the_scores(finished):
    results = strict_json(finished.directory / "results.json")
    assert results == finished.results
    assert list(results["methods"]) == [s.method for s in finished.scores]
    assert list(results["methods"]) == ["FedAvg", "Finetune", "Local"]
    for scores in finished.scores:
        written = results["methods"][scores.method]
        assert written["loss"]["mean"] == scores.loss.mean()
        assert written["groups"]["unseen"]["loss"]["mean"] == scores.unseen_only().loss.mean()
        assert written["clients"] == 8 and written["groups"]["unseen"]["clients"] == 2
    assert [(c["a"], c["b"]) for c in results["comparisons"]] == [
        ("Finetune", "FedAvg"),
        ("Local", "FedAvg"),
        ("Local", "Finetune"),
    ]
    assert len(results["training_loss"]) == 12 and results["seed"] == 3
    assert results["data"]["fingerprint"] == config().open_data().fingerprint


def test_the_table_of_clients_is_the_scores(finished):
    written = pq.read_table(finished.directory / "per_client.parquet")
    assert len(written) == 3 * 8
    for scores in finished.scores:
        rows = written.filter(np.array(written["method"].to_pylist()) == scores.method)
        assert rows["client"].to_pylist() == list(scores.client)
        assert rows["loss"].to_pylist() == scores.loss.tolist()
        assert rows["seen"].to_pylist() == scores.seen.tolist()


def test_saved_models_score_the_same(finished):
    data = config().open_data()
    for scores in finished.scores:
        name = "central" if scores.method == "FedAvg" else scores.method
        loaded = sartor.load(finished.directory / "models" / name)
        assert loaded.evaluate(data).loss.tolist() == scores.loss.tolist()


def test_the_log_has_every_round(finished):
    lines = events(finished.directory)
    assert [line["event"] for line in lines] == [
        "started", *["round"] * 12, "personalized", "personalized", "finished"
    ]  # fmt: skip
    rounds = [line for line in lines if line["event"] == "round"]
    assert [line["round"] for line in rounds] == [*range(1, 13)]
    loss = finished.results["training_loss"]
    np.testing.assert_allclose([line["loss"] for line in rounds], loss, atol=1e-5)


def test_the_same_configuration_gives_the_same_numbers(tmp_path):
    once = run(config(), tmp_path / "once")  # modules of tests differ in how they compile
    again = run(once.directory / "config.toml", tmp_path / "again")
    assert again.results["methods"] == once.results["methods"]


def test_a_directory_in_use_is_refused(finished, tmp_path):
    before = sorted(finished.directory.rglob("*"))
    with pytest.raises(FileError, match=r"finished is not empty; resume .*--resume .*, or choose"):
        run(config(), finished.directory)
    assert sorted(finished.directory.rglob("*")) == before
    file = write(tmp_path / "file", "mine")
    with pytest.raises(FileError, match="file is a file, and a directory is needed"):
        run(config(), file)
    foreign = write(tmp_path / "foreign" / "thesis.tex", "mine").parent
    for resume in (False, True):
        with pytest.raises(FileError, match=r"no run to resume, but other files; choose an empty"):
            run(config(), foreign, resume=resume)
    assert (foreign / "thesis.tex").read_text() == file.read_text() == "mine"


def test_no_personal_algorithm(tmp_path):
    done = run(config("personal=[]"), tmp_path)
    assert list(done.results["methods"]) == ["FedAvg"] and done.results["comparisons"] == []
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["central"]
    assert "FedAvg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_two_of_a_kind_get_numbers(tmp_path):
    done = run(config("personal.1.name=Finetune", "personal.1.learning_rate=0.5"), tmp_path)
    assert list(done.results["methods"]) == ["FedAvg", "Finetune-1", "Finetune-2"]
    first, second = done.scores[1:]
    assert not np.array_equal(first.loss, second.loss)
    data = config().open_data()
    for scores in (first, second):
        models = sartor.load(tmp_path / "models" / scores.method)
        assert models.evaluate(data).loss.tolist() == scores.loss.tolist()


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (("split.test=0",), DataError, "no client has a test part.*add test = 0.2"),
        (("personal.0.layers=['dense_7']",), ConfigError, "there is no layer 'dense_7'"),
        (("engine.devices=99",), ConfigError, "engine.devices is 99"),
        (("model.name=logistic",), ConfigError, "model 'logistic' needs features"),
        (("model.symbols=3",), DataError, "out of range for a model of 3 classes"),
        (("split.test=1.5",), ConfigError, "split.test must be a number in"),
        (("data.symbols=2",), ConfigError, "data.symbols must be"),
        (("personal=[{name='Dapper',source='public'}]",), ConfigError, "cannot be run from"),
        (("personal=[{name='Dapper',source='statistics'}]",), ConfigError, "linear regression"),
        (("personal=[{name='Mapper',keep_local=true}]",), ConfigError, "validation = 0.2"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(tmp_path, settings, error, message):
    with pytest.raises(error, match=message):
        run(config(*settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()  # the next try needs no --resume


def test_texts_that_are_not_utf8(tmp_path):
    (tmp_path / "people.csv").write_bytes(table().replace("east", "Köln").encode("latin1"))
    path = write(tmp_path / "run.toml", table_config("logistic"))
    with pytest.raises(DataError, match=r"not UTF-8.*iconv"):
        run(path, tmp_path / "out")


@pytest.mark.parametrize(
    "content, error, message",
    [
        (None, FileError, "people.csv: there is no such file"),
        (table().replace("yes", "", 1), DataError, r"client 'u\d', column 'label', row \d"),
        (table().replace("region", "place"), ConfigError, "domain='region'"),
        (table("numbers").replace("u0,", "u0,nan,0,0,east\nu0,", 1), DataError, "client 'u0'"),
        ("", DataError, "people.csv"),
    ],
)
def test_data_that_cannot_be_read(tmp_path, content, error, message):
    if content is not None:
        write(tmp_path / "people.csv", content)
    path = write(tmp_path / "run.toml", table_config("logistic"))
    with pytest.raises((error, FileError), match=message):
        run(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_regression_end_to_end(tmp_path):
    write(tmp_path / "people.csv", table("numbers", rows=24))
    done = run(write(tmp_path / "run.toml", table_config("linear", rounds=60)), tmp_path / "out")
    assert done.results["metric"] == "loss"
    assert done.results["methods"]["FedAvg"]["accuracy"] is None
    # The table is linear without noise, so the loss goes to nothing; labels have variance 5.
    assert done.results["methods"]["FedAvg"]["loss"]["mean"] < 0.05
    assert {*done.results["methods"]["FedAvg"]["groups"]} == {"seen", "domain=east", "domain=north"}
    model = sartor.load(tmp_path / "out" / "models" / "central")
    assert model.predict([[1.0, 1.0]])[0] == pytest.approx(-1, abs=0.3)


def test_a_client_without_test_examples_is_left_out(tmp_path):
    made = config("personal.1.name=Finetune")
    made = dataclasses.replace(made, data={"path": str(lonely(tmp_path / "data"))}, split={})
    with pytest.warns(UserWarning, match="1 of 4 clients have no test examples"):
        done = run(made, tmp_path / "out")
    assert [s.client for s in done.scores] == [("a", "c", "d")] * 3
    models = sartor.load(tmp_path / "out" / "models" / "Finetune-1")
    assert len(models) == 4 and models.predict("b", None).shape == ()


def test_an_infinite_loss_is_no_number_in_json(tmp_path):
    draw = np.random.default_rng(1)
    x = draw.standard_normal((24, 2)).astype(np.float32)
    data = sartor.data.from_arrays(x, x[:, 0], np.repeat([0, 1, 2], 8)).split(test=0.25)
    y = np.array(data.columns["y"])
    y[data.part(1, "test")] = 1e30  # its square is no float
    columns, seen = {"x": data.columns["x"], "y": y}, np.array([True, False, True])
    dataclasses.replace(data, columns=columns, seen=seen).save(tmp_path / "data")
    made = read_config(write(tmp_path / "run.toml", table_config("linear")))
    made = dataclasses.replace(made, data={"path": str(tmp_path / "data")}, split={})
    done = run(made, tmp_path / "out")
    assert np.isinf(done.scores[0].loss[1])
    results = strict_json(tmp_path / "out" / "results.json")
    assert results["methods"]["FedAvg"]["loss"]["mean"] is None
    assert results["methods"]["FedAvg"]["loss"]["percentiles"]["5"] is not None
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "No method has a finite mean test loss" in page


def test_a_configuration_object_is_checked_like_a_file(tmp_path):
    wrong = dataclasses.replace(config(), model={"name": "categorial"})
    with pytest.raises(ConfigError, match="did you mean 'categorical'"):
        run(wrong, tmp_path / "out")
    unwritable = sartor.FedAvg(client_optimizer=optax.sgd(0.1))
    with pytest.raises(ConfigError, match=r"central.client_optimizer must be .* a table"):
        run(dataclasses.replace(config(), central=unwritable), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tuples_and_relative_paths_of_an_object_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(write(tmp_path / "people.csv", table()).parent)
    made = read_config(write(tmp_path / "run.toml", table_config("mlp", rounds=2)))
    made = dataclasses.replace(
        made,
        data={**made.data, "path": "people.csv"},
        model={"name": "mlp", "hidden": (4,)},
        personal=(),
    )
    first = run(made, "out")
    assert run(made, "out", resume=True).results["methods"] == first.results["methods"]


def test_divergence_names_round_and_clients_and_keeps_the_last_good_checkpoint(tmp_path):
    write(tmp_path / "people.csv", table("numbers"))
    path = write(tmp_path / "run.toml", table_config("linear", rounds=400))
    absurd = read_config(path, ["central.learning_rate=3"])
    with pytest.raises(DivergedError, match=r"diverged in round \d+: .*'u\d'.*is kept") as error:
        run(absurd, tmp_path / "out")
    assert error.value.clients and set(error.value.clients) <= {f"u{k}" for k in range(6)}
    checkpoint = tmp_path / "out" / "checkpoint" / "central.safetensors"
    assert 0 < int(read_metadata(checkpoint)["round"]) < error.value.round
    logged = [line["round"] for line in events(tmp_path / "out") if line["event"] == "round"]
    assert logged == [*range(1, int(read_metadata(checkpoint)["round"]) + 1)]
    assert not (tmp_path / "out" / "results.json").exists()
    with pytest.raises(DivergedError) as again:  # and a resume does not hide it
        run(absurd, tmp_path / "out", resume=True)
    assert (again.value.round, again.value.clients) == (error.value.round, error.value.clients)


def test_a_refused_resume_changes_nothing(tmp_path):
    write(tmp_path / "people.csv", table())
    path = write(tmp_path / "run.toml", table_config("logistic"))
    run(path, tmp_path / "out")
    before = contents(tmp_path / "out")
    write(tmp_path / "people.csv", table(seed=1))
    more = write(tmp_path / "run.toml", table_config("logistic", rounds=9))
    with pytest.raises(CheckpointError, match="belongs to other data"):
        run(more, tmp_path / "out", resume=True)
    assert contents(tmp_path / "out") == before


def test_a_report_of_a_run_that_is_not_finished(tmp_path):
    run(config(), tmp_path / "out")
    (tmp_path / "out" / "results.json").unlink()
    with pytest.raises(FileError, match=r"not finished.*--resume"):
        write_report([tmp_path / "out"], tmp_path / "page.html")

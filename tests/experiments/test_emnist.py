"""The EMNIST experiment: who is seen, what chooses what, cells, claims, and the whole of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import sartor
from sartor.errors import CheckpointError, ConfigError, DataError, FileError
from sartor.evaluation import Scores, bootstrap_interval, sign_flip
from sartor.experiments.emnist import Settings, as_text, experiment, reproduce
from sartor.experiments.emnist.cells import Cell, slug
from sartor.experiments.emnist.claims import COMPARED, believe, claims
from sartor.experiments.emnist.methods import lines
from sartor.experiments.emnist.pool import Pool
from sartor.experiments.emnist.results import _settings
from sartor.experiments.emnist.settings import COLUMNS, PAPER, PARTS, ROWS, divide, whole
from sartor.experiments.emnist.work import Branch, Seed
from sartor.files import read_metadata
from sartor.runs.toml import to_toml

TINY = Settings.small(
    data="generated", writers=12, rounds=6, joint=2, cohort=4, cover=(0.0, 0.5, 1.0),
    rows=("fedavg", "hypcluster"), parts=("tables", "local", "order"),
)  # fmt: skip


@pytest.fixture(scope="module")
def writers():
    return sartor.data.handwriting(68, images=8)


# Who is seen.


def test_writers_are_shuffled_and_divided_as_in_the_paper(writers):
    data = divide(writers, "shuffled", seed=3)
    assert (int(data.seen.sum()), int((~data.seen).sum())) == (50, 18)
    again = divide(writers.select(list(writers.ids)[::-1]), "shuffled", seed=3)
    assert dict(zip(data.ids, data.seen, strict=True)) == dict(
        zip(again.ids, again.seen, strict=True)
    )
    assert (divide(writers, "shuffled", seed=4).seen != data.seen).any()
    # 548 writers give 403 and 145, and 3400 the paper's 2500 and 900.
    many = sartor.data.from_arrays(np.zeros((3400, 1)), np.zeros(3400, int), np.arange(3400))
    assert divide(many, "shuffled", seed=0).seen.sum() == 2500
    assert divide(many.select(many.ids[:548]), "shuffled", seed=0).seen.sum() == 403


def test_in_another_order_the_last_ones_are_unseen(writers):
    data = divide(writers, "id", seed=0)
    assert sorted(np.array(data.ids)[~data.seen]) == sorted(writers.ids)[-18:]
    data = divide(writers, "high school last", seed=0)
    late = np.array([d.endswith("high school") for d in data.metadata["domain"]])
    count = min(int(late.sum()), 18)
    assert late[~data.seen].sum() == count
    assert late[data.seen].sum() == late.sum() - count


def test_a_hash_before_a_writers_id_is_no_order(writers):
    draw = np.random.default_rng(0)
    named = {f"{draw.integers(2**60):016x}:f{k:04d}_00": k for k in range(68)}
    ids = tuple(sorted(named))
    data = divide(dataclasses.replace(writers, ids=ids), "id", seed=0)
    last = [named[client] for client, seen in zip(ids, data.seen, strict=True) if not seen]
    assert sorted(last) == list(range(50, 68))


def test_who_chooses_nothing_trains_on_all_training_images(writers):
    data = divide(writers, "shuffled", seed=0)
    everything = whole(data)
    assert (everything.sizes("train") == data.sizes("train") + data.sizes("validation")).all()
    assert not everything.sizes("validation").any()
    for part in ("test",):
        np.testing.assert_array_equal(everything.part(3, part), data.part(3, part))
    assert set(everything.part(3)) == {*data.part(3), *data.part(3, "validation")}


# What is run.


def test_hyper_parameters_are_the_papers():
    found = {line.name: line for line in lines(Settings())}
    assert set(found) >= set(ROWS)
    fedavg, agnostic, clusters = (found[row].central for row in ROWS)
    for central in (fedavg, agnostic, clusters):
        assert (central.rounds, central.cohort, central.epochs, central.batch) == (1000, 20, 1, 20)
        assert (central.server_learning_rate, central.server_momentum) == (1.0, 0.9)
    assert (fedavg.learning_rate, agnostic.learning_rate, clusters.learning_rate) == (
        0.05, 0.05, 0.03,
    )  # fmt: skip
    assert agnostic.domain_step == 0.05
    assert clusters.q == 2
    for row in ROWS:
        personal = found[row].personal
        tuned, dapper, mapper = (personal[column] for column in COLUMNS[1:])
        assert (tuned.epochs, tuned.learning_rate) == (5, 0.01)
        assert (dapper.epochs, dapper.learning_rate, dapper.r) == (1, 0.04, 5)
        assert (mapper.epochs, mapper.learning_rate, mapper.rounds) == (1, 0.03, 1000)
        assert mapper.central_learning_rate == found[row].central.learning_rate
        assert len(dapper.cover) == len(mapper.cover) == 11
        assert dapper.select == mapper.select == "holdout"
    model = Settings().model
    assert model.spec == {"name": "cnn", "classes": 62, "smoothing": 0.1}


def test_all_parts_have_cells_of_their_own():
    names = [name for line in lines(Settings()) for name in line.cells()]
    assert len(set(names)) == len(names)
    assert len({slug(name) for name in names}) == len(names)
    fewer = [name for line in lines(Settings(parts=("tables",))) for name in line.cells()]
    assert len(fewer) == len(ROWS) * len(COLUMNS)
    assert set(fewer) < set(names)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": ("fedsgd",)}, "rows: choose some of"),
        ({"parts": ()}, "parts: choose some of"),
        ({"seeds": 0}, "seeds=0"),
        ({"writers": 2}, "writers=2"),
        ({"rounds": 1}, "rounds=1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        Settings(**wrong)


def test_settings_are_in_one_order():
    assert Settings(rows=("hypcluster", "fedavg")) == Settings(rows=("fedavg", "hypcluster"))
    assert Settings(parts=("order",)).parts == ("tables", "order")
    assert Settings(parts=PARTS[::-1]) == Settings()


@pytest.mark.filterwarnings("ignore:.*has no test images")
def test_data_without_sources_has_no_agnostic_row(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.integers(0, 255, (60, 28, 28), np.uint8)
    data = sartor.data.from_arrays(x, np.arange(60) % 62, np.repeat(np.arange(12), 5))
    data.save(tmp_path / "data")
    settings = dataclasses.replace(TINY, data=str(tmp_path / "data"))
    with pytest.raises(DataError, match="--row fedavg --row hypcluster --part tables"):
        reproduce(settings, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    opened = dataclasses.replace(settings, parts=("tables",)).open()
    assert opened.sizes("test").any()


# Numbers of all seeds together.


def made_up(accuracies, seen, domain="a"):
    """A cell with these accuracies of 20 test images each."""
    count = len(accuracies)
    correct = np.concatenate([np.arange(20) < round(20 * a) for a in accuracies])
    scores = Scores(
        "made up", [f"w{k}" for k in range(count)], np.full(count, 9), np.full(count, 20), seen,
        np.zeros(len(correct)), correct, domain=(domain,) * count,
    )  # fmt: skip
    return Cell(scores, {"seconds": 1.0, "cost": {"down": 1}})


@pytest.fixture
def pool():
    draw = np.random.default_rng(0)
    count, seeds, cells = 40, 3, {}
    ids = SimpleNamespace(ids=tuple(f"w{k}" for k in range(count)))
    settings = Settings(rows=("fedavg", "hypcluster"), seeds=seeds, parts=("tables",))
    for seed in range(seeds):
        seen = draw.permutation(count) < 29
        base = draw.integers(8, 14, count) / 20
        for row, gain in (("fedavg", 0.0), ("hypcluster", 0.15)):
            # Finetune helps, Dapper does as well, and Mapper is as bad as nothing.
            for column, more in (("initial", 0), ("finetune", 0.1), ("dapper", 0.1), ("mapper", 0)):
                name = row if column == "initial" else f"{row} + {column}"
                noise = draw.integers(-1, 2, count) / 20 if column in ("dapper", "mapper") else 0
                cells[seed, name] = made_up(base + gain + more + noise, seen)
    made = Pool(settings, ids, cells)
    made.data = ids
    return made


def test_writers_count_once_whatever_the_number_of_seeds(pool):
    values = pool.values("fedavg", "seen")
    assert values.shape == (3, 40)
    found = pool.estimate(values)
    assert found["mean"] == pytest.approx(np.nanmean(values))
    assert found["by_seed"] == pytest.approx(np.nanmean(values, axis=1))
    means = np.nanmean(values[:, ~np.isnan(values).all(axis=0)], axis=0)
    weights = (~np.isnan(values)).sum(axis=0)
    weights = weights[weights > 0]
    assert (found["low"], found["high"]) == bootstrap_interval(means, weights)
    tested = pool.difference("hypcluster", "fedavg", "unseen")
    assert tested["mean"] == pytest.approx(0.15)
    assert tested["p_value"] < 0.001
    both = pool.values("fedavg", "seen"), pool.values("fedavg", "unseen")
    assert (np.isnan(both[0]) != np.isnan(both[1])).all()


def test_claims_hold_where_they_should(pool):
    found = {(c["claim"], c["group"]): c for c in claims(pool)}
    for group in ("seen", "unseen"):
        assert found["HypCluster is better than FedAvg", group]["holds"]
        assert found["FedAvg + Finetune is better than FedAvg", group]["holds"]
        assert not found["FedAvg + Mapper is better than FedAvg", group]["holds"]
        assert not found["FedAvg + Mapper and FedAvg + Finetune do not differ", group]["holds"]
        assert found["FedAvg + Dapper and FedAvg + Finetune do not differ", group]["holds"]
        averse = found["FedAvg + Mapper hurts fewer writers than FedAvg + Finetune", group]
        assert averse["mean"] > 0
        assert not averse["holds"]
        least = found["HypCluster is better than FedAvg by at least 4.3 points", group]
        assert least["holds"]
        assert least["mean"] == pytest.approx(0.15)


def test_one_seed_decides_nothing_between_central_models(pool):
    settings = dataclasses.replace(pool.settings, seeds=1)
    found = {(c["claim"], c["group"]): c for c in claims(Pool(settings, pool.data, pool.cells))}
    assert found["HypCluster is better than FedAvg", "seen"]["holds"] is None
    assert found["FedAvg + Mapper and FedAvg + Finetune do not differ", "seen"]["holds"] is None
    assert found["FedAvg + Finetune is better than FedAvg", "seen"]["holds"] is True


def test_models_that_are_merely_trained_anew_do_not_differ():
    """All writers move together from seed to seed, as with another draw of the training."""
    draw = np.random.default_rng(1)
    count, seeds, believed = 200, 3, 0
    data = SimpleNamespace(ids=tuple(f"w{k}" for k in range(count)))
    settings = Settings(rows=("fedavg", "hypcluster"), seeds=seeds, parts=("tables",))
    for _ in range(20):
        cells = {}
        for seed in range(seeds):
            base, seen = draw.integers(8, 12, count) / 20, draw.permutation(count) < 147
            for row in ("fedavg", "hypcluster"):
                common = draw.normal(0, 0.02)
                own = base + common + draw.integers(-1, 2, count) / 20
                for column in COLUMNS:
                    name = row if column == "initial" else f"{row} + {column}"
                    cells[seed, name] = made_up(np.clip(own, 0, 1), seen)
        tested = claims(Pool(settings, data, cells))
        believed += sum(
            c["beyond_chance"]
            for c in tested
            if (c["a"], c["b"], c["margin"]) == ("hypcluster", "fedavg", 0.0)
        )
    assert believed <= 6  # of 40; by writers and signs alone it would be a quarter of them


def test_controls_count_by_the_rule_of_claims():
    def difference(a, b, by_seed, p_value, p_seeds):
        return {"a": a, "b": b, "by_seed": by_seed, "p_value": p_value, "p_seeds": p_seeds}

    sure = ([0.1, 0.1, 0.1], 0.0001, 0.2)
    found = [
        difference("fedavg with adam", "fedavg", *sure),
        difference("fedavg + finetune with Dapper's steps", "fedavg + finetune", *sure),
        difference("fedavg + mapper", "fedavg + mapper without joint rounds", *sure),
        difference("fedavg + mapper without joint rounds", "fedavg + finetune", *sure),
        difference("fedavg + dapper", "fedavg + dapper with λ = 1", [0.1, -0.1, 0.1], 0.0001, 0.2),
        difference("fedavg on all images", "fedavg", [0.1], 0.0001, None),
        difference("fedavg + finetune", "fedavg", [0.1, 0.1, 0.1], 0.9, 0.01),
    ]
    believe(found)
    counts = [each["beyond_chance"] for each in found]
    assert counts == [False, True, False, True, False, None, False]


def test_what_was_chosen_is_what_is_told():
    line = next(line for line in lines(Settings()) if line.name == "fedavg with adam")
    told = _settings(line, {"server_optimizer": {"name": "adam"}})
    assert told["central"]["server_optimizer"] == {"name": "adam"}
    line = next(line for line in lines(Settings()) if line.name == "local")
    assert _settings(line, {"epochs": 800})["personal"]["local"]["epochs"] == 800


def test_controls_are_compared_with_what_there_is():
    names = {name for line in lines(Settings()) for name in line.cells()}
    assert {name for pair in COMPARED for name in pair} <= names


def test_a_difference_that_changes_its_sign_from_seed_to_seed_is_not_believed(pool):
    worse = pool.cells[2, "fedavg"]
    pool.cells[2, "fedavg"] = pool.cells[2, "fedavg + finetune"]
    pool.cells[2, "fedavg + finetune"] = worse
    claim = next(c for c in claims(pool) if c["claim"] == "FedAvg + Finetune is better than FedAvg")
    values = pool.values("fedavg + finetune", "seen") - pool.values("fedavg", "seen")
    counts = (~np.isnan(values)).sum(axis=0)
    assert claim["p_value"] == sign_flip(np.nansum(values, axis=0)[counts > 0])
    assert np.sign(claim["by_seed"]).tolist() == [1, 1, -1]
    assert not claim["beyond_chance"]
    assert not claim["holds"]


# The whole of it.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("emnist") / "run"
    return out, reproduce(TINY, out, progress=False)


def test_tables_have_every_cell_beside_the_papers(run):
    out, results = run
    assert results["experiment"] == "emnist"
    for table in ("table2", "table3"):
        assert list(results[table]) == ["fedavg", "hypcluster"]
        for row, cells in results[table].items():
            assert list(cells) == list(COLUMNS)
            for cell in cells.values():
                assert cell["low"] <= cell["mean"] <= cell["high"]
            assert list(results["paper"][table][row].values()) == list(PAPER[table][row])
    assert json.loads((out / "results.json").read_text()) == results
    assert results["data"] | {"fingerprint": ""} == {
        "generated": True, "fingerprint": "", "writers": 12, "seen": 9, "unseen": 3,
        "images": results["data"]["images"], "domains": results["data"]["domains"],
    }  # fmt: skip
    text = "\n".join(as_text(results))
    assert "(generated)" in text
    assert "quick version" in text
    assert (out / "report.html").exists()


def test_the_table_of_clients_agrees_with_the_results(run):
    out, results = run
    rows = pq.read_table(out / "per_client.parquet").to_pylist()
    for table, seen in (("table2", True), ("table3", False)):
        for row, column in (("fedavg", "initial"), ("hypcluster", "dapper")):
            name = row if column == "initial" else f"{row} + {column}"
            mine = [r["accuracy"] for r in rows if r["method"] == name and r["seen"] == seen]
            assert results[table][row][column]["mean"] == pytest.approx(np.mean(mine))


def test_clusters_are_the_same_in_all_columns(run):
    rows = pq.read_table(run[0] / "per_client.parquet").to_pylist()
    for column in COLUMNS[1:]:
        for name in ("hypcluster", f"hypcluster + {column}"):
            found = {r["client"]: r["cluster"] for r in rows if r["method"] == name}
            first = {r["client"]: r["cluster"] for r in rows if r["method"] == "hypcluster"}
            assert found == first


def lasting(results):
    """What does not depend on the clock."""
    kept = {k: v for k, v in results.items() if k not in ("wall_seconds", "memory", "date")}
    methods = {name: {**method, "seconds": None} for name, method in kept["methods"].items()}
    return {**kept, "methods": methods}


def test_it_goes_on_where_it_was_stopped_with_the_same_numbers(run, tmp_path):
    out, results = run
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    for name in ("fedavg-dapper", "hypcluster", "hypcluster-mapper"):
        (copy / "checkpoint" / "seed-0" / f"{name}.safetensors").unlink()
    assert lasting(reproduce(TINY, copy, resume=True, progress=False)) == lasting(results)
    assert not list((copy / "checkpoint" / "seed-0").glob("central-*"))


def test_cells_that_are_made_side_by_side_are_the_same(run, tmp_path, monkeypatch):
    """As on a GPU, where three threads make them."""
    monkeypatch.setattr(experiment, "_workers", lambda: 3)
    assert lasting(reproduce(TINY, tmp_path / "out", progress=False)) == lasting(run[1])


def test_an_error_in_one_cell_ends_all_and_keeps_what_is_done(tmp_path, monkeypatch):
    made = []

    def fail(self, name, central):
        made.append(name)
        if name == "fedavg + dapper":
            raise DataError("no more ink")
        return make(self, name, central)

    make = Branch._make
    monkeypatch.setattr(Branch, "_make", fail)
    monkeypatch.setattr(experiment, "_workers", lambda: 2)
    with pytest.raises(DataError, match="no more ink"):
        reproduce(TINY, tmp_path / "out", progress=False)
    kept = {file.stem for file in (tmp_path / "out" / "checkpoint" / "seed-0").iterdir()}
    assert "fedavg-dapper" not in kept
    assert "fedavg" in kept
    assert not (tmp_path / "out" / "results.json").exists()
    monkeypatch.setattr(Branch, "_make", make)
    found = reproduce(TINY, tmp_path / "out", resume=True, progress=False)
    assert found["table2"]["fedavg"]["dapper"]["mean"] > 0


def test_more_can_be_added_and_nothing_else_changed(run, tmp_path):
    out, results = run
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    with pytest.raises(CheckpointError, match="has rounds = 6, not 7"):
        reproduce(dataclasses.replace(TINY, rounds=7), copy, resume=True)
    with pytest.raises(FileError, match="is not empty"):
        reproduce(TINY, copy)
    fewer = dataclasses.replace(TINY, rows=("fedavg",), parts=("tables",))
    with pytest.raises(
        CheckpointError, match=r"has rows = .* not \['fedavg'\]; give at least these"
    ):
        reproduce(fewer, copy, resume=True, progress=False)
    (copy / "config.toml").write_text(to_toml({"emnist": fewer.to_table()}), encoding="utf-8")
    found = reproduce(TINY, copy, resume=True, progress=False)
    assert list(found["table2"]) == list(results["table2"])
    cell = copy / "checkpoint" / "seed-0" / "fedavg.safetensors"
    cell.write_bytes(cell.read_bytes()[:-50])
    with pytest.raises(FileError, match="remove it, and it is made again"):
        reproduce(TINY, copy, resume=True, progress=False)


def test_test_images_choose_nothing(run, tmp_path, monkeypatch):
    """With other test images, λ, clusters and settings stay as they are."""
    real = sartor.data.handwriting(TINY.writers)
    held = np.concatenate([real.part(k, "test") for k in range(len(real))])
    x, y = real.columns["x"].copy(), real.columns["y"].copy()
    x[held], y[held] = 255 - x[held], (y[held] + 7) % 62
    other = dataclasses.replace(real, columns={"x": x, "y": y})
    monkeypatch.setattr(Settings, "open", lambda *_: other)
    out = tmp_path / "out"
    reproduce(TINY, out, progress=False)
    tables = [pq.read_table(folder / "per_client.parquet").to_pylist() for folder in (run[0], out)]
    chosen = [[(r["method"], r["client"], r["lambda"], r["cluster"]) for r in t] for t in tables]
    assert chosen[0] == chosen[1]
    assert [r["loss"] for r in tables[0]] != [r["loss"] for r in tables[1]]
    choices = [
        json.loads((folder / "checkpoint" / "chosen-local.json").read_text())["losses"]
        for folder in (run[0], out)
    ]
    assert choices[0] == choices[1]


# Choices by validation.


def test_a_candidate_that_diverges_is_not_chosen_and_choices_are_kept(run, tmp_path):
    grid = (
        {"learning_rate": 1e30, "epochs": 1}, {"learning_rate": 0.05, "epochs": 1},
    )  # fmt: skip
    line = next(line for line in lines(TINY) if line.name == "local")._replace(grid=grid)
    seed = Seed(TINY, TINY.open(), 0, tmp_path)
    said = []
    branch = Branch(seed, line, threading.Event(), said.append)
    assert branch._tune()["chosen"] == grid[1]
    assert said == ["local, choice 1 of 2", "local, choice 2 of 2"]
    again = Branch(seed, line, threading.Event(), said.append)
    assert again._tune() == branch._tune()
    assert len(said) == 2
    other = Branch(seed, line._replace(grid=grid[::-1]), threading.Event(), said.append)
    with pytest.raises(CheckpointError, match=r"chosen-local.json was made from other data"):
        other._tune()
    for damage in ("[]", "{}", '{"losses": 3}'):
        (tmp_path / "chosen-local.json").write_text(damage)
        with pytest.raises(FileError, match=r"chosen-local.json"):
            Branch(seed, line, threading.Event(), said.append)._tune()


def test_writers_without_test_images_are_named_before_any_training(tmp_path):
    data = TINY.open()
    bounds = data.bounds.copy()
    seen = divide(data, "shuffled", 0).seen
    bounds[~seen, 3] = bounds[~seen, 2]
    keep = np.concatenate([np.arange(b[0], b[3]) for b in bounds])
    sizes = np.diff(bounds, axis=1)
    ends = np.cumsum(sizes).reshape(sizes.shape)
    moved = np.concatenate([ends[:, -1:] - sizes.sum(axis=1, keepdims=True), ends], axis=1)
    lacking = dataclasses.replace(data, rows=data.rows[keep], bounds=moved)
    seed = Seed(TINY, lacking, 0, tmp_path)
    with pytest.raises(DataError, match="no unseen writer has test images"):
        Branch(seed, lines(TINY)[0], threading.Event(), print)


@pytest.mark.parametrize("damage", ["about", "facts", "recipe", "size"])
def test_damaged_cells_are_named(run, tmp_path, damage):
    path = tmp_path / "cell.safetensors"
    shutil.copy(run[0] / "checkpoint" / "seed-0" / "fedavg.safetensors", path)
    recipe = read_metadata(path)["recipe"]
    assert Cell.load(path, recipe).scores.accuracy is not None
    content = path.read_bytes()
    assert damage.encode() in content
    path.write_bytes(content.replace(damage.encode(), damage[::-1].encode()))
    with pytest.raises(FileError, match=r"cell.safetensors is damaged"):
        Cell.load(path, recipe)


def test_data_that_is_not_what_the_experiment_needs(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("who,what\nann,1\n")
    with pytest.raises(DataError, match=r"is a table; .*sartor data convert .*--client COLUMN"):
        Settings(data=str(table)).open()
    few = sartor.data.handwriting(6)
    clients = {c: few.client(c) for c in few.ids}
    bright = {c: {**of, "x": of["x"].astype(np.float32)} for c, of in clients.items()}
    sartor.data.convert(sartor.data.from_dict(bright), tmp_path / "bright", "sartor")
    with pytest.raises(DataError, match=r"pixels go up to \d+, and EMNIST's from 0 to 1"):
        Settings(data=str(tmp_path / "bright")).open()
    sartor.data.convert(sartor.data.from_dict(clients), tmp_path / "whole", "sartor")
    told = Settings.small(data=str(tmp_path / "whole"), rows=("fedavg",), parts=("tables",))
    with pytest.warns(UserWarning, match="a tenth of every writer's images is set aside"):
        data = told.open()
    assert len(data) == 6 and data.sizes("test").all()
    with (
        pytest.warns(UserWarning, match="a tenth"),
        pytest.raises(ConfigError, match=r"writers=100: .* has 6"),
    ):
        dataclasses.replace(told, writers=100).open()

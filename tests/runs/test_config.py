"""The configuration: what is wrong is refused by name, and what is written is read back."""

from __future__ import annotations

import dataclasses
import math
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_cases import SMALL, config, table, table_config, write

import sartor
from sartor.errors import ConfigError, FileError
from sartor.runs import Config, parse_config, read_config
from sartor.runs.toml import to_toml


@pytest.mark.parametrize(
    "setting, message",
    [
        ("sede=1", "sede does not exist; did you mean 'seed'?"),
        ("rounds=5", "rounds does not exist; did you mean 'central.rounds'?"),
        ("test=0.5", "test does not exist; did you mean 'split.test'?"),
        ("lanes=5", "lanes does not exist; did you mean 'engine.lanes'?"),
        (
            "epochs=2",
            "did you mean 'central.epochs' or 'personal.0.epochs' or 'personal.1.epochs'?",
        ),
        ("guard=false", "did you mean 'personal.0.guard' or 'personal.1.guard'?"),
        ("data.client=5", "data.client does not exist; did you mean 'clients'?"),
        ("split.tset=0.1", "split.tset does not exist; did you mean 'test'?"),
        ("model.simbols=5", "model.simbols does not exist; did you mean 'symbols'?"),
        ("central.round=5", "central.round does not exist; did you mean 'rounds'?"),
        ("personal.0.epoch=5", "personal.0.epoch does not exist; did you mean 'epochs'?"),
        ("personal.1.layers=[]", "personal.1.layers does not exist; there is batch, epochs,"),
        ("engine.lane=5", "engine.lane does not exist; did you mean 'lanes'?"),
    ],
)
def test_unknown_keys_name_the_nearest(setting, message):
    with pytest.raises(ConfigError) as error:
        config(setting)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "setting, message",
    [
        ("central.rounds=0", "rounds must be a whole number of at least 1 (got 0)"),
        ("central.rounds=1.5", "central.rounds must be a whole number of at least 1 (got 1.5)"),
        ("central.rounds=true", "central.rounds must be a whole number of at least 1 (got True)"),
        ("central.rounds=", "central.rounds must be a whole number of at least 1 (got '')"),
        ("central.learning_rate=-1", "learning_rate must be a positive number or"),
        ("central.learning_rate=nan", "learning_rate must be a positive number or"),
        (
            "central.learning_rate=fast",
            "central.learning_rate must be a positive number or sartor.engine.Automatic",
        ),
        ("central.weights=sizes", "central.weights must be one of 'size', 'uniform'"),
        ("central.name=FedAgv", "central.name is 'FedAgv'; did you mean 'FedAvg'?"),
        ("central.name=[]", "central.name is []; choose one of Agnostic"),
        ("personal.1.name=Lokal", "personal.1.name is 'Lokal'; did you mean 'Local'?"),
        ("personal.0.epochs=0", "personal.0.epochs must be a whole number of at least"),
        ("personal.0.layers=3", "personal.0.layers must be a list, each entry a text"),
        ("personal.0=3", "personal.0.epochs"),
        ("personal=3", "personal must be an array of tables, written [[personal]] (got 3)"),
        ("personal=[3]", "personal.0 must be a table (got 3)"),
        ("model.name=categorial", "model.name is 'categorial'; did you mean 'categorical'?"),
        ("model.symbols=many", "model.symbols must be a whole number of at least 1 (got 'many')"),
        ("data.generator=sintetic", "data.generator is 'sintetic'; did you mean 'synthetic'?"),
        ("data.path=x.csv", "[data] needs either path (a file or directory) or generator"),
        (
            "data.samples=[3.5]",
            "data.samples must be a whole number of at least 1 or a list, each",
        ),
        ("data=3", "data must be a table (got 3)"),
        ("split=0.2", "split must be a table (got 0.2)"),
        ("split.test=some", "split.test must be a number in [0, 1) (got 'some')"),
        ("engine.lanes=0", "engine.lanes must be a whole number of at least 1 (got 0)"),
        ("engine.lanes=x", "engine.lanes must be a whole number of at least 1 (got 'x')"),
        ("engine.resident=1", "engine.resident must be true or false (got 1)"),
        ("engine.precision=f16", "engine.precision must be one of 'f32', 'bf16' (got 'f16')"),
        ("seed=x", "seed must be a whole number (got 'x')"),
        ("seed=1.0", "seed must be a whole number (got 1.0)"),
        ("central.server_optimizer=adam", 'a table such as {name = "adam"'),
        (
            "central.server_optimizer={name='adm'}",
            "central: FedAvg: server_optimizer: there is no optimizer 'adm'; did you",
        ),
        ("central.client_optimizer={name='sgd', rate=1}", "optimizer 'sgd' takes no 'rate'"),
        (
            "personal.1.optimizer={name='adam'}",
            "Local: optimizer: optimizer 'adam' needs learning_rate",
        ),
    ],
)
def test_bad_values_are_refused_by_key(setting, message):
    with pytest.raises(ConfigError) as error:
        config(setting)
    assert message in str(error.value)


@pytest.mark.parametrize("needed", ["data", "model", "central"])
def test_needed_tables(needed):
    whole = tomllib.loads(SMALL)
    del whole[needed]
    with pytest.raises(ConfigError, match=rf"needs a table \[{needed}\]; add it"):
        parse_config(whole)
    hint = rf"needs a table \[{needed}\]; did you mean \[{needed}\], not \[{needed[:-1]}\]\?"
    with pytest.raises(ConfigError, match=hint):
        parse_config({needed[:-1]: {}, **whole})


def test_every_other_part_may_be_left_out():
    whole = {k: v for k, v in tomllib.loads(SMALL).items() if k in ("data", "model", "central")}
    made = parse_config(whole)
    assert (made.seed, made.personal, made.split) == (0, (), {})


def test_seeds_reach_data_and_split_and_may_be_negative():
    made = config("seed=-7")
    assert (made.seed, made.data["seed"], made.split["seed"]) == (-7, -7, -7)
    assert config("seed=-7", "data.seed=1", "split.seed=2").data["seed"] == 1
    assert len(made.open_data()) == 8


def test_overrides_reach_tables_lists_and_make_new_ones():
    made = config(
        "central.rounds = 50",
        "personal.0.epochs=3",
        "personal.local.epochs=4",
        "data.layout=shifted",
        "data.samples=[1, 2, 3, 4, 5, 6, 7, 8]",
        "central.server_optimizer.name=adam",
        "central.server_optimizer.learning_rate=0.01",
    )
    assert made.central.rounds == 50
    assert [p.epochs for p in made.personal] == [3, 4]
    assert made.data["layout"] == "shifted" and made.data["samples"] == list(range(1, 9))
    assert made.central.server_optimizer == sartor.Optimizer("adam", (("learning_rate", 0.01),))
    assert config("personal=[{name = 'Local'}]").personal == (sartor.Local(),)
    assert config("personal=[]").personal == ()


@pytest.mark.parametrize(
    "setting, message",
    [
        ("central.rounds", "--set takes key=value, such as central.rounds=50"),
        ("=3", "--set takes key=value"),
        ("central..rounds=3", "--set takes key=value"),
        ("seed.x=3", "--set seed.x: seed is a value, not a table"),
        ("personal.epochs=3", "--set personal.epochs: name an entry and its key"),
        ("personal.2.epochs=3", "there is no entry '2' in ['Finetune', 'Local']"),
        ("personal.².epochs=3", "there is no entry '²'"),
        ("personal.Tuning.epochs=3", "there is no entry 'Tuning'"),
        ("personal.finetun.epochs=3", "['Finetune', 'Local']; did you mean 'Finetune'? Or give"),
    ],
)
def test_overrides_that_cannot_be_meant(setting, message):
    with pytest.raises(ConfigError) as error:
        config(setting)
    assert message in str(error.value)


def test_overrides_of_entries_that_are_not_one():
    with pytest.raises(ConfigError, match=r"there are 2 entries 'Local' .* give its number"):
        config("personal.0.name=Local", "personal.Local.epochs=3")
    with pytest.raises(ConfigError, match=r"there is no entry '0' in \[\]"):
        config("personal=[]", "personal.0.epochs=3")


# Everything that tomllib can give and that is plain: what to_toml writes, it reads back.
texts = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", "\n", "a\r\nb", "\x7f\x00", "日本 𝔘", "#"]
)
plain = st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    plain, lambda v: st.lists(v, max_size=3) | st.dictionaries(texts, v, max_size=3), max_leaves=8
)


@given(st.dictionaries(texts, values, max_size=5))
def test_toml_is_read_back(written):
    def same(a, b):
        if isinstance(a, float):
            return isinstance(b, float) and (a == b or (math.isnan(a) and math.isnan(b)))
        if isinstance(a, dict):
            return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(same, a, b))
        return type(a) is type(b) and a == b

    read = tomllib.loads(to_toml(written))
    assert set(read) == set(written)
    assert all(same(written[key], read[key]) for key in written)


def test_toml_refuses_what_it_cannot_hold():
    with pytest.raises(ConfigError, match="None"):
        to_toml({"a": None})
    with pytest.raises(ConfigError, match="int64"):
        to_toml({"a": {"b": np.int64(3)}})


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("personal=[]",),
        ("personal.0.layers=['logits']", "seed=-1", "engine.resident=false", "data.samples=[3, 4]"),
        ("central.server_optimizer={name='adam', learning_rate=0.01, b1=0.5}",),
        ("central.client_optimizer={momentum=0.5, name='sgd', learning_rate=1e-05}",),
        ("personal.1.optimizer={name='lion', learning_rate=1e16}", "split={}"),
    ],
)
def test_a_written_configuration_is_read_back_equal(tmp_path, settings):
    made = config(*settings)
    path = write(tmp_path / "config.toml", to_toml(made.to_table()))
    assert read_config(path) == made
    assert to_toml(read_config(path).to_table()) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["qu\"ote's", "back\\slash", "new\nline", "ünï 日本 🧵", "[a] #b"])
def test_any_path_is_read_back_equal(tmp_path, name):
    folder = tmp_path / name
    text = table_config("logistic").replace('"people.csv"', "'people.csv'")
    made = read_config(write(folder / "run.toml", text))
    assert made.data["path"] == str((folder / "people.csv").resolve())
    path = write(tmp_path / "elsewhere" / "config.toml", to_toml(made.to_table()))
    assert read_config(path) == made


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    text = table_config("logistic", path="../data/people.csv")
    made = read_config(write(tmp_path / "configs" / "a.toml", text))
    assert made.data["path"] == str((tmp_path / "data" / "people.csv").resolve())
    # A table has no file to be relative to: then it is where we are.
    made = parse_config(tomllib.loads(text))
    assert made.data["path"] == str((tmp_path / "data" / "people.csv").resolve())
    home = parse_config(tomllib.loads(table_config("logistic", path="~/people.csv")))
    assert "~" not in home.data["path"]


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(FileError, match="there is no configuration file"):
        read_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match=r"bad.toml is not valid TOML: .*line 1"):
        read_config(write(tmp_path / "bad.toml", "seed = = 3"))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match=r"latin.toml is not valid TOML"):
        read_config(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory; name a configuration"):
        read_config(tmp_path)


def with_data(model, data):
    return Config({"generator": "synthetic"}, model, sartor.FedAvg()).make_model(data)


def test_sizes_come_from_the_data():
    draw = np.random.default_rng(0)
    x, client = draw.standard_normal((12, 5)), np.repeat([0, 1], 6)
    numbers, words = np.arange(12) % 4, np.array(["cat", "dog", "cow"] * 4)
    make = sartor.data.from_arrays
    classes = make(x, numbers, client)
    assert with_data({"name": "logistic"}, classes) is sartor.models.logistic(5, 4)
    assert with_data({"name": "logistic"}, make(x, words, client)) is sartor.models.logistic(5, 3)
    assert with_data({"name": "logistic", "classes": 9}, classes) is sartor.models.logistic(5, 9)
    assert with_data({"name": "mlp", "hidden": [7]}, classes) is sartor.models.mlp(
        5, (7,), classes=4
    )
    assert with_data({"name": "mlp", "outputs": 2}, classes) is sartor.models.mlp(5, outputs=2)
    regression = make(x, x[:, 0], client)
    assert with_data({"name": "linear"}, regression) is sartor.models.linear(5)
    assert with_data({"name": "linear"}, make(x, x[:, :3], client)) is sartor.models.linear(5, 3)
    assert with_data({"name": "mlp"}, regression) is sartor.models.mlp(5, outputs=1)
    images = make(draw.standard_normal((12, 2, 3)), numbers, client)
    assert with_data({"name": "logistic"}, images) is sartor.models.logistic((2, 3), 4)
    symbols = sartor.data.from_dict({"a": {"y": [0, 5]}, "b": {"y": [2]}})
    assert with_data({"name": "categorical"}, symbols) is sartor.models.categorical(6)


def test_sizes_that_the_data_does_not_tell():
    symbols = sartor.data.from_dict({"a": {"y": [0, 5]}})
    with pytest.raises(ConfigError, match=r"model 'logistic' needs features.*model.features"):
        with_data({"name": "logistic"}, symbols)
    numbers = sartor.data.from_arrays(np.ones((2, 1)), np.array([0.5, 1.5]), np.array([0, 1]))
    with pytest.raises(ConfigError, match=r"model 'logistic' needs classes.*y float32"):
        with_data({"name": "logistic"}, numbers)


def test_a_table_is_opened_split_and_modelled(tmp_path):
    write(tmp_path / "people.csv", table())
    made = read_config(write(tmp_path / "run.toml", table_config("logistic")))
    data = made.open_data()
    assert data.sizes("test").tolist() == [3] * 6 and data.label_names == ("no", "yes")
    assert made.make_model(data) is sartor.models.logistic(2, 2)


def test_an_algorithm_of_ones_own_is_known_by_its_name():
    @dataclasses.dataclass(frozen=True)
    class Patient(sartor.FedAvg):
        patience: int = 3

    try:
        made = parse_config(
            {
                "data": {"generator": "synthetic"},
                "model": {"name": "categorical"},
                "central": {"name": "Patient", "patience": 5, "rounds": 7},
            }
        )
        assert made.central == Patient(rounds=7, patience=5)
        assert parse_config(tomllib.loads(to_toml(made.to_table()))).central == made.central
    finally:
        del sartor.Central.known["Patient"]  # other tests list all algorithms


@dataclasses.dataclass(frozen=True)
class Layered(sartor.FedAvg, listed=False):
    layers: tuple[tuple[str, float], ...] = ()


def test_tuples_of_several_types_are_read_and_written(monkeypatch):
    monkeypatch.setitem(sartor.Central.known, "Layered", Layered)

    def read(layers):
        central = {"name": "Layered", "layers": layers}
        tables = {"data": {"generator": "synthetic"}, "model": {"name": "categorical"}}
        return parse_config({**tables, "central": central})

    made = read([["dense_1", 0.5], ["dense_2", 2]])
    assert made.central == Layered(layers=(("dense_1", 0.5), ("dense_2", 2)))
    assert parse_config(tomllib.loads(to_toml(made.to_table()))).central == made.central
    words = r"layers must be a list, each entry a list of a text and a number \(got"
    for layers in ([["dense_1"]], [["dense_1", "much"]], ["dense_1"], [["dense_1", 1, 2]]):
        with pytest.raises(ConfigError, match=words):
            read(layers)


@pytest.mark.parametrize("start", ["warm", {"name": "Warm", "rounds": 4}])
def test_starts_of_clusterings_are_words_or_tables(start):
    central = {"name": "HypCluster", "start": start, "rounds": 50}
    if start == "warm":
        central["warm_rounds"] = 4
    made = parse_config(
        {"data": {"generator": "synthetic"}, "model": {"name": "categorical"}, "central": central}
    )
    assert made.central.start == sartor.central.Warm(4)
    assert parse_config(tomllib.loads(to_toml(made.to_table()))).central == made.central

"""What authors of algorithms get wrong is refused early, in words that say what to do."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from algorithm_cases import tiny_data

import sartor
from sartor.central.settings import describe
from sartor.engine import Objective, Own, Recipe
from sartor.errors import ConfigError

MODEL = sartor.models.linear(2, scale=False)


@pytest.fixture(autouse=True)
def own_names(monkeypatch):
    """Classes of these tests are forgotten afterwards."""
    for base in (sartor.Central, sartor.Personal, Objective):
        monkeypatch.setattr(base, "known", dict(base.known))


@pytest.fixture(scope="module")
def data():
    return tiny_data()


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=2).fit(MODEL, data)


@pytest.mark.parametrize(
    "base, name, words",
    [
        (sartor.Central, "FedAvg", "taken by Sartor's own FedAvg; .* listed=False"),
        (sartor.Personal, "Finetune", "taken by Sartor's own Finetune; .* listed=False"),
        (Own, "own", "class own is taken by Sartor's own Own; choose another name$"),
        (Own, "Mixture", "class Mixture is taken by Sartor's own Mixture; choose another name$"),
    ],
)
def test_a_name_of_sartor_cannot_be_taken(base, name, words):
    before = dict(base.known)
    with pytest.raises(ConfigError, match=words):
        type(name, (base,), {"__module__": "mine"})
    assert base.known == before


def test_own_classes_may_be_defined_again_and_unlisted_ones_have_any_name():
    for base, key in ((sartor.Central, "Mine"), (sartor.Personal, "Mine"), (Own, "mine")):
        for _ in range(2):
            kind = type("Mine", (base,), {"__module__": "mine"})
            assert base.known[key] is kind
    type("FedAvg", (sartor.Central,), {"__module__": "mine"}, listed=False)
    assert sartor.Central.known["FedAvg"] is sartor.FedAvg


@dataclasses.dataclass(frozen=True)
class Row(sartor.FedAvg, listed=False):
    extra: object = 0


@dataclasses.dataclass(frozen=True)
class Column(sartor.Finetune, listed=False):
    extra: object = 0


@dataclasses.dataclass
class Loose:
    mu: float = 0.1


@pytest.mark.parametrize("kind", [Row, Column])
@pytest.mark.parametrize(
    "extra",
    [{"a": 1}, np.ones(2), jnp.ones(2), len, (1, {"a": 1}), {1, 2}, Loose(), Loose],
    ids=["dict", "array", "jax", "function", "inside", "set", "dataclass", "class"],
)
def test_settings_that_cannot_work_are_refused_before_work(kind, extra, data, central):
    inside = extra[1] if isinstance(extra, tuple) else extra
    words = rf"{kind.__name__}: extra cannot hold a {type(inside).__name__} .*use numbers"
    if kind is Row:
        with pytest.raises(ConfigError, match=words):
            kind(extra=extra).check(MODEL, data)
    with pytest.raises(ConfigError, match=words):
        kind(extra=extra).fit(MODEL if kind is Row else central, data)


@pytest.mark.parametrize(
    "extra, plain",
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        ([["w", 0.5]], [["w", 0.5]]),
        (sartor.Optimizer("sgd", (("learning_rate", np.float32(0.5)),)), None),
        (optax.sgd(0.1), None),
        (MODEL, None),
    ],
    ids=["float32", "int64", "lists", "optimizer", "optax", "model"],
)
def test_settings_that_work(extra, plain, data):
    row = Row(extra=extra)
    row.check(MODEL, data)
    hash(row)
    if plain is not None:
        found = describe(row)["extra"]
        assert found == plain and type(found) is type(plain)


def test_a_setting_of_numpy_trains_and_is_kept(data, central, tmp_path):
    Column(extra=np.float32(0.5), epochs=1).fit(central, data).save(tmp_path / "models")
    assert sartor.load(tmp_path / "models").algorithm["extra"] == 0.5


def test_objectives_with_tuples_in_tuples_come_back(data, central, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Pulled(Own):
        pull: tuple[tuple[str, float], ...] = ()

    @dataclasses.dataclass(frozen=True)
    class Pull(sartor.Personal, listed=False):
        pull: tuple[tuple[str, float], ...] = ()

        def recipe(self, model, data):
            return Recipe(Pulled(model, pull=self.pull), self.optimizer, 1, self.batch)

    models = Pull(pull=(("w", 0.5),)).fit(central, data)
    models.save(tmp_path / "models")
    assert sartor.load(tmp_path / "models").objective == models.objective


@dataclasses.dataclass(frozen=True)
class Stubborn(Own):
    abstain = Objective.abstain


@dataclasses.dataclass(frozen=True)
class Gives(sartor.Personal, listed=False):
    """A personal algorithm whose recipe is whatever it is given."""

    what: str = ""

    def recipe(self, model, data):
        objective = Stubborn(model)
        if self.what == "objective":
            return objective
        first = {"class": Stubborn, "dict": Own(model, trained={"w": 1})}.get(self.what, objective)
        return Recipe(first, self.optimizer, self.epochs, self.batch)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"what": "objective"}, r"Gives.recipe must return Recipe\(objective, .*got Stubborn\("),
        ({"what": "class"}, r"Gives.recipe must return Recipe\(.*with an Objective"),
        ({"what": "dict"}, "Own: trained cannot hold a dict"),
        ({"guard": True}, "Gives: guard .*Stubborn cannot do: define its `abstain`"),
    ],
)
def test_recipes_that_cannot_work_are_refused_before_work(settings, words, data, central):
    with pytest.raises(ConfigError, match=words):
        sartor.personal.fitting.check_fit(Gives(**settings), MODEL, data)
    with pytest.raises(ConfigError, match=words):
        Gives(**settings).fit(central, data)


def test_an_optimizer_takes_its_options_as_keywords():
    named = sartor.Optimizer("sgd", learning_rate=0.1)
    pairs = sartor.Optimizer("sgd", (("learning_rate", 0.1),))
    assert named == pairs == sartor.Optimizer.of({"name": "sgd", "learning_rate": 0.1})
    assert named == sartor.Optimizer("sgd", {"learning_rate": 0.1})
    assert hash(named) == hash(pairs) and repr(named) == repr(pairs)
    assert dataclasses.replace(named, name="adam").options == named.options
    with pytest.raises(ConfigError, match="takes no 'learning_rat'; did you mean"):
        sartor.Optimizer("sgd", learning_rat=0.1)
    with pytest.raises(ConfigError, match="learning_rate must be a positive number"):
        sartor.Optimizer("sgd", learning_rate="fast")

"""Values are checked by annotations, with the same words in Python and in configurations."""

import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sartor
from sartor.checking import (
    AnyPath,
    Count,
    Numbers,
    Part,
    Positive,
    Probability,
    Range,
    Share,
    Whole,
    check_fields,
    checked,
    checks_arguments,
    hints_of,
    misfit,
)
from sartor.engine import traced
from sartor.errors import ConfigError
from sartor.runs.config import parse_config


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Count, [1, np.int64(3), np.uint8(2)], [0, True, 1.0, "1", None, 2**31, np.array(3)]),
        (Whole, [0, 5], [-1, False, 2**70]),
        (
            Positive,
            [1, 0.5, np.float32(0.5), Fraction(1, 2)],
            [0, -1, np.nan, np.inf, 1e308, 1e-60],
        ),
        (Share, [0, 1, 0.5], [-0.1, 1.1, "half", [0.5]]),
        (Part, [0, 0.999], [1, 1.0]),
        (Probability, [0.05], [0, 1]),
        (Annotated[int, Range(2, 10)], [2, 10], [1, 11]),
        (Literal["a", "b"], ["a", np.str_("b")], ["c", 1, None, np.array(["a"])]),
        (tuple[Count, ...], [(1, 2), [3], np.array([1, 2]), range(1, 3)], [(0,), "12", 3]),
        (Count | None, [None, 1], [0, "x"]),
        (AnyPath, ["a", Path("a")], ["", "a\0b", b"a", None, 3, "a" * 300, "a/" * 3000, "\ud800"]),
        (Numbers, [1, [1, 2.5], np.ones((2, 2))], ["a", [[1], [1, 2]], None, [1j], object()]),
        (Any, [object(), None], []),
    ],
)
def test_values_fit_or_are_told_what_to_be(hint, good, bad):
    for value in good:
        assert not misfit(value, hint), value
    for value in bad:
        with pytest.raises(ConfigError, match=r"it must be .* \(got "):
            checked("it", value, hint)


@given(st.integers(-(2**80), 2**80))
def test_counts_are_those_that_fit_32_bits(value):
    assert (misfit(value, Count) == "") == (1 <= value < 2**31)


def test_numbers_of_numpy_become_pythons():
    found = sartor.FedAvg(rounds=np.int64(3), learning_rate=np.float32(0.5), server_momentum=0)
    assert [type(v) for v in (found.rounds, found.learning_rate, found.server_momentum)] == [
        int, float, float,
    ]  # fmt: skip
    assert found == sartor.FedAvg(rounds=3, learning_rate=0.5, server_momentum=0.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: sartor.FedAvg(server_momentum="3"),
            r"server_momentum must be a number in \[0, 1\)",
        ),
        (lambda: sartor.FedAvg(rounds=2**70), "rounds must be a whole number that fits 32 bits"),
        (lambda: sartor.Engine(lanes=[]), "lanes must be a whole number of at least 1"),
        (lambda: sartor.Dapper(theory=0), r"theory must be a Theory\(mu, G, R\)"),
        (lambda: sartor.Dapper(theory={"mus": 1}), "mus does not exist"),
        (lambda: sartor.Dapper(theory={"mu": 1.0}), "theory: G is missing"),
        (lambda: sartor.Finetune(layers=1), "layers must be a list, each entry a text"),
        (lambda: sartor.Finetune(learning_rate=-0.1), "learning_rate must be a positive number"),
        (lambda: sartor.Optimizer("adam"), "optimizer 'adam' needs learning_rate; give it"),
        (lambda: sartor.HypCluster(restarts=10**12), "restarts must be a whole number from 1 to"),
        (lambda: sartor.KMeansClusters(features="age"), "features must be a list"),
        (lambda: sartor.Optimizer("adam", learning_rate=-1.0), "learning_rate must be a positive"),
        (
            lambda: sartor.models.mlp(10, (10**6, 10**6), classes=2),
            r"4,0\d\d,\d\d\d,\d\d\d,\d\d\d b",
        ),
        (lambda: sartor.data.synthetic(10**9), "take 800,000,000,000 bytes"),
        (lambda: sartor.data.handwriting(2, images=2**31 - 1), "bytes, and this machine has"),
    ],
)
def test_settings_that_once_crashed_or_allocated_without_end(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_epochs_that_no_memory_can_plan():
    data = sartor.data.synthetic(3, samples=5)
    model = sartor.models.categorical(50)
    with pytest.raises(ConfigError, match=r"plan of 2,147,483,647 epochs .* bytes"):
        sartor.FedAvg(rounds=1, epochs=2**31 - 1).fit(model, data)


def test_python_and_configurations_say_the_same():
    for key, value in {"rounds": 0, "learning_rate": "x", "weights": "odd", "batch": 1.5}.items():
        table = {"name": "FedAvg", key: value}
        with pytest.raises(ConfigError) as written:
            parse_config({"data": {"path": "x"}, "model": {"name": "cnn"}, "central": table})
        with pytest.raises(ConfigError) as called:
            sartor.FedAvg(**{key: value})
        words = str(called.value).removeprefix(f"FedAvg: {key}")
        assert str(written.value) == f"central.{key}{words}"


def test_one_layer_may_be_a_text_everywhere():
    table = {"name": "Finetune", "layers": "dense_1"}
    base = {"data": {"path": "x"}, "model": {"name": "cnn"}, "central": {"name": "FedAvg"}}
    assert parse_config({**base, "personal": [table]}).personal[0].layers == ("dense_1",)


def test_arrays_instead_of_words():
    data = sartor.data.synthetic(3, samples=5).split(test=0.4)
    scores = sartor.Scores("a", ("u",), [1], [2], [True], [1.0, 2.0])
    for wrong in (lambda: data.sizes(np.zeros(2)), lambda: scores.examples(np.zeros(2))):
        with pytest.raises(ConfigError, match=r"part|metric"):
            wrong()
    model, pair = sartor.models.linear(3), [np.ones((4, 3)), np.arange(4.0)]
    found = sartor.theory.discrepancy(model, pair, tuple(pair), radius=1.0)
    assert found == pytest.approx(0, abs=1e-6)


def test_settings_of_users_are_checked_and_unknown_hints_are_not():
    @dataclasses.dataclass(frozen=True)
    class Mine(sartor.FedAvg, listed=False):
        share: Share = 0.5
        step: float = traced(1.0)
        odd: "Hidden" = 1  # noqa: F821
        any_of: list[int] = ()

    assert Mine(odd="whatever", any_of=[1, 2]).any_of == (1, 2)
    for wrong in ({"share": 2}, {"step": 1e60}, {"any_of": ["a"]}, {"rounds": 0}):
        (name,) = wrong
        with pytest.raises(ConfigError, match=f"Mine: {name} must be"):
            Mine(**wrong)


def test_fields_that_cannot_be_read_do_not_hide_the_others():
    @dataclasses.dataclass
    class Settings:
        lost: "Nowhere.at.all" = 0  # noqa: F821
        count: "Count" = 1

        def __post_init__(self):
            check_fields(self)

    assert "lost" not in hints_of(Settings)
    with pytest.raises(ConfigError, match="Settings: count"):
        Settings(count=0)


def test_wrong_keywords_keep_pythons_words():
    @checks_arguments
    def half(share: Share) -> float:
        return share / 2

    with pytest.raises(TypeError, match=r"half\(\) got an unexpected keyword argument 'part'"):
        half(part=0.5)
    with pytest.raises(TypeError, match=r"half\(\) takes 1 positional"):
        half(0.5, 0.6)

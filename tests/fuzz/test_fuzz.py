"""The fuzzer finds nothing wrong; and it would, if something were."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from campaign import AREAS, campaign, failures, sizes
from outcomes import Refused, Slow, Wrong, attempt, ending, must_refuse, near, same

from sartor.central.model import CentralModel
from sartor.data import ClientData, hdf5, notes, tableinfo, tables
from sartor.data.trained import Trained
from sartor.errors import DataError
from sartor.estimators.models import Models
from sartor.personal.models import PersonalModels

CASES = 10_000
SLICE = 150
QUICK = (
    "frames", "ids", "labels", "shapes", "splits", "dates", "trained", "settings", "files",
    "commands", "described",
)  # fmt: skip
"""Areas that need no compiled programs, or few: `make test` runs a slice of these."""


def find_nothing(seed, cases, areas=()):
    outcomes = list(campaign(seed, cases, areas))
    assert len(outcomes) == cases
    assert not failures(outcomes, seed), "\n".join(failures(outcomes, seed))
    return outcomes


def test_a_slice():
    outcomes = find_nothing(0, SLICE, QUICK)
    assert {one.outcome for one in outcomes} == {"fine", "refused"}
    others = [attempt(case, 0, area, 0) for area, (_, case) in AREAS.items() if area not in QUICK]
    assert not failures(others, 0), "\n".join(failures(others, 0))


class Soak:
    """A campaign of one seed. Workers take whole classes, so that seeds run side by side."""

    seed: int

    @pytest.mark.soak
    def test_ten_thousand_cases(self):
        outcomes = find_nothing(self.seed, CASES)
        counts = Counter((one.area, one.outcome) for one in outcomes)
        for area in AREAS:  # an area that refuses everything checks little
            assert counts[area, "fine"] > 20, area


class TestSeed0(Soak):
    seed = 0


class TestSeed1(Soak):
    seed = 1


class TestSeed2(Soak):
    seed = 2


def test_cases_are_as_many_as_asked_for_and_repeat():
    assert sum(sizes(10_000, list(AREAS)).values()) == 10_000
    assert min(sizes(10_000, list(AREAS)).values()) >= 100
    first, again = ([one[:4] for one in campaign(3, 40, ["frames", "ids"])] for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    ("error", "seconds", "outcome"),
    [
        (None, 1, "fine"),
        (Refused("x must be a number"), 1, "refused"),
        (Wrong("other values"), 1, "wrong"),
        (DataError("refused what is right"), 1, "wrong"),
        (IndexError("out of range"), 1, "crash"),
        (Slow(), 200, "slow"),
        (None, 200, "slow"),
    ],
)
def test_outcomes(error, seconds, outcome):
    assert ending(error, seconds)[0] == outcome


def test_what_cases_check_can_fail():
    for check in (lambda: same("a", np.ones(2), np.ones(3)), lambda: near("a", [1.0], [1.001])):
        with pytest.raises(Wrong):
            check()
    with pytest.raises(Wrong, match="accepted: anything"), must_refuse("anything"):
        pass
    with pytest.raises(Wrong, match="says not what to do"), must_refuse("anything"):
        raise DataError("oops")


def off_by_one(method):
    """Predictions of another row."""
    return lambda *args, **named: np.roll(method(*args, **named), 1, axis=0)


def index_error(*_, **__):
    raise IndexError("planted")


def planted_split(split):
    """A split that holds rows of the training part out as well."""

    def wrong(self, *args, **named):
        found = split(self, *args, **named)
        rows = found.rows.copy()
        rows[-1] = rows[0]
        return ClientData(**{**vars_of(found), "rows": rows})

    return wrong


def vars_of(data):
    names = ("columns", "bounds", "ids", "seen", "metadata", "label_names", "time", "groups")
    return {name: getattr(data, name) for name in names}


def forgets_a_label(collect):
    """A reader that takes the label of the row before."""

    def wrong(*args, **named):
        found = collect(*args, **named)
        columns = {**found.columns, "y": np.roll(found.columns["y"], 1)}
        return ClientData(**{**vars_of(found), "columns": columns, "rows": found.rows})

    return wrong


EVALUATE = PersonalModels.evaluate
BUGS = {
    "a prediction off by one row": (
        PersonalModels, "_apply", off_by_one(PersonalModels._apply), "predict", "wrong"),
    "a central prediction off by one row": (
        CentralModel, "_apply", off_by_one(CentralModel._apply), "predict", "wrong"),
    "an evaluation on training rows": (
        PersonalModels, "evaluate",
        lambda self, data, **named: EVALUATE(self, data, part="train", allow_trained=True),
        "scores", "wrong"),
    "rows that were trained on pass": (
        Trained, "among", lambda self, data, part: np.zeros(len(data), np.int64), "scores",
        "wrong"),
    "an IndexError in a reader": (hdf5.Hdf5Part, "clients", index_error, "files", "crash"),
    "an IndexError in tables": (tables, "_stack", index_error, "frames", "crash"),
    "labels of other rows": (tables, "_collect", forgets_a_label(tables._collect), "frames",
                             "wrong"),
    "parts that overlap": (ClientData, "split", planted_split(ClientData.split), "splits", "wrong"),
    "a row's prediction for another row": (
        Models, "scores", off_by_one(Models.scores), "estimators", "wrong"),
    "rows without a client that count for one": (
        tableinfo, "codes_of", lambda values: np.maximum(notes.codes_of(values), 0), "described",
        "wrong"),
    "an id that is taken for another": (
        ClientData, "position", lambda self, client: 0, "ids", "wrong"),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug, monkeypatch):
    owner, name, wrong, area, outcome = BUGS[bug]
    monkeypatch.setattr(owner, name, wrong)
    found = (attempt(AREAS[area][1], 0, area, number).outcome for number in range(60))
    assert outcome in found

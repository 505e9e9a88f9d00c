"""Commands that are started again and again, each time in a folder of its own, and their ends."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from run_cases import contents, table, write
from sabotage import Call, Plan, plain, sabotaged

from sartor.locks import LOCK

TABLE = """
seed = 3
data.path = "people.csv"
data.client = "user"
data.label = "label"
data.domain = "region"
data.memory_limit = 0
data.cache = "cache"
split = {unseen = 0.25, validation = 0.2, test = 0.25}
model = {name = "logistic"}
engine = {lanes = 6}
"""
"""A table that is mapped from a cache in the folder, so that even reading it writes files."""

CONFIGS = {
    "quick": """
seed = 5
data = {generator = "synthetic", clients = 12, symbols = 6, samples = 20}
split = {unseen = 0.25, validation = 0.2, test = 0.3}
model = {name = "categorical"}
central = {name = "FedAvg", rounds = 5, cohort = 4, learning_rate = 0.3}
personal = [{name = "Finetune", epochs = 1, learning_rate = 0.1}]
engine = {lanes = 4}
""",
    "FedAvg": TABLE
    + """
central = {name = "FedAvg", rounds = 5, cohort = 4}
personal = [{name = "Local", epochs = 2}, {name = "Finetune"},
            {name = "Dapper", cover = [0.0, 0.5, 1.0]}]
""",
    "HypCluster": TABLE
    + """
central = {name = "HypCluster", q = 2, warm_rounds = 2, rounds = 8, cohort = 4}
personal = [{name = "Mapper", rounds = 4, cohort = 4, cover = [0.0, 0.5, 1.0]}]
""",
    "Agnostic": TABLE + 'central = {name = "Agnostic", rounds = 5, cohort = 4}\n',
}

COMMANDS = {
    **{name: f"run ../{name}.toml --out out --resume" for name in CONFIGS},
    "synthetic": "reproduce synthetic --quick --seeds 2 --samples 100 --out out --resume",
    "advise": "advise ../people.csv --client user --label label --features age --features income "
    "--out out --set central.rounds=4 --set cluster.rounds=8 --set cluster.warm_rounds=2",
}
"""The command lines. Each one also resumes what it has begun."""

STAGES = {
    "FedAvg": (
        "reading data", "starting", "FedAvg: rounds", "step sizes", "trials", "Local", "Finetune",
        "Dapper", "evaluating", "saving models", "results", "report",
    ),
    "HypCluster": (
        "HypCluster: warm start", "HypCluster: rounds", "Mapper: joint rounds", "Mapper"
    ),
    "Agnostic": ("Agnostic: rounds",),
    "synthetic": ("experiment: cells", "experiment: results"),
    "advise": ("advice",),
}  # fmt: skip
"""The stages of each command."""

EVERYWHERE = [(command, stage) for command, stages in STAGES.items() for stage in stages]

CONTEXT = multiprocessing.get_context("forkserver")
"""Makes fresh processes that need not import everything first."""
CONTEXT.set_forkserver_preload(["sartor.cli", "sabotage", "pytest"])

MINUTE = 60


def in_stages(*quick):
    """Run a test in every stage, and in `make test` in some stages of a quick command."""
    cases = [pytest.param(*one, marks=pytest.mark.soak) for one in EVERYWHERE]
    cases += [("quick", stage) for stage in quick]
    return pytest.mark.parametrize("campaign, stage", cases, indirect=["campaign"])


def spread(moments, kind, fraction):
    """The number of a moment of a kind, so far through the stage; of any, if there is none."""
    same = [n for n, other in enumerate(moments) if other == kind] or range(len(moments))
    return same[round(fraction * (len(same) - 1))]


class Campaign:
    """A command, how it should end, and the moments of its stages.

    Args:
        name: one of ``COMMANDS``.
        folder: where its runs have their folders.

    Attributes:
        command: its first word.
        moments: the kinds of the moments of each stage.
        finished: the folder of a run that nothing has befallen.
        expected: what it holds.
    """

    def __init__(self, name, folder):
        self._root, self._words, self._number = folder, COMMANDS[name].split(), 0
        self._draws = name != "quick"
        write(folder / "people.csv", table("words", clients=16, rows=12))
        for each, text in CONFIGS.items():
            write(folder / f"{each}.toml", text)
        self.command, self.finished, watched = self._words[0], self.folder(), self.folder()
        self.end(self.start(self.finished))
        self.expected = contents(self.finished)
        self.end(self.start(watched, Plan("", 0)))
        self.moments = json.loads(watched.with_suffix(".json").read_text())
        self.check(watched)

    def folder(self):
        """A new folder."""
        self._number += 1
        made = self._root / f"run-{self._number}"
        made.mkdir()
        return made

    def start(self, folder, plan=None, words=()):
        """A process that runs the command in a folder, with more words at its end."""
        target, more = (plain, ()) if plan is None else (sabotaged, (plan,))
        return self.process(target, folder, *more, words=words)

    def process(self, target, folder, *more, words=()):
        """A process that calls a function of ``sabotage`` with the command."""
        words, compiled = [*self._words, *words], str(self._root / "compiled")
        call = Call(words, str(folder), compiled, self._draws)
        process = CONTEXT.Process(target=target, args=(call, *more), name=str(folder), daemon=True)
        process.start()
        return process

    def end(self, process, code=0):
        """Wait until a process has ended, and refuse any other end."""
        process.join(10 * MINUTE)
        assert process.exitcode == code, Path(f"{process.name}.log").read_text()

    def befall(self, folder, plan, code):
        """Run the command until the plan is carried out; returns what it has said."""
        self.end(self.start(folder, plan), code)
        return folder.with_suffix(".log").read_text()

    def resume(self, folder):
        """Run the command to its end; it leaves behind what it should.

        Advice that is there in whole is not replaced.
        """
        if self.command != "advise" or not (folder / "out" / "report.html").exists():
            self.end(self.start(folder))
        self.check(folder)

    def check(self, folder):
        """Refuse a folder that holds anything else than it should, but locks of killed processes.

        Who finds the data in the cache needs no lock, and leaves it there.
        """
        found = {name: v for name, v in contents(folder).items() if not name.endswith(LOCK)}
        names = {*found, *self.expected}
        wrong = sorted(n for n in names if found.get(n, n) != self.expected.get(n, n))
        assert not wrong, f"not as without the stop: {wrong}"

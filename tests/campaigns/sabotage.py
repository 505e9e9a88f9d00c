"""What befalls a process at a chosen moment: it is killed, told to stop, or its disk is full.

A run passes through stages, and through moments in each of them: work is done, half of a file is
written, all of it is, a file gets its final name, a file is removed. What a kill leaves behind
depends on the file operations before it alone, and there is a moment before or after each of them.
This file knows which functions make up a stage. Sartor knows nothing of it.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import errno
import functools
import importlib
import io
import json
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from run_cases import blank_figure, sartor_process

import sartor
from sartor.engine import rounds
from sartor.personal import choosing

BEGUN, WORKED, HALF, WRITTEN, RENAMED, REMOVED, ENDED = KINDS = (
    "begun", "worked", "half written", "written", "renamed", "to be removed", "ended"
)  # fmt: skip
"""The kinds of moments."""

WHOLE = {"experiment: cells", "experiment: results", "advice"}
"""Stages that are not divided further."""

FUNCTIONS = {
    "sartor.runs.config.Config.open_data": "reading data",
    "sartor.runs.record.RunDirectory.begin": "starting",
    "sartor.personal.fitting._with_step_size": "step sizes",
    "sartor.personal.fitting.Work.decide": "trials",
    "sartor.central.model.CentralModel.evaluate": "evaluating",
    "sartor.personal.models.PersonalModels.evaluate": "evaluating",
    "sartor.central.model.CentralModel.save": "saving models",
    "sartor.personal.models.PersonalModels.save": "saving models",
    "sartor.runs.record.write_results": "results",
    "sartor.runs.record.write_report": "report",
    "sartor.experiments.synthetic.run_all": "experiment: cells",
    "sartor.experiments.common.directory.ExperimentDirectory.finish": "experiment: results",
    "sartor.runs.advised._advise_run": "advice",
}
"""The stage that a function is; stages inside it come first. The fits are below."""


class Plan(NamedTuple):
    """What happens, and when.

    Attributes:
        stage: the stage.
        moment: its number among the moments of the stage, from 0.
        what: a signal, by name; ``"pause"``, until there is a file with the folder's name and
            ``.go``; ``"full"``, after which nothing can be written; or ``"read-only"``, where
            nothing can be written from the beginning.
    """

    stage: str
    moment: int
    what: str = "SIGKILL"


class Sabotage:
    """Notes the moments of a process, and carries out a plan.

    Args:
        plan: what is to happen.
        folder: files below it count.
    """

    def __init__(self, plan, folder):
        self.plan, self.folder = plan, os.path.realpath(folder)
        self.moments = collections.defaultdict(list)
        self._stages, self._last = [], "starting"
        self._broken = errno.EROFS if plan.what == "read-only" else 0
        self._lock = threading.Lock()

    def install(self):
        """Put everything in place, in this process."""
        _fix_clocks()
        for path, stage in FUNCTIONS.items():
            _replace(path, functools.partial(self._staged, lambda *_, stage=stage, **__: stage))
        _replace("sartor.personal.fitting.fit", functools.partial(self._staged, _name))
        _replace("sartor.central.fitting.run_rounds", self._rounds)
        _replace("sartor.personal.fitting.Work.train", self._blocks)
        for name in ("replace", "rename"):
            _replace(f"os.{name}", functools.partial(self._operation, after=RENAMED))
        for name in ("unlink", "rmdir"):
            _replace(f"os.{name}", functools.partial(self._operation, before=REMOVED))
        for name in ("mkdir", "open"):
            _replace(f"os.{name}", self._operation)
        io.open = builtins.open = self._opened(io.open)

    def happened(self, kind):
        """A moment: act now, if the plan says so."""
        with self._lock:
            stage = self._stages[-1] if self._stages else self._last
            number = len(self.moments[stage])
            self.moments[stage].append(kind)
        if (stage, number) != self.plan[:2]:
            return
        if self.plan.what == "full":
            self._broken = errno.ENOSPC
        elif self.plan.what == "pause":
            Path(f"{self.folder}.paused").touch()
            while not os.path.exists(f"{self.folder}.go"):
                time.sleep(0.01)
        elif self.plan.what != "read-only":
            os.kill(os.getpid(), getattr(signal, self.plan.what))

    def check(self):
        """Fail as the file system does, if it is full or read-only."""
        if self._broken:
            raise OSError(self._broken, os.strerror(self._broken))

    @contextlib.contextmanager
    def _stage(self, name):
        if self._stages and self._stages[-1] in WHOLE:
            name = self._stages[-1]
        self._stages.append(name)
        try:
            self.happened(BEGUN)
            yield
            self.happened(ENDED)
        finally:
            self._last = self._stages.pop()

    def _staged(self, name_of, real):
        @functools.wraps(real)
        def staged(*args, **named):
            with self._stage(name_of(*args, **named)):
                return real(*args, **named)

        return staged

    def _rounds(self, real):
        """Rounds, one at a time; what is done with them belongs to their stage."""

        def rounds(planner, state, start=0):
            algorithm = planner.algorithm
            with contextlib.closing(real(planner, state, start)) as chunks:
                while True:
                    with self._stage(_rounds_name(algorithm, start)):
                        chunk = next(chunks, None)
                        if chunk is None:
                            return
                        self.happened(WORKED)
                        yield chunk
                        start = chunk.stop

        return rounds

    def _blocks(self, real):
        @functools.wraps(real)
        def train(*args, **named):
            for block in real(*args, **named):
                self.happened(WORKED)
                yield block

        return train

    def _operation(self, real, before=None, after=None):
        """An operation of the file system."""

        def operation(path, *rest, **named):
            watched = self._watches(path) or (rest and self._watches(rest[0]))
            writes = real.__name__ != "open" or bool(rest and rest[0] & os.O_CREAT)
            # A full disk lets go of files, and a lock can be taken there.
            full = self._broken == errno.ENOSPC
            if watched and writes and (real.__name__ == "mkdir" or not full):
                self.check()
            if watched and before:
                self.happened(before)
            result = real(path, *rest, **named)
            if watched and after:
                self.happened(after)
            return result

        return operation

    def _opened(self, real):
        @functools.wraps(real)
        def opened(file, mode="r", *rest, **named):
            if not set(mode) & set("wxa+") or not self._watches(file):
                return real(file, mode, *rest, **named)
            if self._broken == errno.EROFS:
                self.check()
            return File(real(file, mode, *rest, **named), self)

        return opened

    def _watches(self, path):
        if not isinstance(path, str | os.PathLike):
            return False
        return os.path.realpath(path).startswith(self.folder + os.sep)


class File:
    """A file that is being written: its moments, and what fails on a full disk."""

    def __init__(self, file, sabotage):
        self._file, self._sabotage = file, sabotage

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, content):
        self._sabotage.check()
        half = len(content) // 2
        self._file.write(content[:half])
        self._file.flush()
        self._sabotage.happened(HALF)
        self._sabotage.check()
        self._file.write(content[half:])
        return len(content)

    def flush(self):
        self._file.flush()
        self._sabotage.happened(WRITTEN)
        self._sabotage.check()


class Call(NamedTuple):
    """A call of the command line.

    Attributes:
        words: the words.
        folder: where it works; what it says is in a file with the folder's name and ``.log``.
        compiled: where compiled programs are kept.
        draw: whether to draw figures, which takes half of the time of a small run.
    """

    words: list[str]
    folder: str
    compiled: str
    draw: bool


def plain(call):
    """What a process does that nothing befalls."""
    os.chdir(call.folder)
    if not call.draw:
        Figure.savefig = blank_figure
    sartor_process(call.words, f"{call.folder}.log", call.compiled)


def sabotaged(call, plan):
    """What a process does until the plan is carried out.

    If it ends, the moments of every stage are in a file with the folder's name and ``.json``.
    """
    sabotage = Sabotage(plan, call.folder)
    sabotage.install()
    try:
        plain(call)
    finally:
        Path(f"{call.folder}.json").write_text(json.dumps(sabotage.moments))


def limited(call, size):
    """What a process does that must not write files of more than so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    plain(call)


def saving(source, target, folder, plan):
    """What a process does: it saves models over others, until the plan is carried out."""
    Sabotage(plan, folder).install()
    sartor.load(source).save(target, replace=True)


def _fix_clocks():
    """Moments must not depend on the time: a chunk for each round, and all trials are saved."""
    rounds.CHUNK_SECONDS = choosing.SAVE_SECONDS = 0


def _replace(path, wrap):
    """Replace a function, or a method of a class, by what ``wrap`` makes of it."""
    place, name = path.rsplit(".", 1)
    try:
        owner = importlib.import_module(place)
    except ModuleNotFoundError:
        module, kind = place.rsplit(".", 1)
        owner = getattr(importlib.import_module(module), kind)
    setattr(owner, name, wrap(getattr(owner, name)))


def _name(algorithm, *_, **__):
    return type(algorithm).__name__


def _rounds_name(algorithm, start):
    name = _name(algorithm)
    if name == "HypCluster" and start < algorithm.first.rounds_of(max(algorithm.several)):
        return "HypCluster: warm start"
    return {"Joint": "Mapper: joint rounds"}.get(name, f"{name}: rounds")

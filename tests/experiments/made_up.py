"""Results of random numbers: experiments run without any training."""

from __future__ import annotations

import zlib

import numpy as np

from sartor.data.dataset import assemble
from sartor.evaluation import Scores
from sartor.experiments import emnist, regret, synthetic
from sartor.experiments.emnist.work import FamilyRun, SeedResult
from sartor.experiments.regret import work as regret_work
from sartor.experiments.regret.work import PopulationResult
from sartor.experiments.synthetic.methods import Tuned
from sartor.experiments.synthetic.work import MethodResult, SizeRun

COST = {"down": 4e6, "up": 2e5, "examples": 1e4, "steps": 200.0}


def generator(*key):
    """Random numbers that depend on nothing but the key."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def method_result(settings, samples, name):
    """A result of the synthetic experiment."""
    random, shape = generator(samples, name), (settings.seeds, 100)
    exact = 2 + 5 / samples + random.random(shape)
    lambda_ = random.choice([0.0, 0.5, 1.0], shape) if "apper" in name else None
    cluster = random.integers(4, size=shape).astype(float) if "Hyp" in name else None
    tried = [(Tuned(0.5, 0.0), 2.5), (Tuned(2.0, 0.0), 2.25)]
    return MethodResult(
        test=exact + 0.01, exact=exact, smoothed=exact + 0.2, lambda_=lambda_, cluster=cluster,
        choice=Tuned(2.0, 0.0), tried=[] if name.startswith("Local,") else tried, cost=COST,
        seconds=1.5,
    )  # fmt: skip


def stub_synthetic(patch, calls=None):
    """Let the synthetic experiment draw its results instead of training."""

    def run(self, name):
        if calls is not None:
            calls.append((self.samples, name))
        return method_result(self.settings, self.samples, name)

    patch.setattr(SizeRun, "run", run)
    patch.setattr(SizeRun, "__init__", _bare_size)


def _bare_size(self, settings, samples, chosen, stopping=None):
    self.settings, self.samples, self.chosen, self.stopping = settings, samples, chosen, stopping


def made_up_synthetic(settings, out, patch):
    """A finished synthetic experiment."""
    stub_synthetic(patch)
    synthetic.reproduce(settings, out, progress=False)
    return out


def population_result(key):
    """A result of the regret experiment."""
    random = generator(*key)
    exact = 2 + random.random((3, 100))
    return PopulationResult(
        exact, random.integers(3, size=(2, 100)), 2 + random.random((4, 100)),
        random.integers(-1, 4, size=100), random.integers(2, size=100) > 0,
        np.array([0.25, 1.0, 2.0, 8.0]),
    )  # fmt: skip


def stub_regret(patch, calls=None):
    """Let the regret experiment draw its results instead of training."""

    def advise(settings, key, rates):
        if calls is not None:
            calls.append(key)
        return population_result(key)

    patch.setattr(regret_work, "tune", lambda settings, samples: dict.fromkeys("abcd", 1.0))
    patch.setattr(regret_work, "advise_population", advise)


def made_up_regret(settings, out, patch):
    """A finished regret experiment."""
    stub_regret(patch)
    regret.reproduce(settings, out, progress=False)
    return out


def made_up_writers(count=20, domains=True):
    """Writers with one pixel."""
    source = np.where(np.arange(count) % 4 == 3, "high school", "census")
    rows = np.arange(20 * count)
    data = assemble(
        {"x": np.zeros((len(rows), 28, 28), np.uint8), "y": np.zeros(len(rows), np.int32)},
        np.repeat(np.arange(count), 20), [f"writer-{n:02d}" for n in range(count)],
        metadata={"domain": source} if domains else None,
    )  # fmt: skip
    return data.split(test=0.5, seed=0)


def stub_emnist(patch, data, calls=None):
    """Let the EMNIST experiment draw its results instead of training."""

    def compute(self, name, central):
        if calls is not None:
            calls.append((self.number, name))
        return seed_result(self, name)

    def try_candidate(self, family):
        candidate = family.central or next(iter(family.personal.values()))
        return float(generator(repr(candidate)).random())

    patch.setattr(emnist.EmnistSettings, "open", lambda self, progress=None: data)
    patch.setattr(FamilyRun, "central", lambda self: None)
    patch.setattr(FamilyRun, "compute", compute)
    patch.setattr(FamilyRun, "_try", try_candidate)


def seed_result(run, name):
    """A result of the EMNIST experiment."""
    family, data, writers = run.family, run.data, len(run.data)
    random = generator(run.number, name)
    extra, facts = {}, {"cost": COST}
    personal = family.central is None or name != family.name
    q = getattr(family.central, "q", 1)
    if q > 1:
        extra["cluster"] = random.integers(2, size=writers)
        facts["q"] = q
        extra |= {} if personal else {"oracle_accuracy": random.random(writers)}
    if personal and "apper" in name:
        extra["lambda"] = random.choice(run.settings.cover, writers)
    if personal and family.central is not None:
        extra |= {n: random.random(writers) for n in ("mixture_loss", "central_mixture_loss")}
    if not (personal or family.all_images):
        facts["validation_loss"] = 1.25
    if family.name == "agnostic" and not personal:
        facts["domain_weights"] = [0.6, 0.4]
    sizes = data.sizes("test")
    domains = data.metadata.get("domain")
    scores = Scores(
        name, data.ids, size=data.sizes("train"), test_size=sizes, seen=data.seen,
        example_loss=random.exponential(1.0, sizes.sum()),
        example_correct=random.random(sizes.sum()) < 0.6 + 0.1 * (" + " in name),
        domain=None if domains is None else tuple(map(str, domains)), extra=extra,
    )  # fmt: skip
    return SeedResult(scores, facts)


def made_up_emnist(settings, out, patch, writers=20, domains=True):
    """A finished EMNIST experiment."""
    stub_emnist(patch, made_up_writers(writers, domains))
    emnist.reproduce(settings, out, progress=False)
    return out

"""All seeds of the experiment together: estimates, differences and tests over writers."""

from typing import Any

import numpy as np
from scipy import special

from sartor.data import ClientData
from sartor.evaluation import Scores
from sartor.evaluation.means import mean_interval, mean_test
from sartor.experiments.emnist.settings import GROUPS, EmnistSettings
from sartor.experiments.emnist.work import Results
from sartor.types import Bools, Floats


class PooledSeeds:
    """The values of all seeds and writers; NaN where a writer is not in a group.

    Writers are the sampling unit: a writer of several seeds counts once, with the mean over them.
    The variation between seeds is reported separately.
    """

    def __init__(self, settings: EmnistSettings, data: ClientData, results: Results) -> None:
        self.settings, self.results = settings, results
        self._place = {client: k for k, client in enumerate(data.ids)}

    def values(self, name: str, group: str, what: str = "accuracy") -> Floats:
        """[seeds, writers] a number for every writer in a group."""
        out = np.full((self.settings.seeds, len(self._place)), np.nan)
        for seed in range(self.settings.seeds):
            scores = self.results[seed, name].scores
            column = getattr(scores, what) if hasattr(scores, what) else scores.extra[what]
            where = np.array([self._place[client] for client in scores.client])
            out[seed, where] = np.where(member(scores, group), column, np.nan)
        return out

    def gain(self, a: str, b: str, group: str) -> Floats:
        """[seeds, writers] how much higher the accuracy of a is than that of b."""
        return self.values(a, group) - self.values(b, group)

    def estimate(self, values: Floats) -> dict[str, Any]:
        """The mean with a 95% interval over writers, and the mean of each seed."""
        mean, weights = by_writer(values)
        by_seed = np.nanmean(values, axis=1)
        spread = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None
        return {
            "mean": float(by_seed.mean()), **mean_interval(mean, weights)._asdict(),
            "by_seed": by_seed.tolist(), "seed_deviation": spread,
        }  # fmt: skip

    def tested(self, values: Floats, than: float = 0.0) -> dict[str, Any]:
        """An estimate of differences, with p-values for a mean of ``than``.

        ``p_value`` is over writers (see `mean_test`): would these models differ for other writers?
        ``p_seeds`` is from a t-test over seeds: would models that are trained again differ? It is
        ``None`` with one seed.
        """
        mean, weights = by_writer(values - than)
        by_seed = np.nanmean(values, axis=1) - than
        return {
            **self.estimate(values),
            "p_value": mean_test(mean, weights),
            "p_seeds": _over_seeds(by_seed),
            "writers": len(mean),
        }


def _over_seeds(differences: Floats) -> float | None:
    """The p-value of a t-test for a mean of zero."""
    count = len(differences)
    if count < 2:
        return None
    error = differences.std(ddof=1) / np.sqrt(count)
    if error == 0:
        return 0.0 if differences[0] else 1.0
    return float(2 * special.stdtr(count - 1, -abs(differences.mean()) / error))


def by_writer(values: Floats) -> tuple[Floats, Floats]:
    """The mean of every writer with a value, and the number of seeds with one."""
    counts = (~np.isnan(values)).sum(axis=0)
    some = counts > 0
    means = np.nansum(values[:, some], axis=0) / counts[some]
    return means, counts[some].astype(np.float64)


def member(scores: Scores, group: str) -> Bools:
    """Which writers belong to a group: "seen", "unseen", "all", or a domain."""
    if group in GROUPS:
        return scores.seen if group == "seen" else ~scores.seen
    if group == "all":
        return np.ones(len(scores), np.bool_)
    return np.array(scores.domain) == group

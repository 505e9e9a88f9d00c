"""What is advised, to every client and overall."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.evaluation.statistics import bootstrap_interval

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.str_]

SHARING = ("global", "cluster", "local")
"""Whom a client can share a model with: everybody, its cluster, nobody; the first of equals."""

CANDIDATES = (*SHARING, "interpolation")
"""What a client can be advised to take; the last starts from the global model."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """What every client is advised, and why.

    Gains are over the global model, in what the model loses on an example.

    Attributes:
        client: ids.
        seen: whether the client takes part in central training.
        size: training examples m_k, those held out to choose by included.
        advice: ``"local"``, ``"global"``, ``"cluster"`` or ``"interpolation"``: the candidate
            with the largest gain, of which clients differ only as far as that paid on held-out
            examples. So another one may have a larger expected gain; then it is not clear.
        sharing: the same without interpolation.
        gain: by candidate, the gain to be expected by the client's own held-out examples and by
            those of others.
        deviation: its standard deviation.
        held_out: by candidate, and for interpolation by λ, the mean gain on the client's own
            held-out examples; NaN where it has none.
        expected: the expected gain of the same candidates and λ.
        paid: what advice gained when it was given by one half of the client's held-out examples,
            on the other half; NaN where it has too few. Where that is a loss, all are advised the
            global model instead; so where hardly anything can be gained it is a little too high.
        lambda_: the λ of interpolation, chosen in the same way; NaN if none was tried.
        cluster: the cluster of each client.
        discrepancy: to everybody, and to the client's cluster.
        bound: by candidate, the paper's bound of its excess loss.
        bounds_say: whom the client should share a model with: that with the least bound.
        bounds_lambda: λ*, the one of interpolation with the least bound.
        vacuous: whether none of a client's bounds promises anything.
        settings: what was given or chosen.
    """

    client: tuple[str, ...]
    seen: npt.NDArray[np.bool_]
    size: npt.NDArray[np.int64]
    advice: Words
    sharing: Words
    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    held_out: Mapping[str, Floats]
    expected: Mapping[str, Floats]
    paid: Floats
    lambda_: Floats
    cluster: npt.NDArray[np.int64]
    discrepancy: Mapping[str, Floats]
    bound: Mapping[str, Floats]
    bounds_say: Words
    bounds_lambda: Floats
    vacuous: npt.NDArray[np.bool_]
    settings: Mapping[str, Any]

    @property
    def agree(self) -> npt.NDArray[np.bool_]:
        """Whether bounds and experiment would have the client share a model with the same."""
        found: npt.NDArray[np.bool_] = self.sharing == self.bounds_say
        return found

    @property
    def clear(self) -> npt.NDArray[np.bool_]:
        """Whether what is advised is ahead of the next best by more than a standard deviation."""
        barred = self.settings.get("barred", ())
        names = np.array([name for name in self.gain if name not in barred])
        everybody = np.arange(len(self.client))
        gains, spread = (np.stack([of[n] for n in names]) for of in (self.gain, self.deviation))
        first = np.argmax(names[:, None] == self.advice, axis=0)
        others = gains.copy()
        others[first, everybody] = -np.inf
        second = others.argmax(axis=0)
        ahead = gains[first, everybody] - gains[second, everybody]
        error = np.hypot(spread[first, everybody], spread[second, everybody])
        found: npt.NDArray[np.bool_] = ahead > error
        return found

    @property
    def best(self) -> Floats:
        """The expected gain of what is advised."""
        return np.select([self.advice == name for name in self.gain], list(self.gain.values()))

    def shares(self) -> dict[str, float]:
        """The share of clients that each candidate is advised to."""
        return {name: float((self.advice == name).mean()) for name in self.gain}

    def policies(self) -> dict[str, dict[str, float | None]]:
        """What each policy gains in the mean over clients: one candidate for all, or as advised.

        ``gain`` is expected; ``held_out`` is what was gained on held-out examples (of advice: on
        those that it was not given by), with its 95% interval over clients.
        """
        found = {name: _policy(self.expected[name], raw) for name, raw in self.held_out.items()}
        return {**found, "as advised": _policy(self.best, self.paid)}

    def summary(self) -> str:
        """What is advised overall, as text."""
        lines = [f"{name:<14}{part:7.1%} of the clients" for name, part in self.shares().items()]
        lines += [f"Clear, by more than a standard deviation, for {self.clear.mean():.1%}.", ""]
        lines.append("Mean gain over the global model, expected and (on held-out examples):")
        for name, found in self.policies().items():
            raw = "" if found["held_out"] is None else f"({found['held_out']:+.4f})"
            lines.append(f"{name:<14}{found['gain']:+9.4f} {raw}")
        if self.vacuous.all():
            said = "The bounds promise nothing here: all are larger than the largest loss."
        else:
            said = (
                "With whom to share a model, without interpolation: bounds and experiment say the "
                f"same for {self.agree[~self.vacuous].mean():.1%} of the clients to whom bounds "
                f"promise anything ({1 - self.vacuous.mean():.1%} of all)."
            )
        return "\n".join([*lines, "", said])

    def columns(self) -> dict[str, Any]:
        """A table with a row for every client, by column."""
        others = [name for name in self.gain if name != "global"]
        gains = {f"gain_{name}": self.gain[name] for name in others}
        spreads = {f"deviation_{name}": self.deviation[name] for name in others}
        return {
            "client": list(self.client), "seen": self.seen, "train_size": self.size,
            "advice": self.advice, "sharing": self.sharing, "lambda": self.lambda_,
            "clear": self.clear, **gains, **spreads,
            **{f"held_out_{name.replace('λ = ', '')}": raw for name, raw in self.held_out.items()},
            "cluster": self.cluster,
            **{f"discrepancy_{name}": values for name, values in self.discrepancy.items()},
            **{f"bound_{name}": values for name, values in self.bound.items()},
            "bounds_say": np.where(self.vacuous, "nothing", self.bounds_say),
            "bounds_lambda": self.bounds_lambda, "agree": self.agree & ~self.vacuous,
        }  # fmt: skip

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {share:.0%}" for name, share in self.shares().items())
        return (
            f"Advice({len(self.client)} clients: {told}; bounds agree for {self.agree.mean():.0%})"
        )


def _policy(expected: Floats, raw: Floats) -> dict[str, float | None]:
    known = raw[np.isfinite(raw)]
    low, high = bootstrap_interval(known) if len(known) > 1 else (None, None)
    mean = float(known.mean()) if len(known) else None
    return {"gain": float(expected.mean()), "held_out": mean, "low": low, "high": high}

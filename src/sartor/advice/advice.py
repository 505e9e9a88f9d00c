"""The result of :func:`sartor.advise`: a candidate for each client, and the reasons."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.evaluation.means import NONE, mean_interval
from sartor.types import Bools, Floats, Ints

Words = npt.NDArray[np.str_]

SHARING = ("global", "cluster", "local")
"""Share a model with everybody, with the cluster, or with nobody; the first of equals wins."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """The advice for each client, and the reasons for it.

    Gains are measured against the global model, in the model's loss per example.

    Attributes:
        client: client ids.
        seen: whether the client takes part in central training.
        size: number of training examples m_k, including those held out for the experiment.
        advice: ``"local"``, ``"global"``, ``"cluster"`` or ``"interpolation"``: the candidate with
            the largest gain. Clients differ only where that helped on held-out examples, so
            another candidate may have a larger expected gain; then ``clear`` is False.
        sharing: the same without interpolation.
        gain: for each candidate, the expected gain, estimated from the held-out examples of the
            client and of all others.
        deviation: the standard deviation of the expected gain.
        held_out: for each candidate, and each λ of interpolation, the mean gain on the client's
            own held-out examples; NaN if it has none.
        expected: the expected gain of the same candidates and λ.
        paid: the gain of advice given by one half of the client's held-out examples, measured on
            the other half; NaN if the client does not have both. Where the mean is not clearly a
            gain, all clients are advised the global model.
        worth: the same, with what training on the held-out examples too will bring.
        loss: the global model's mean loss on the client's held-out examples; NaN if it has none.
        clear: whether the advice leads every other kind of model by more than two standard
            deviations of the difference, and by more than one on the client's own examples.
        lambda_: the λ of interpolation with the largest gain; NaN if none was tried.
        cluster: the cluster of each client.
        discrepancy: the discrepancy to everybody, and to the client's cluster.
        bound: for each candidate, the paper's bound on its excess loss.
        bounds_say: the way of sharing with the smallest bound.
        bounds_lambda: λ*, the λ with the smallest bound.
        vacuous: whether all of the client's bounds exceed the largest loss.
        settings: the settings that were given or chosen.
    """

    client: tuple[str, ...]
    seen: Bools
    size: Ints
    advice: Words
    sharing: Words
    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    held_out: Mapping[str, Floats]
    expected: Mapping[str, Floats]
    paid: Floats
    worth: Floats
    loss: Floats
    clear: Bools
    lambda_: Floats
    cluster: Ints
    discrepancy: Mapping[str, Floats]
    bound: Mapping[str, Floats]
    bounds_say: Words
    bounds_lambda: Floats
    vacuous: Bools
    settings: Mapping[str, Any]

    @property
    def agree(self) -> Bools:
        """Whether the bounds and the experiment advise the same way of sharing."""
        return np.asarray(self.sharing == self.bounds_say)

    @property
    def best(self) -> Floats:
        """The expected gain of the advised candidate."""
        return np.select([self.advice == name for name in self.gain], list(self.gain.values()))

    def shares(self) -> dict[str, float]:
        """The share of clients that are advised each candidate."""
        return {name: float((self.advice == name).mean()) for name in self.gain}

    def policies(self) -> dict[str, dict[str, float | None]]:
        """The mean gain over clients of one candidate for all, and of following the advice.

        ``gain`` is the expected gain, and ``share`` is its share of the global model's loss.
        Shares hold better than gains if losses grow with time. ``held_out`` is the gain on held-out
        examples, with its 95% interval over clients (``rough`` if they are few). For advice, all
        are measured on examples that the advice did not use, so that the best of several is not
        too good.
        """
        pairs = {name: (self.expected[name], raw) for name, raw in self.held_out.items()}
        pairs["as advised"] = self.worth, self.paid
        return {name: _policy(*pair, self.loss) for name, pair in pairs.items()}

    def summary(self) -> str:
        """The advice for all clients together, as text."""
        lines = [f"{name:<14}{part:7.1%} of the clients" for name, part in self.shares().items()]
        lines += [
            "The advice is clear, by more than two standard deviations, for "
            f"{self.clear.mean():.1%} of the clients.",
            "",
            f"{'Mean gain over the global model':<32}{'expected':>10}{'of its loss':>13}"
            f"{'held out':>10}",
        ]
        for name, found in self.policies().items():
            share = "–" if found["share"] is None else f"{found['share']:+.1%}"
            raw = "–" if found["held_out"] is None else f"{found['held_out']:+.4f}"
            mark = " *" * (name == "as advised")
            lines.append(f"{name + mark:<32}{found['gain']:>+10.4f}{share:>13}{raw:>10}")
        lines.append("* advised by one half of the held-out parts, and measured on the other")
        others = [
            found["gain"] or 0.0 for name, found in self.policies().items() if name != "as advised"
        ]
        if self.shares()["global"] == 1 and max(others, default=0.0) > 0:
            lines.append("None of them clearly gained on held-out parts that had not chosen it.")
        told = ~self.vacuous
        said = "The bounds promise nothing here: all are larger than the largest loss."
        if told.any():
            said = (
                f"The bounds promise something for {told.mean():.1%} of the clients. For "
                f"{self.agree[told].mean():.1%} of these, they favour what the experiment does, "
                "leaving interpolation aside."
            )
        return "\n".join([*lines, "", said])

    def columns(self) -> dict[str, Any]:
        """A table with one row per client, as a mapping from column names to values."""
        others = [name for name in self.gain if name != "global"]
        return {
            "client": list(self.client), "seen": self.seen, "train_size": self.size,
            "advice": self.advice, "sharing": self.sharing, "lambda": self.lambda_,
            "clear": self.clear,
            **{f"gain_{name}": self.gain[name] for name in others},
            **{f"deviation_{name}": self.deviation[name] for name in others},
            **{f"held_out_{name.replace('λ = ', '')}": raw for name, raw in self.held_out.items()},
            "cluster": self.cluster,
            **{f"discrepancy_{name}": values for name, values in self.discrepancy.items()},
            **{f"bound_{name}": values for name, values in self.bound.items()},
            "bounds_say": np.where(self.vacuous, "nothing", self.bounds_say),
            "bounds_lambda": self.bounds_lambda, "agree": self.agree & ~self.vacuous,
        }  # fmt: skip

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {share:.0%}" for name, share in self.shares().items())
        agree = f"bounds agree for {self.agree.mean():.0%}"
        return f"Advice({len(self.client)} clients: {told}; {agree})"


def _policy(expected: Floats, observed: Floats, loss: Floats) -> dict[str, float | None]:
    known = observed[np.isfinite(observed)]
    mean, interval = (float(known.mean()), mean_interval(known)) if len(known) else (None, NONE)
    hoped = np.isfinite(expected)
    gain = float(expected[hoped].mean()) if hoped.any() else 0.0
    both = hoped & np.isfinite(loss)
    total = loss[both].sum()
    share = float(expected[both].sum() / total) if total > 0 else None
    return {"gain": gain, "share": share, "held_out": mean, **interval._asdict()}

"""What is compared: the paper's algorithms with the hyper-parameters that it lists as the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from sartor.central import Agnostic, Central, FedAvg, HypCluster
from sartor.engine import Optimizer
from sartor.experiments.emnist.settings import Order, Settings
from sartor.personal import Dapper, Finetune, Local, Mapper, Personal

ORDERS: tuple[Order, ...] = ("id", "high school last")
"""Orders of writers that are not shuffled."""


class Line(NamedTuple):
    """A central model and what is made of it; every one of these is a cell.

    Attributes:
        name: the cell of the central model itself.
        central: how it is trained; ``None`` where there is none.
        personal: the personal algorithms on top of it, by name.
        order: of the writers, before the last ones are made the unseen ones.
        everything: train the central model on what is held out for choices, too.
        grid: settings that ``central``, or else the personal algorithm, is chosen from by
            validation.
    """

    name: str
    central: Central | None
    personal: Mapping[str, Personal]
    order: Order = "shuffled"
    everything: bool = False
    grid: tuple[dict[str, Any], ...] = ()

    def cells(self) -> list[str]:
        """The names of its cells, the central model's first."""
        own = [] if self.central is None else [self.name]
        return own + [self.cell(personal) for personal in self.personal]

    def cell(self, personal: str) -> str:
        """The name of a personal algorithm's cell."""
        return f"{self.name} + {personal}" if self.central else self.name


def lines(settings: Settings) -> list[Line]:
    """Everything that is run for one seed; what takes longest first."""
    found = [_row(settings, name) for name in reversed(settings.rows)]
    for part in settings.parts:
        found += _BEYOND[part](settings) if part in _BEYOND else []
    return found


def central_of(settings: Settings, row: str) -> FedAvg:
    """The central algorithm of a row."""
    common: dict[str, Any] = {"rounds": settings.rounds, "cohort": settings.cohort}
    if row == "agnostic":
        return Agnostic(learning_rate=0.05, domain_step=0.05, **common)
    if row == "hypcluster":
        return _clustered(settings)
    return FedAvg(learning_rate=0.05, **common)


def _row(settings: Settings, row: str) -> Line:
    central, joint = central_of(settings, row), settings.joint
    personal: dict[str, Personal] = {
        "finetune": Finetune(epochs=5, learning_rate=0.01),
        "dapper": _dapper(settings.cover),
        "mapper": _mapper(settings, central, joint),
    }
    if row == "fedavg" and "controls" in settings.parts:
        # The paper's step sizes differ between algorithms; these have each other's.
        personal["finetune with Dapper's steps"] = Finetune(epochs=5, learning_rate=0.04)
        personal["dapper with Finetune's steps"] = _dapper(settings.cover, 0.01)
        personal["mapper without joint rounds"] = _mapper(settings, central, 0)
        personal["mapper without joint rounds, with Finetune's steps"] = dataclasses.replace(
            _mapper(settings, central, 0), epochs=5, learning_rate=0.01
        )
    if row == "fedavg" and "lambda" in settings.parts:
        personal |= {f"dapper with λ = {point:g}": _dapper((point,)) for point in settings.cover}
    return Line(row, central, personal)


def _dapper(cover: tuple[float, ...], learning_rate: float = 0.04) -> Dapper:
    return Dapper(epochs=1, learning_rate=learning_rate, r=5, cover=cover)


def _mapper(settings: Settings, central: FedAvg, joint: int) -> Mapper:
    """Joint rounds go on with the central model's own hyper-parameters."""
    return Mapper(
        epochs=1, learning_rate=0.03, cover=settings.cover, rounds=joint, cohort=settings.cohort,
        central_learning_rate=central.learning_rate,
    )  # fmt: skip


def _clustered(settings: Settings, q: int = 2, start: Any = "warm", **changes: Any) -> HypCluster:
    """Half of the rounds make q models of their own, so that both are good when clients choose.

    After a short warm start one of them is better for nearly everybody, by chance, and takes all.
    """
    warm = max(1, settings.rounds // 2 // q)
    return HypCluster(
        learning_rate=0.03, q=q, start=start,
        **{"rounds": settings.rounds, "cohort": settings.cohort, "warm_rounds": warm, **changes},
    )  # fmt: skip


def _local(settings: Settings) -> list[Line]:
    """The paper has no such row, so its settings are chosen by validation."""
    epochs = (20, 50) if settings.quick else (100, 200, 400, 800)
    grid = [{"learning_rate": rate, "epochs": n} for n in epochs for rate in (0.05, 0.1, 0.2)]
    return [Line("local", None, {"local": Local()}, grid=tuple(grid))]


def _controls(settings: Settings) -> list[Line]:
    """What else could make a difference: more rounds, as Mapper has, and the held-out images."""
    central = central_of(settings, "fedavg")
    longer = FedAvg(
        learning_rate=0.05, rounds=settings.rounds + settings.joint, cohort=settings.cohort
    )
    tuned = {"finetune": Finetune(epochs=5, learning_rate=0.01)}
    return [
        Line("fedavg with more rounds", longer, tuned),
        Line("fedavg on all images", central, tuned, everything=True),
    ]


def _starts(settings: Settings) -> list[Line]:
    """HypCluster from other starts."""
    short = max(1, settings.rounds // 100)
    starts = [
        Line(f"hypcluster from {start}", _clustered(settings, start=start), {})
        for start in ("random", "clients", "kmeans++")
    ]
    return [
        *starts,
        Line("hypcluster from warm, short", _clustered(settings, warm_rounds=short), {}),
    ]


def _clusters(settings: Settings) -> list[Line]:
    """HypCluster with other numbers of clusters."""
    return [Line(f"hypcluster q={q}", _clustered(settings, q), {}) for q in (1, 3, 4)]


def _orders(settings: Settings) -> list[Line]:
    """The same on writers that are not shuffled."""
    tuned = {"finetune": Finetune(epochs=5, learning_rate=0.01)}
    central = central_of(settings, "fedavg")
    return [Line(f"fedavg by {order}", central, tuned, order=order) for order in ORDERS]


def _optimizers(settings: Settings) -> list[Line]:
    """Adaptive servers, which the paper leaves open; their step size is chosen by validation."""
    tuned = {"finetune": Finetune(epochs=5, learning_rate=0.01)}

    # τ = 1e-3, as Reddi et al. (2021) have it: less than that is not scaled up. optax's Adagrad
    # has τ² below the root, and by itself begins with a sum that hides all updates of a server.
    adaptive = {
        "adam": (("eps", 1e-3),),
        "adagrad": (("eps", 1e-6), ("initial_accumulator_value", 0.0)),
    }

    def grid(name: str, rates: tuple[float, ...]) -> tuple[dict[str, Any], ...]:
        options = [(("learning_rate", rate), *adaptive[name]) for rate in rates]
        return tuple({"server_optimizer": Optimizer(name, option)} for option in options)

    tried = (
        ("fedavg", "adam", (0.003, 0.01, 0.03, 0.1)),
        ("fedavg", "adagrad", (0.003, 0.01, 0.03, 0.1, 0.3)),
        ("hypcluster", "adam", (0.003, 0.01, 0.03, 0.1)),
    )
    return [
        Line(f"{row} with {name}", central_of(settings, row), tuned, grid=grid(name, rates))
        for row, name, rates in tried
    ]


_BEYOND = {
    "local": _local, "controls": _controls, "starts": _starts, "clusters": _clusters,
    "order": _orders, "optimizers": _optimizers,
}  # fmt: skip

"""The methods of the experiment: the paper's algorithms with its best hyper-parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from sartor.central import Agnostic, Central, FedAvg, HypCluster
from sartor.experiments.common import PAPER
from sartor.experiments.emnist.settings import EmnistSettings, Order
from sartor.personal import Dapper, Finetune, Local, Mapper, Personal

ORDERS: tuple[Order, ...] = ("id", "high school last")
"""Orders of writers that are not shuffled."""

FINETUNED = {"finetune": Finetune(epochs=5, learning_rate=0.01, **PAPER)}


class Family(NamedTuple):
    """A central model and the personal models that start from it; each of them is a method.

    Attributes:
        name: the central model's method.
        central: how it is trained; ``None`` if there is none.
        personal: the personal algorithms that start from it, by name.
        order: how writers are ordered, before the last ones become the unseen writers.
        all_images: whether the central model also trains on images held out for choices.
        grid: candidates for settings of ``central``, or else of the personal algorithm; validation
            chooses one.
    """

    name: str
    central: Central | None
    personal: Mapping[str, Personal]
    order: Order = "shuffled"
    all_images: bool = False
    grid: tuple[dict[str, Any], ...] = ()

    def methods(self) -> dict[str, Personal | None]:
        """Its methods by name, with their personal algorithms; the central model comes first."""
        if self.central is None:
            return dict.fromkeys([self.name], next(iter(self.personal.values())))
        personal = {f"{self.name} + {name}": a for name, a in self.personal.items()}
        return {self.name: None, **personal}

    def with_settings(self, change: dict[str, Any]) -> Family:
        """The family with other settings of its central algorithm, or of its personal one."""
        if self.central is not None:
            return self._replace(central=dataclasses.replace(self.central, **change))
        return self._replace(
            personal={name: dataclasses.replace(a, **change) for name, a in self.personal.items()}
        )


def families(settings: EmnistSettings) -> list[Family]:
    """All families of one seed; the slowest first."""
    found = [_row(settings, name) for name in reversed(settings.rows)]
    for part in settings.parts:
        found += _BEYOND[part](settings) if part in _BEYOND else []
    return found


def central_of(settings: EmnistSettings, row: str) -> FedAvg:
    """The central algorithm of a row."""
    common: dict[str, Any] = {"rounds": settings.rounds, "cohort": settings.cohort}
    if row == "agnostic":
        return Agnostic(learning_rate=0.05, domain_step=0.05, **common)
    if row == "hypcluster":
        return _clustered(settings)
    return FedAvg(learning_rate=0.05, **common)


def _row(settings: EmnistSettings, row: str) -> Family:
    central, joint = central_of(settings, row), settings.joint
    personal: dict[str, Personal] = {
        **FINETUNED,
        "dapper": _dapper(settings.cover),
        "mapper": _mapper(settings, central, joint),
    }
    if row == "fedavg" and "controls" in settings.parts:
        # The paper's step sizes differ between algorithms; these controls exchange them.
        personal["finetune with Dapper's steps"] = Finetune(epochs=5, learning_rate=0.04, **PAPER)
        personal["dapper with Finetune's steps"] = _dapper(settings.cover, 0.01)
        personal["mapper without joint rounds"] = _mapper(settings, central, 0)
        personal["mapper without joint rounds, with Finetune's steps"] = dataclasses.replace(
            _mapper(settings, central, 0), epochs=5, learning_rate=0.01
        )
    if row == "fedavg" and "lambda" in settings.parts:
        personal |= {f"dapper with λ = {point:g}": _dapper((point,)) for point in settings.cover}
    return Family(row, central, personal)


def _dapper(cover: tuple[float, ...], learning_rate: float = 0.04) -> Dapper:
    return Dapper(epochs=1, learning_rate=learning_rate, r=5, cover=cover, **PAPER)


def _mapper(settings: EmnistSettings, central: FedAvg, joint: int) -> Mapper:
    """Joint rounds use the central model's own hyper-parameters."""
    return Mapper(
        epochs=1, learning_rate=0.03, cover=settings.cover, rounds=joint, cohort=settings.cohort,
        central_learning_rate=central.learning_rate, **PAPER,
    )  # fmt: skip


def _clustered(
    settings: EmnistSettings, q: int = 2, start: Any = "warm", **changes: Any
) -> HypCluster:
    """Half of the rounds train q models apart, so that all are good when clients choose.

    After a short warm start one of them is better for nearly everybody, by chance, and gets all
    clients.
    """
    warm = max(1, settings.rounds // 2 // q)
    return HypCluster(
        learning_rate=0.03, q=q, start=start,
        **{"rounds": settings.rounds, "cohort": settings.cohort, "warm_rounds": warm, **changes},
    )  # fmt: skip


def _local(settings: EmnistSettings) -> list[Family]:
    """The paper has no such row, so validation chooses the settings."""
    epochs = (20, 50) if settings.quick else (100, 200, 400, 800)
    grid = [{"learning_rate": rate, "epochs": n} for n in epochs for rate in (0.05, 0.1, 0.2)]
    return [Family("local", None, {"local": Local(**PAPER)}, grid=tuple(grid))]


def _controls(settings: EmnistSettings) -> list[Family]:
    """Other possible causes of differences: more rounds, as Mapper has, and the held-out images."""
    central = central_of(settings, "fedavg")
    longer = dataclasses.replace(central, rounds=settings.rounds + settings.joint)
    return [
        Family("fedavg with more rounds", longer, FINETUNED),
        Family("fedavg on all images", central, FINETUNED, all_images=True),
    ]


def _starts(settings: EmnistSettings) -> list[Family]:
    """HypCluster from other starts."""
    others = ("random", "clients", "kmeans++")
    starts = {start: _clustered(settings, start=start) for start in others}
    starts["warm, short"] = _clustered(settings, warm_rounds=max(1, settings.rounds // 100))
    return [Family(f"hypcluster from {name}", central, {}) for name, central in starts.items()]


def _clusters(settings: EmnistSettings) -> list[Family]:
    """HypCluster with other numbers of clusters."""
    return [Family(f"hypcluster q={q}", _clustered(settings, q), {}) for q in (1, 3, 4)]


def _orders(settings: EmnistSettings) -> list[Family]:
    """FedAvg on writers that are not shuffled."""
    central = central_of(settings, "fedavg")
    return [Family(f"fedavg by {order}", central, FINETUNED, order=order) for order in ORDERS]


def _optimizers(settings: EmnistSettings) -> list[Family]:
    """Adaptive servers, which the paper leaves open; validation chooses their step size."""
    # τ = 1e-3, as in Reddi et al. (2021): smaller updates are not scaled up. optax's Adagrad has τ²
    # below the root, and its default initial sum would hide all updates of a server.
    adaptive = {"adam": {"eps": 1e-3}, "adagrad": {"eps": 1e-6, "initial_accumulator_value": 0.0}}

    def grid(name: str, rates: tuple[float, ...]) -> tuple[dict[str, Any], ...]:
        options = [{"name": name, "learning_rate": rate, **adaptive[name]} for rate in rates]
        return tuple({"server_optimizer": option} for option in options)

    tried = (
        ("fedavg", "adam", (0.003, 0.01, 0.03, 0.1)),
        ("fedavg", "adagrad", (0.003, 0.01, 0.03, 0.1, 0.3)),
        ("hypcluster", "adam", (0.003, 0.01, 0.03, 0.1)),
    )
    return [
        Family(f"{row} with {name}", central_of(settings, row), FINETUNED, grid=grid(name, rates))
        for row, name, rates in tried
    ]


_BEYOND = {
    "local": _local, "controls": _controls, "starts": _starts, "clusters": _clusters,
    "order": _orders, "optimizers": _optimizers,
}  # fmt: skip

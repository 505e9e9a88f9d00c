"""The settings of the experiment and its data: which writers are seen, and which are not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sartor.caching import made_once
from sartor.data import ClientData, download, handwriting
from sartor.data import open as open_data
from sartor.errors import ConfigError, DataError, warn
from sartor.models import Model, Params, cnn, mlp
from sartor.models.layers import to_float
from sartor.personal.choosing import COVER

ROWS = ("fedavg", "agnostic", "hypcluster")
"""The rows of the tables."""

GROUPS = ("seen", "unseen")
"""The writers who take part in central training, and the others."""

COLUMNS = ("initial", "finetune", "dapper", "mapper")
"""Their columns."""

PARTS = (
    "tables", "local", "controls", "lambda", "starts", "clusters", "order", "optimizers"
)  # fmt: skip
"""The parts of the experiment: the paper's tables, and what goes beyond them."""

PAPER = {
    "table2": {
        "fedavg": (0.843, 0.900, 0.901, 0.900),
        "agnostic": (0.846, 0.899, 0.900, 0.899),
        "hypcluster": (0.891, 0.902, 0.903, 0.901),
    },
    "table3": {
        "fedavg": (0.841, 0.903, 0.903, 0.902),
        "agnostic": (0.845, 0.901, 0.902, 0.901),
        "hypcluster": (0.888, 0.901, 0.901, 0.899),
    },
}
"""The paper's accuracies, for seen clients (Table 2) and unseen clients (Table 3)."""

UNSEEN = 900 / 3400
"""The share of writers that central training never sees."""

VALIDATION = 0.15
"""The share of a client's training images that is held out for choices."""

QUICK = 100
"""The most writers of the quick version."""

SMOOTHING = 0.1
"""How much of a label is spread over all classes; the label keeps the paper's weight of 0.9."""

CONSTANTS = (SMOOTHING, UNSEEN, VALIDATION)
"""What results depend on besides the settings."""

Order = Literal["shuffled", "id", "high school last"]
"""How writers are ordered, before the last ones become the unseen writers."""


@dataclasses.dataclass(frozen=True)
class EmnistSettings:
    """The size of the experiment, and its data.

    Attributes:
        data: a file or directory with the writers' images; ``"emnist"`` downloads the full data,
            ``"generated"`` generates handwriting.
        writers: how many writers; by default all (548 of generated data; at most 100 in the quick
            version).
        rows: which rows of the tables.
        parts: which parts of the experiment.
        seeds: how many repetitions, each with another shuffle of writers and other draws.
        rounds: rounds of central training.
        joint: rounds of Mapper's joint training.
        cohort: clients in a round.
        cover: the candidates for λ.
        network: the paper's ``"cnn"``, or a small ``"mlp"``.
        precision: precision of the arithmetic, ``"f32"`` or ``"bf16"``.
        seed: seed of all randomness.
        quick: whether it is the quick version.
    """

    data: str = "emnist"
    writers: int | None = None
    rows: tuple[str, ...] = ROWS
    parts: tuple[str, ...] = PARTS
    seeds: int = 3
    rounds: int = 1000
    joint: int = 1000
    cohort: int = 20
    cover: tuple[float, ...] = COVER
    network: Literal["cnn", "mlp"] = "cnn"
    precision: Literal["f32", "bf16"] = "f32"
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        for name, known in (("rows", ROWS), ("parts", PARTS)):
            given = getattr(self, name)
            wrong = [word for word in given if word not in known]
            if wrong or not given:
                raise ConfigError(f"{name}: choose some of {', '.join(known)} (got {wrong})")
            # A fixed order, so that the same choice makes equal settings.
            object.__setattr__(self, name, tuple(word for word in known if word in given))
        if "tables" not in self.parts:
            object.__setattr__(self, "parts", ("tables", *self.parts))
        least = {"seeds": 1, "rounds": 4, "joint": 1, "cohort": 1, "writers": 4}
        for name, value in least.items():
            given = getattr(self, name)
            if given is not None and given < value:
                raise ConfigError(f"{name}={given}: it must be at least {value}")

    @classmethod
    def small(cls, **changes: Any) -> EmnistSettings:
        """The settings of ``--quick``."""
        quick = {
            "parts": ("tables", "local", "order"), "seeds": 1, "rounds": 150, "joint": 15,
            "cover": (0.0, 0.25, 0.5, 0.75, 1.0), "network": "mlp", "quick": True,
        }  # fmt: skip
        return cls(**{**quick, **changes})

    @property
    def model(self) -> Model:
        """The hypothesis class."""
        return _small() if self.network == "mlp" else cnn(62, smoothing=SMOOTHING)

    def open(self, progress: bool | None = None) -> ClientData:
        """The writers, with their training and test images."""
        if self.data == "generated":
            return handwriting(self.writers or (QUICK if self.quick else 548))
        path = download(progress=progress) if self.data == "emnist" else Path(self.data)
        data = _open(path)
        if self.writers is not None and self.writers > len(data):
            raise ConfigError(f"writers={self.writers}: {self.data} has {len(data)}")
        count = self.writers or (QUICK if self.quick else len(data))
        if count < len(data):
            # A choice of writers that does not depend on their order.
            chosen = np.sort(np.argsort(data.hashes, kind="stable")[:count])
            data = data.select([data.ids[k] for k in chosen])
        needing = [w for w in ("agnostic", "order") if w in (*self.rows, *self.parts)]
        if needing and "domain" not in data.metadata:
            raise DataError(
                f"{self.data} does not have the writers' sources, which {' and '.join(needing)} "
                "need; choose rows and parts that do not need them: --row fedavg --row "
                "hypcluster --part tables"
            )
        return data


@made_once(maxsize=1)
def _small() -> Model:
    """A perceptron on inverted images: most pixels are white paper, which should be 0."""
    base = mlp((28, 28), (128,), classes=62, smoothing=SMOOTHING)

    def apply(params: Params, x: Any, key: Any) -> Any:
        return base.apply(params, 1 - to_float(x), key)

    return dataclasses.replace(base, apply=apply, spec=None)


def _open(path: Path) -> ClientData:
    """Read images from a federated format, and make sure that they have test parts."""
    if path.suffix.lower() == ".csv":
        raise DataError(
            f"{path} is a table; convert it to clients first: sartor data convert {path} DIRECTORY "
            "--to sartor --client COLUMN --label COLUMN"
        )
    data = open_data(path)
    x = data.columns.get("x")
    if x is not None and x.dtype.kind == "f" and x.size and float(x.max()) > 1:
        raise DataError(
            f"{path}: pixels go up to {float(x.max()):g}, but EMNIST's from 0 to 1; divide them"
        )
    if not data.sizes("test").any():
        warn(f"{path} has no test images; a tenth of every writer's images is used for testing")
        data = data.split(test=0.1, seed=0)
    return data


def divide(data: ClientData, order: Order, seed: int) -> ClientData:
    """Divide writers into seen and unseen in the paper's ratio, and hold out images for choices.

    The paper shuffles the writers, and the last ones are unseen. In another order, the unseen
    writers differ from the rest.
    """
    divided = data.split(unseen=UNSEEN, validation=VALIDATION, seed=seed)
    if order == "shuffled":
        return divided
    late = np.zeros(len(data), np.bool_)
    if order == "high school last":
        late = np.char.endswith(data.metadata["domain"].astype(str), "high school")
    # FedJAX puts a hash before the writer's id; to sort by it would shuffle the writers.
    ids = np.array([client.rpartition(":")[2] for client in data.ids])
    last = np.lexsort((ids, late))[int(divided.seen.sum()) :]
    seen = np.ones(len(data), np.bool_)
    seen[last] = False
    return dataclasses.replace(divided, seen=seen)

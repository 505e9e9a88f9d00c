"""The models of all clients: predict, evaluate, save."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.central import CentralModel
from sartor.central.model import (
    FORMAT,
    VERSION,
    as_inputs,
    decode,
    is_models,
    make_scores,
    scored_clients,
)
from sartor.data import PARTS, ClientData
from sartor.data.encoding import text_of
from sartor.engine import Engine, check, check_labels
from sartor.engine.schedule import Ints
from sartor.engine.scoring import EachScorer, Scored, positions, score_shared
from sartor.errors import ConfigError, DataError
from sartor.evaluation import Scores
from sartor.files import replacing, save_tree, write_json
from sartor.models import Model, Params
from sartor.personal.bank import Bank
from sartor.randomness import mix
from sartor.trees import flatten, unflatten

MIXTURE = 256
"""Examples of everybody's data that forgetting is measured on."""


@dataclasses.dataclass(frozen=True, eq=False)
class PersonalModels:
    """A model for every client.

    Attributes:
        model: the hypothesis class.
        central: the central model they were made from, if any.
        bank: the parameters that each client has of its own.
        cluster: for each client, the central hypothesis it started from.
        algorithm: name and hyper-parameters of what made them.
        label_names: the word of each class, if labels were words.
        engine: how they are run when evaluated.
    """

    model: Model
    central: CentralModel | None
    bank: Bank
    cluster: dict[str, int]
    algorithm: dict[str, Any]
    label_names: tuple[str, ...] | None = None
    engine: Engine = dataclasses.field(default_factory=Engine)

    def __len__(self) -> int:
        return len(self.bank)

    def __repr__(self) -> str:
        return f"PersonalModels({self.algorithm['name']}: {len(self):,} clients)"

    def params(self, client: str, *, strict: bool = False) -> Params:
        """One client's hypothesis; for an unknown client the central one, unless ``strict``."""
        shape = jax.eval_shape(self.model.init, jax.random.key(0))
        client = text_of(client)  # ids are texts everywhere
        if client not in self.bank:
            if strict or self.central is None:
                raise DataError(f"there is no model for client {client!r}; there are {len(self)}")
            return self.central.params
        leaves: dict[str, Any] = {}
        if self.central is not None:
            k = self.cluster[client]
            leaves = {n: a[k] for n, a in flatten(self.central.hypotheses).items()}
        return unflatten(shape, {**leaves, **self.bank.get(client)})

    def predict_proba(
        self, client: str, x: Any, *, strict: bool = False
    ) -> npt.NDArray[np.float32]:
        """Class probabilities [n, classes] under a client's own model."""
        if self.model.kind == "regression":
            raise ConfigError("a regression model predicts numbers, not probabilities: use predict")
        return np.exp(self._apply(client, x, strict))

    def predict(self, client: str, x: Any, *, strict: bool = False) -> npt.NDArray[Any]:
        """Labels (in words, if the data had words) or means under a client's own model.

        A client that has none gets the central model; with ``strict`` an error.
        """
        return decode(self.model, self._apply(client, x, strict), self.label_names)

    def _apply(self, client: str, x: Any, strict: bool) -> npt.NDArray[np.float32]:
        params = self.params(client, strict=strict)
        return np.asarray(self.model.apply(params, as_inputs(self.model, x), None))

    def evaluate(
        self, data: ClientData, *, part: str = "test", mixture: int = MIXTURE, seed: int = 0
    ) -> Scores:
        """Score every client's test part under its own model: one row per client.

        The central model on the same examples is the baseline. ``mixture_loss`` is the loss of a
        client's model on ``mixture`` examples of all seen clients together, beside that of the
        central model: what the client's model has forgotten.
        """
        check(self.model, data)
        check_labels(self.label_names, data)
        clients = scored_clients(data, part)
        missing = [data.ids[k] for k in clients if data.ids[k] not in self.bank]
        if missing:
            raise DataError(
                f"{len(missing)} clients have no model here ({missing[0]!r} …); fit them too, or "
                "leave them out with data.select"
            )
        everybody = self._mixture(data, part, mixture, seed)
        own, mixed = self._score(data, clients, part, everybody)
        extra: dict[str, npt.NDArray[Any]] = {}
        cluster = np.array([self.cluster[data.ids[k]] for k in clients])
        baseline = None
        if self.central is not None:
            baseline = self.central.score(data, clients, part)
            if self.central.q > 1:
                extra["cluster"] = cluster
        if len(everybody):
            extra["mixture_loss"] = mixed
            if self.central is not None:
                central = self.central.hypotheses
                under = score_shared(self.model, data, everybody, central, self.engine)
                extra["central_mixture_loss"] = under.loss.mean(axis=1, dtype=np.float64)[cluster]
        name = str(self.algorithm["name"])
        return make_scores(name, self.model, data, clients, part, own, extra, baseline)

    def _score(
        self, data: ClientData, clients: Ints, part: str, everybody: Ints
    ) -> tuple[Scored, npt.NDArray[np.float64]]:
        """Examples of these clients under their own models, and everybody's under each of them."""
        sizes, first = data.sizes(part), data.bounds[:, PARTS.index(part)]
        scorer = EachScorer(
            self.model,
            data,
            self.central.hypotheses if self.central else None,
            self.engine,
            lanes=max(len(shard.ids) for shard in self.bank.shards),
            most=max(int(sizes.max()), len(everybody)),
        )
        place = {data.ids[k]: k for k in clients}
        own: dict[int, Scored] = {}
        mixed = np.zeros(len(data))
        for ids, stack in self.bank.blocks():
            keep = [i for i, client in enumerate(ids) if client in place]
            if not keep:
                continue
            here = np.array([place[ids[i]] for i in keep])
            params = {name: leaf[keep] for name, leaf in stack.items()}
            cluster = np.array([self.cluster[ids[i]] for i in keep])
            own.update(
                zip(here, scorer.score(params, cluster, first[here], sizes[here]), strict=True)
            )
            if len(everybody):
                results = scorer.score_same(params, cluster, everybody)
                mixed[here] = [r.loss.mean(dtype=np.float64) for r in results]
        loss = np.concatenate([own[k].loss for k in clients])
        correct = np.concatenate([own[k].correct for k in clients])
        return Scored(loss, correct), mixed[clients]

    def _mixture(self, data: ClientData, part: str, count: int, seed: int) -> npt.NDArray[np.int64]:
        """A sample of all seen clients' examples in a part, without replacement."""
        seen = np.flatnonzero(data.seen)
        rows, sizes = positions(data, seen, part), data.sizes(part)[seen]
        owner = np.repeat(seen, sizes)
        place = rows - data.bounds[owner, PARTS.index(part)]
        order = np.argsort(mix(seed, "mixture", data.hashes[owner], place), kind="stable")
        return np.sort(rows[order[:count]])

    def save(self, directory: str | Path) -> None:
        """Write all models as safetensors with a JSON manifest; :func:`sartor.load` reads them."""
        path = Path(directory)
        if self.bank.directory is not None and path.resolve() == self.bank.directory.resolve():
            self._write_central(path)
            return
        with replacing(path, is_models) as folder:
            self.bank.copy_to(folder)
            self._write_central(folder)

    def _write_central(self, path: Path) -> None:
        manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "kind": "personal"}
        if self.central is not None:
            save_tree(path / "central.safetensors", self.central.hypotheses, {})
            manifest = self.central.manifest("personal")
        manifest |= {
            "model": self.model.spec,
            "label_names": self.label_names,
            "personal": self.algorithm,
            "trained": list(self.bank.shapes),
            "clients": len(self.bank),
        }
        if self.central is not None and self.central.q > 1:
            manifest["cluster"] = self.cluster
        write_json(path / "manifest.json", manifest)

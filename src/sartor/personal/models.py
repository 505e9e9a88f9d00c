"""The models of all clients: predict, evaluate, save."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.central import CentralModel
from sartor.central.guessing import WORSE, Guess
from sartor.central.manifest import FORMAT, TRAINED, VERSION, is_models, refuse_loss, write_manifest
from sartor.central.model import (
    as_inputs,
    count_inputs,
    decode,
    make_scores,
    mark_trained,
    predict_shared,
    refuse_trained,
    scored_clients,
)
from sartor.central.settings import describe, models_in
from sartor.checking import AnyPath, Whole, checks_arguments
from sartor.cost import Cost
from sartor.data import PARTS, ClientData
from sartor.data.names import check_names
from sartor.data.scaling import Scaling
from sartor.data.trained import Trained
from sartor.engine import (
    Against,
    EachScorer,
    Engine,
    Job,
    Leaves,
    Objective,
    Own,
    Scored,
    Spans,
    positions,
    predict,
    predict_each,
    ragged,
    score_shared,
)
from sartor.errors import ConfigError, DataError, warn
from sartor.evaluation import Scores, mean_interval
from sartor.files import replacing, save_tree
from sartor.locks import locked
from sartor.models import Model, Params, check
from sartor.personal.asking import check_index, clients_of, id_of
from sartor.personal.store import ModelStore, OnDemand
from sartor.randomness import mix
from sartor.types import Floats, Ints

MIXTURE = 256
"""Examples of everybody's data that forgetting is measured on."""


@dataclasses.dataclass(frozen=True, eq=False)
class PersonalModels:
    """A model for every client.

    Attributes:
        objective: how a client predicts with its own and the central parameters.
        central: the central model they were made from, if any.
        store: the parameters that each client has of its own.
        clients: what was decided for each client: ``cluster``, the central hypothesis it belongs
            to, and where there was a choice ``lambda``, ``how`` it was made (``"holdout"``,
            ``"kfold"``, ``"train"``; ``"prior"``: as is best for the others; ``"given"``), and
            whether the client ``kept`` the central model; ``hypothesis`` then says which.
        algorithm: name and hyper-parameters of what made them.
        label_names: the word of each class, if labels were words.
        feature_names: the columns that features were, if they have names.
        engine: how they are run when evaluated.
        baseline: the central model that was given, where the algorithm has trained it further.
        cost: what personalizing asked of every client, without the central model's training; not
            known of models from a file.
        scaling: how features are scaled before models see them.
        trained: the rows that they and the central model were trained on; not known of models that
            earlier versions saved.
    """

    objective: Objective
    central: CentralModel | None
    store: ModelStore | OnDemand
    clients: dict[str, dict[str, Any]]
    algorithm: dict[str, Any]
    label_names: tuple[str, ...] | None = None
    engine: Engine = dataclasses.field(default_factory=Engine)
    baseline: CentralModel | None = None
    cost: Cost | None = None
    feature_names: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    trained: Trained | None = None

    @property
    def model(self) -> Model:
        """The hypothesis class."""
        return self.objective.model

    @property
    def given(self) -> CentralModel | None:
        """The central model that was given, which clients are compared with."""
        return self.central if self.baseline is None else self.baseline

    @cached_property
    def hypotheses(self) -> Params | None:
        """The central hypotheses that clients' models refer to: those of the central model.

        After them come those of the model that was given, where clients may have kept that.
        """
        if self.central is None:
            return None
        if self.baseline is None or not any("hypothesis" in d for d in self.clients.values()):
            return self.central.hypotheses
        return jax.tree.map(
            lambda a, b: np.concatenate([a, b]), self.central.hypotheses, self.baseline.hypotheses
        )

    @property
    def cluster(self) -> dict[str, int]:
        """For each client, the central hypothesis it belongs to."""
        return {client: decided["cluster"] for client, decided in self.clients.items()}

    @property
    def lambda_(self) -> dict[str, float]:
        """For each client its λ, if the algorithm has one."""
        return {c: decided["lambda"] for c, decided in self.clients.items() if "lambda" in decided}

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return f"PersonalModels({self.algorithm['name']}: {len(self):,} clients)"

    @checks_arguments
    def params(self, client: Any, *, strict: bool = False) -> Params:
        """One client's own hypothesis; for Mapper, its local one.

        An unknown client gets the central hypothesis that most clients belong to; with ``strict``
        an error.
        """
        objective, *own = self._model_of(client, strict)
        return objective.whole(*own)

    @checks_arguments
    def predict_proba(
        self, client: Any, x: Any, *, strict: bool = False
    ) -> npt.NDArray[np.float32]:
        """Class probabilities [n, classes] under a client's own model; see :meth:`predict`."""
        if self.model.kind == "regression":
            raise ConfigError("a regression model predicts numbers, not probabilities: use predict")
        return np.exp(self._apply(client, x, strict))

    @checks_arguments
    def predict(self, client: Any, x: Any, *, strict: bool = False) -> npt.NDArray[Any]:
        """Labels (in words, if the data had words) or means under a client's own model.

        Args:
            client: the client's id; or a list, an array or a column with an id for each example.
                A series of pandas must have the index of x, if that is a frame.
            x: the examples.
            strict: whether a client that has no model is an error. Otherwise it gets the central
                model; of several, the one that most clients belong to. If none of several ids is
                known, a warning says so.
        """
        return decode(self.model, self._apply(client, x, strict), self.label_names)

    def _apply(self, client: Any, x: Any, strict: bool) -> npt.NDArray[np.float32]:
        check_index(client, x)
        inputs = as_inputs(self.model, x, self.feature_names, self.scaling)
        asked, number = clients_of(client, count_inputs(inputs))
        own = [k for k, name in enumerate(asked) if name in self.clients]
        others = [k for k, name in enumerate(asked) if name not in self.clients]
        if others and (strict or self.given is None):
            raise self._unknown([asked[k] for k in others])
        if len(others) > 1 and not own:  # ids of another kind, rather than new clients
            warn(
                f"no client has any of the {len(others):,} ids given, such as {asked[0]!r}; there "
                f"are {next(iter(self.clients))!r} and others: all rows get the central model. "
                "Give ids as they were when fitted, such as texts that begin with zeros"
            )
        if inputs is None:  # a model predicts the same for all examples
            return np.stack([self._density(name) for name in asked])[number]
        most = self.store.at_once
        groups = [own[begin : begin + most] for begin in range(0, len(own), most)]
        found = []
        for group in [*groups, others] if others else groups:
            rows = np.flatnonzero(np.isin(number, group))
            mine = jax.tree.map(lambda a, rows=rows: a[rows], inputs)
            model = np.searchsorted(group, number[rows])
            found.append((rows, self._predict([asked[k] for k in group], mine, model)))
        order, said = (np.concatenate(column) for column in zip(*found, strict=True))
        prediction = np.empty_like(said)
        prediction[order] = said
        return prediction

    def _predict(self, names: list[str], inputs: Any, number: Ints) -> npt.NDArray[np.float32]:
        """Predictions for examples of clients that all have a model, or all have none."""
        if names[0] in self.clients:
            own, jobs = self.store.gather(names), self._jobs(names)
            return predict_each(self.objective, own, self.hypotheses, jobs, inputs, number)
        assert self.given is not None
        return predict_shared(self.model, self.given.hypotheses, self._usual, inputs)

    def _density(self, client: str) -> npt.NDArray[np.float32]:
        objective, own, central, job = self._model_of(client, strict=False)
        return np.asarray(predict(objective, own, central, None, job))

    def _model_of(self, client: Any, strict: bool) -> tuple[Objective, Leaves, Params, Job]:
        """A client's objective, own leaves, central hypotheses and job; see :meth:`params`."""
        client = id_of(client)
        if client in self.clients:
            job = jax.tree.map(lambda a: a[0], self._jobs([client]))
            return self.objective, self.store.get(client), self.hypotheses, job
        if strict or self.given is None:
            raise self._unknown([client])
        return Own(self.model), {}, self.given.hypotheses, Job(self._usual, None, None)

    def _unknown(self, clients: list[str]) -> DataError:
        named = ", ".join(map(repr, clients[:3])) + (" …" if len(clients) > 3 else "")
        several = f"{len(clients)} clients ({named})" if len(clients) > 1 else f"client {named}"
        return DataError(
            f"no model for {several} among the {len(self):,} here; fit one"
            + ", or leave out strict=True for the central model" * (self.given is not None)
        )

    @cached_property
    def _usual(self) -> int:
        """The central hypothesis that most clients belong to."""
        return Counter(self.cluster.values()).most_common(1)[0][0]

    def _jobs(self, clients: Sequence[str]) -> Job:
        """What the objective has to know about some clients."""
        decided = [self.clients[client] for client in clients]
        hypothesis = np.array([d.get("hypothesis", d["cluster"]) for d in decided], np.int32)
        values: dict[str, npt.NDArray[Any]] = {}
        if decided and "lambda" in decided[0]:
            values["lambda"] = np.array([d["lambda"] for d in decided], np.float32)
        return Job(hypothesis, None, None, values=values)

    @checks_arguments
    def evaluate(
        self, data: ClientData, *, part: str = "test", mixture: Whole = MIXTURE, seed: int = 0,
        allow_trained: bool = False,
    ) -> Scores:  # fmt: skip
        """Score every client's test part under its own model: one row per client.

        The central model on the same examples is the baseline. ``mixture_loss`` is the loss of a
        client's model on ``mixture`` examples of all seen clients, and ``central_mixture_loss``
        that of the central model. The difference is what the client's model has forgotten.

        Rows that the models or the central model were trained on are refused, in whatever part
        they are. With ``allow_trained`` they are scored all the same, and the scores say how many
        they are.
        """
        check(self.model, data)
        check_names(self.label_names, self.feature_names, data)
        data, clients = data.scaled(self.scaling), scored_clients(data, part)
        missing = [data.ids[k] for k in clients if data.ids[k] not in self.clients]
        if missing:
            raise DataError(
                f"clients without a model here: {len(missing)} ({missing[0]!r}); fit them too, or "
                "leave them out with data.select"
            )
        found = refuse_trained(self.trained, data, part, allow_trained)
        everybody = self._mixture(data, part, mixture, seed)
        against = self._against(data)
        own, mixed = self._score(data, clients, part, everybody, against)
        extra: dict[str, npt.NDArray[Any]] = {}
        jobs = self._jobs([data.ids[k] for k in clients])
        cluster = np.array([self.clients[data.ids[k]]["cluster"] for k in clients])
        if "lambda" in jobs.values:
            extra["lambda"] = jobs.values["lambda"].astype(np.float64)
        baseline = None
        if self.given is not None and against is not None and own.central is not None:
            clusters = {"cluster": against.chosen[clients]} if self.given.q > 1 else {}
            name = str(self.given.algorithm["name"])
            baseline = make_scores(
                name, self.model, data, clients, part, own.central, clusters, self.trained
            )
            own = self._keeping(own, data, clients, part)
            if self.given.q > 1:
                extra["cluster"] = cluster
        kept = np.array([bool(self.clients[data.ids[k]].get("kept")) for k in clients])
        if kept.any():
            extra["kept"] = kept
        if len(everybody):
            extra["mixture_loss"] = mixed
            if self.given is not None:
                central = self.given.hypotheses
                under = score_shared(self.model, data, everybody, central, self.engine)
                extra["central_mixture_loss"] = under.loss.mean(axis=1, dtype=np.float64)[cluster]
        name = str(self.algorithm["name"])
        scores = make_scores(
            name, self.model, data, clients, part, own, extra, self.trained, baseline
        )
        if baseline is not None:
            self._warn_of_harm(scores, baseline, data, data.rows[positions(data, clients, part)])
        return mark_trained(scores, found[clients])

    def _warn_of_harm(self, scores: Scores, baseline: Scores, data: ClientData, rows: Ints) -> None:
        """Warn of models that are worse than a guess."""
        mine, before = (float(of.example_loss.mean(dtype=np.float64)) for of in (scores, baseline))
        if not data.sizes("train").any():
            return
        guess = Guess.of(self.model, data)
        guessed = guess.losses(self.model, data.columns["y"][rows])
        usual = float(guessed.mean())
        if mine <= WORSE * usual:
            return
        lost = f"{scores.method}: the clients' own models lose {mine:.4g} on average, more than "
        said = f"a guess ({guess.words}: {usual:.4g})"
        if mine > WORSE * before:
            warn(
                f"{lost}the central model ({before:.4g}) and than {said}; leave learning_rate and "
                "guard at their defaults, or take smaller steps"
            )
            return
        apart = scores.loss - scores.sum_by_client(guessed) / scores.test_size
        if mean_interval(apart).low > 0:  # no matter of a few clients
            warn(
                f"{lost}{said}; the central model ({before:.4g}) was no better. Do not build on "
                "these models: look at how these clients' data differs from what it was trained on"
            )

    def _keeping(self, own: Scored, data: ClientData, clients: Ints, part: str) -> Scored:
        """The same results, where clients that keep the central model have exactly its results."""
        kept = [bool(self.clients[data.ids[k]].get("kept")) for k in clients]
        examples = np.repeat(np.array(kept, np.bool_), data.sizes(part)[clients])
        if not examples.any() or own.central is None or own.gain_range is None:
            return own
        return own._replace(
            loss=np.where(examples, own.central.loss, own.loss),
            correct=np.where(examples, own.central.correct, own.correct),
            gain_range=np.where(examples[:, None], 0.0, own.gain_range),
        )

    def _against(self, data: ClientData) -> Against | None:
        """The central model that was given, every client's hypothesis, and the range of labels."""
        if self.given is None:
            return None
        labels = np.zeros((2, 1), np.float32)
        if self.model.kind == "regression":
            rows = data.rows[positions(data, np.arange(len(data)), "train")]
            y = data.columns["y"][rows]
            labels = np.stack([y.min(axis=0), y.max(axis=0)])
        return Against(self.given.hypotheses, self.given.assign(data), labels)

    def _score(
        self, data: ClientData, clients: Ints, part: str, everybody: Ints, against: Against | None
    ) -> tuple[Scored, Floats]:
        """Examples of these clients under their own models, and everybody's under each of them."""
        sizes, first = data.sizes(part), data.bounds[:, PARTS.index(part)]
        scorer, mixture = (
            EachScorer(
                self.objective, data, self.hypotheses, self.engine,
                lanes=self.store.widest, most=most,
            )
            for most in (int(sizes.max()), max(1, len(everybody)))
        )  # fmt: skip
        place = {data.ids[k]: k for k in clients}
        own: dict[int, Scored] = {}
        mixed = np.zeros(len(data))
        for ids, stack in self.store.blocks():
            scored = np.array([client in place for client in ids])
            if not scored.any():
                continue
            if not scored.all():
                stack = {name: leaf[scored] for name, leaf in stack.items()}
                ids = tuple(itertools.compress(ids, scored))
            here, jobs = np.array([place[client] for client in ids]), self._jobs(ids)
            mine = None if against is None else against._replace(chosen=against.chosen[here])
            results = scorer.score(stack, jobs, Spans(first[here], sizes[here]), mine)
            own.update(zip(here, results, strict=True))
            if len(everybody):
                same = Spans(np.zeros_like(here), np.full_like(here, len(everybody)), everybody)
                results = mixture.score(stack, jobs, same)
                mixed[here] = [r.loss.mean(dtype=np.float64) for r in results]
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *(own[k] for k in clients))
        return together, mixed[clients]

    def _mixture(self, data: ClientData, part: str, count: int, seed: int) -> Ints:
        """A sample of all seen clients' examples in a part, without replacement."""
        seen = np.flatnonzero(data.seen)
        owner, place = ragged(data.sizes(part)[seen])
        order = np.argsort(mix(seed, "mixture", data.hashes[seen[owner]], place), kind="stable")
        return np.sort(positions(data, seen, part)[order[:count]])

    @checks_arguments
    def save(self, directory: AnyPath, *, replace: bool = False) -> None:
        """Write all models as safetensors with a JSON manifest; :func:`sartor.load` reads them.

        Args:
            directory: where to. Models of the same clients, or of some of them, are replaced.
            replace: whether to replace models of other clients, or a central model, too, which
                are lost then.
        """
        path = Path(directory)
        if self.store.directory is not None and path.resolve() == self.store.directory.resolve():
            with locked(path):
                self._write_central(path)
            return
        refuse_loss(path, self.clients, replace)
        with replacing(path, is_models) as folder:
            self.store.copy_to(folder)
            self._write_central(folder)

    def _write_central(self, path: Path) -> None:
        manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "kind": "personal"}
        if self.central is not None:
            save_tree(path / "central.safetensors", self.central.hypotheses, {})
            manifest = self.central.manifest("personal")
        trained = {"central": self.central.trained if self.central else None, "own": self.trained}
        save_tree(path / TRAINED, {n: t._asdict() for n, t in trained.items() if t is not None}, {})
        if self.baseline is not None:
            save_tree(path / "baseline.safetensors", self.baseline.hypotheses, {})
            manifest["baseline"] = {"central": self.baseline.algorithm, "q": self.baseline.q}
        specs = {name: model.spec for name, model in models_in(self.objective).items()}
        objective = describe(self.objective) | specs
        del objective["model"]
        manifest |= {
            "model": self.model.spec,
            "label_names": self.label_names,
            "feature_names": self.feature_names,
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
            "personal": self.algorithm,
            "objective": objective,
            "clients": self.clients,
        }
        write_manifest(path, manifest)

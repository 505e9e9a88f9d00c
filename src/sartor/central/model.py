"""The trained central model: predict, assign, evaluate, save."""

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.central.checkpoint import History
from sartor.central.manifest import FORMAT, TRAINED, VERSION, is_models, refuse_loss, write_manifest
from sartor.checking import AnyPath, checked, checks_arguments
from sartor.cost import Cost
from sartor.data import PARTS, ClientData
from sartor.data.encoding import as_column
from sartor.data.names import check_names
from sartor.data.scaling import Scaling
from sartor.data.trained import Trained, part_words
from sartor.engine import (
    ClientStates,
    Engine,
    Job,
    Own,
    Scored,
    losses_by_client,
    positions,
    predict_each,
    score_shared,
)
from sartor.errors import ConfigError, DataError, warn
from sartor.evaluation import Scores
from sartor.files import replacing, save_tree
from sartor.models import Model, Params, check, device_dtype
from sartor.types import Bools, Ints


class Rule(Protocol):
    """How clients find their cluster where it is not by their loss."""

    def assign(self, data: ClientData) -> Ints:
        """The cluster of every client."""

    def to_dict(self) -> dict[str, Any]:
        """The rule in plain values, as it is saved."""


@dataclasses.dataclass(frozen=True, eq=False)
class CentralModel:
    """A trained central model: one hypothesis, or q of them.

    Attributes:
        model: the hypothesis class.
        hypotheses: the hypotheses, stacked: [q, ...].
        algorithm: name and hyper-parameters of what trained it.
        history: what was measured in every round, by name: ``loss`` is the cohort's mean training
            loss, and clusterings and Agnostic add to it.
        label_names: the word of each class, if labels were words.
        feature_names: the columns that features were, if they have names.
        clusterings: how many hypotheses each clustering has, where several were trained together.
        rule: how clients are assigned, if not by their loss.
        engine: how it was run, and is run when evaluated.
        cost: what training asked of every client; not known of a model from a file.
        kept: what clients have kept from their rounds, by client; not in files.
        scaling: how features are scaled before the model sees them.
        trained: the rows that it was trained on; not known of models that earlier versions saved.
    """

    model: Model
    hypotheses: Params
    algorithm: dict[str, Any]
    history: History
    label_names: tuple[str, ...] | None = None
    clusterings: tuple[int, ...] = ()
    rule: Rule | None = None
    engine: Engine = dataclasses.field(default_factory=Engine)
    cost: Cost | None = None
    feature_names: tuple[str, ...] | None = None
    kept: ClientStates | None = None
    scaling: Scaling | None = None
    trained: Trained | None = None

    @property
    def loss(self) -> npt.NDArray[np.float32]:
        """The cohort's mean training loss in every round."""
        return self.history["loss"]

    def __repr__(self) -> str:
        return f"CentralModel({self.algorithm['name']}, q={self.q})"

    @property
    def q(self) -> int:
        """How many hypotheses there are."""
        return int(jax.tree.leaves(self.hypotheses)[0].shape[0])

    @property
    def params(self) -> Params:
        """The hypothesis, if there is only one."""
        if self.q > 1:
            raise ConfigError(f"there are {self.q} hypotheses; take one from `hypotheses`")
        return jax.tree.map(lambda a: a[0], self.hypotheses)

    @checks_arguments
    def assign(self, data: ClientData) -> Ints:
        """The hypothesis of each client, the paper's f(k): the one with the lowest training loss.

        Where several clusterings were trained together, a client takes the one whose hypothesis
        has the lowest loss on its validation part; without such a part, the one that has the
        lowest on average over the clients that do.
        """
        everyone, data = np.arange(len(data)), data.scaled(self.scaling)
        best = self._best(data)
        if best.shape[1] == 1:
            return best[:, 0]
        held = losses_by_client(
            self.model, data, everyone, self.hypotheses, self.engine, part="validation", plain=True
        )
        held = np.take_along_axis(held, best, axis=1)
        if np.isnan(held).all():
            raise DataError(
                "to choose between several clusterings every client needs a validation part; make "
                "one with data.split(validation=0.2, seed=0) before fitting"
            )
        held = np.where(np.isnan(held), np.nanmean(held, axis=0), held)
        return best[everyone, held.argmin(axis=1)]

    @checks_arguments
    def members(self, data: ClientData) -> Bools:
        """[clients, q] to which hypothesis each client belongs, in every clustering."""
        belongs = np.zeros((len(data), self.q), np.bool_)
        np.put_along_axis(belongs, self._best(data.scaled(self.scaling)), True, axis=1)
        return belongs

    def _best(self, data: ClientData) -> Ints:
        """[clients, clusterings] the hypothesis of each client in every clustering."""
        if self.q == 1:
            return np.zeros((len(data), 1), np.int64)
        if self.rule is not None:
            return self.rule.assign(data)[:, None]
        everyone = np.arange(len(data))
        losses = losses_by_client(self.model, data, everyone, self.hypotheses, self.engine)
        sizes = self.clusterings or (self.q,)
        firsts = np.cumsum(sizes) - sizes
        return np.stack(
            [a + losses[:, a : a + n].argmin(axis=1) for a, n in zip(firsts, sizes, strict=True)],
            axis=1,
        )

    @checks_arguments
    def evaluate(
        self, data: ClientData, *, part: str = "test", allow_trained: bool = False
    ) -> Scores:
        """Score every client's test part: one row per client.

        Rows that the model was trained on are refused, in whatever part they are. With
        ``allow_trained`` they are scored all the same, and the scores say how many they are.
        """
        check(self.model, data)
        check_names(self.label_names, self.feature_names, data)
        clients = scored_clients(data, part)
        found = refuse_trained(self.trained, data, part, allow_trained)
        return mark_trained(self.score(data, clients, part), found[clients])

    def score(self, data: ClientData, clients: Ints, part: str) -> Scores:
        """Score some clients, by position; what :meth:`evaluate` does after its checks."""
        data, rows = data.scaled(self.scaling), positions(data, clients, part)
        scored = score_shared(self.model, data, rows, self.hypotheses, self.engine)
        sizes = data.sizes(part)[clients]
        cluster = self.assign(data)[clients]
        chosen = np.repeat(cluster, sizes)
        examples = np.arange(len(rows))
        mine = Scored(scored.loss[chosen, examples], scored.correct[chosen, examples])
        extra = {"cluster": cluster} if self.q > 1 else {}
        name = str(self.algorithm["name"])
        return make_scores(name, self.model, data, clients, part, mine, extra, self.trained)

    def predict_proba(self, x: Any, cluster: int | None = None) -> npt.NDArray[np.float32]:
        """Class probabilities [n, classes]; of several hypotheses say which."""
        if self.model.kind == "regression":
            raise ConfigError("a regression model predicts numbers, not probabilities: use predict")
        return np.exp(self._apply(x, cluster))

    def predict(self, x: Any, cluster: int | None = None) -> npt.NDArray[Any]:
        """Labels (their words, if the data had words), or means for regression."""
        return decode(self.model, self._apply(x, cluster), self.label_names)

    def _apply(self, x: Any, cluster: int | None) -> npt.NDArray[np.float32]:
        if cluster is None and self.q == 1:
            cluster = 0
        if isinstance(x, str | numbers.Integral):
            raise ConfigError(
                f"a central model knows no clients: say predict(x) without {x!r}"
                + ", and cluster= if there are several hypotheses" * (self.q > 1)
            )
        cluster = checked("cluster", cluster, int | None)
        if cluster is None or not 0 <= cluster < self.q:
            raise ConfigError(
                f"there are {self.q} hypotheses, so say which one: cluster=0 to {self.q - 1} (got "
                f"{cluster}); assign(data) tells every client's"
            )
        inputs = as_inputs(self.model, x, self.feature_names, self.scaling)
        return predict_shared(self.model, self.hypotheses, cluster, inputs)

    @checks_arguments
    def save(self, directory: AnyPath, *, replace: bool = False) -> None:
        """Write the model as safetensors with a JSON manifest; :func:`sartor.load` reads it.

        Args:
            directory: where to. A central model that is there is replaced.
            replace: whether to replace clients' models, too.
        """
        refuse_loss(directory, (), replace)
        with replacing(directory, is_models) as folder:
            save_tree(folder / "central.safetensors", self.hypotheses, {})
            if self.trained is not None:
                save_tree(folder / TRAINED, {"central": self.trained._asdict()}, {})
            write_manifest(folder, self.manifest("central"))

    def manifest(self, kind: str) -> dict[str, Any]:
        """What a directory of saved models says about itself."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "model": self.model.spec,
            "central": self.algorithm,
            "q": self.q,
            "blocks": self.clusterings,
            "rule": None if self.rule is None else self.rule.to_dict(),
            "label_names": self.label_names,
            "feature_names": self.feature_names,
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
            "last": {
                name: values[-1].tolist()
                for name, values in self.history.items()
                if name != "loss" and len(values)
            },
        }


def as_inputs(
    model: Model, x: Any, names: tuple[str, ...] | None = None, scaling: Scaling | None = None
) -> Any:
    """Inputs of a prediction as arrays; refuses a shape that the model does not take.

    From a frame, or from columns by name, it takes those that the model was trained on.
    """
    if x is None and model.kind == "density":
        return None
    if isinstance(x, Mapping) and names is None and model.input_shape is None:
        return {name: _as_array(column, name) for name, column in x.items()}
    columns_of = getattr(x, "column_names", getattr(x, "columns", ()))  # Arrow, pandas, polars
    known = list(x if isinstance(x, Mapping) else columns_of)
    called = [str(name) for name in known]  # as Arrow calls them, which tables are read through
    wanted = list(names or called) if known else []
    for name in wanted:
        if called.count(name) != 1:
            what = "no column" if name not in called else "more than one column"
            raise DataError(f"x has {what} {name!r}, which the model was trained on; give one")
    try:
        if wanted:
            columns = [x[known[called.index(name)]] for name in wanted]
            x = np.stack([np.asarray(column, np.float32) for column in columns], axis=1)
        inputs = _as_array(x, "x")
    except (TypeError, ValueError, OverflowError) as error:
        what = f" ({error})" if isinstance(error, DataError) else ""
        raise DataError(
            f"x must be an array of numbers, or a frame with columns of them{what}"
        ) from error
    if model.input_shape is not None and inputs.shape[1:] != model.input_shape:
        raise DataError(
            f"x has shape {inputs.shape}, but the model takes a batch of examples of shape "
            f"{model.input_shape}: (n, {', '.join(map(str, model.input_shape))})"
        )
    if not inputs.size:
        raise DataError(f"x holds no examples (its shape is {inputs.shape}); give at least one")
    bad = ~np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
    if bad.any():
        raise DataError(
            f"x holds a NaN or infinite value in example {int(bad.argmax())}; fill it or drop it"
        )
    if scaling is None:
        return inputs
    scaled = scaling(inputs)
    far = ~np.isfinite(scaled).all(axis=1)
    if far.any():
        raise DataError(
            f"x holds a value in example {int(far.argmax())} that is too far from all training "
            "examples to be scaled; correct it, or drop it"
        )
    return scaled


def _as_array(x: Any, name: str) -> npt.NDArray[Any]:
    """Numbers in the form that models take; on the host, where no shape has to be compiled for."""
    array = as_column(x, name)
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{array.dtype} are no numbers")
    with np.errstate(over="ignore"):  # what overflows 32 bits is infinite then, and refused
        return array.astype(device_dtype(array), copy=False)


def count_inputs(inputs: Any) -> int | None:
    """How many examples there are; ``None`` where models have no inputs."""
    return None if inputs is None else len(jax.tree.leaves(inputs)[0])


def predict_shared(
    model: Model, hypotheses: Params, cluster: int, inputs: Any
) -> npt.NDArray[np.float32]:
    """What one of several hypotheses predicts."""
    examples = count_inputs(inputs)
    if examples is None:
        params = jax.tree.map(lambda a: a[cluster], hypotheses)
        return np.asarray(model.apply(params, None, None))
    jobs = Job(np.array([cluster], np.int32), None, None)
    return predict_each(Own(model), {}, hypotheses, jobs, inputs, np.zeros(examples, np.int64))


def scored_clients(data: ClientData, part: str) -> Ints:
    """Positions of the clients that have examples in a part; refuses data where none has."""
    if part not in PARTS:
        raise ConfigError(f"part must be one of {PARTS} (got {part!r})")
    sizes = data.sizes(part)
    clients = np.flatnonzero(sizes)
    if not len(clients):
        raise DataError(
            f"no client has a {part} part, so there is nothing honest to measure; make one with "
            f"data.split({part}=0.2, seed=0) before fitting"
        )
    left = len(data) - len(clients)
    if left:
        warn(
            f"{left} of {len(data)} clients have no {part} examples and are left out of the scores"
        )
    return clients


def refuse_trained(trained: Trained | None, data: ClientData, part: str, allowed: bool) -> Ints:
    """[clients] how many rows of a part were trained on; refuses them unless they are allowed."""
    if trained is None:
        return np.zeros(len(data), np.int64)
    return trained.refuse(data, (part,), "its score", allowed)


def mark_trained(scores: Scores, found: Ints) -> Scores:
    """Scores that say how many of each client's rows were trained on, if any were."""
    if not found.any():
        return scores
    return dataclasses.replace(scores, extra={**scores.extra, "trained_rows": found})


def make_scores(
    method: str,
    model: Model,
    data: ClientData,
    clients: Ints,
    part: str,
    scored: Scored,
    extra: dict[str, npt.NDArray[Any]],
    trained: Trained | None,
    baseline: Scores | None = None,
) -> Scores:
    """The score table of some clients from their examples' results.

    A client is a seen one if the model has seen it, whatever the data says.
    """
    seen = data.seen if trained is None else np.isin(data.hashes, trained.seen)
    domain = data.metadata.get("domain")
    return Scores(
        method=method,
        client=tuple(data.ids[k] for k in clients),
        size=data.sizes("train")[clients],
        test_size=data.sizes(part)[clients],
        seen=seen[clients],
        rows=part_words(data, clients, part),
        example_loss=scored.loss,
        example_correct=scored.correct if model.has_accuracy else None,
        domain=None if domain is None else tuple(str(d) for d in domain[clients]),
        extra=extra,
        baseline=baseline,
        example_range=scored.gain_range,
    )


def decode(
    model: Model, prediction: npt.NDArray[Any], label_names: tuple[str, ...] | None
) -> npt.NDArray[Any]:
    """Labels of log-probabilities, in words if there are words; means as they are.

    A class without a word, where the model has more classes than the data has words, was never
    seen. It is no answer: the most probable class that has a word is.
    """
    if model.kind == "regression":
        return prediction
    if label_names is None:
        return np.asarray(prediction.argmax(axis=-1))
    labels = prediction[..., : len(label_names)].argmax(axis=-1)
    return np.asarray(np.asarray(label_names)[labels])

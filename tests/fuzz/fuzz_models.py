"""Areas of real fits: what models predict and how they score, against a forward pass in numpy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
from fuzz_splits import contents_of
from known import Known, known
from outcomes import Case, chance, may_refuse, must_refuse, near, pick, refuses, same, sure

import sartor
from sartor import models
from sartor.data import PARTS, ClientData, from_arrays, from_frame

Rng = np.random.Generator
ROWS, CLIENTS, FEATURES = 60, 5, 3
"""One shape for all fits: programs are compiled once."""


@dataclasses.dataclass
class Fitted:
    """Models, and what they were made from."""

    table: Known
    data: ClientData
    central: Any
    personal: Any

    @property
    def regression(self) -> bool:
        """Whether the models predict numbers."""
        return self.central.model.kind == "regression"

    @property
    def rounding(self) -> float:
        """How far predictions in 32 bits may be from numpy's in 64.

        Without a scaling, logits reach the thousands, and lose three digits more.
        """
        return 5e-4 if self.central.scaling is None else 5e-6


CENTRALS = {
    "FedAvg": lambda: sartor.FedAvg(rounds=2, cohort=3),
    "Agnostic": lambda: sartor.Agnostic(rounds=2, cohort=3),
    "HypCluster": lambda: sartor.HypCluster(
        rounds=2, cohort=3, start=sartor.central.Random(), learning_rate=0.1),
}  # fmt: skip
QUICK = {"epochs": 1, "learning_rate": 0.1}
PERSONALS = {
    "Local": lambda: sartor.Local(**QUICK),
    "Finetune": lambda: sartor.Finetune(**QUICK),
    "Finetune without guard": lambda: sartor.Finetune(**QUICK, guard=False, shrink=False),
    "Dapper": lambda: sartor.Dapper(**QUICK, cover=(0.0, 0.5, 1.0), guard=False),
    "Mapper": lambda: sartor.Mapper(**QUICK, cover=(0.0, 0.5, 1.0), rounds=1, cohort=3),
}
MODELS = {
    "logistic": ("words", lambda: models.logistic(FEATURES, 5)),
    "logistic of numbers": ("numbers", lambda: models.logistic(FEATURES, 3)),
    "as it is": ("numbers", lambda: models.logistic(FEATURES, 3, scale=False)),
    "mlp": ("numbers", lambda: models.mlp(FEATURES, (4,), classes=3)),
    "linear": ("floats", lambda: models.linear(FEATURES)),
}
COMBINED = (
    ("logistic", "FedAvg", "Finetune"), ("logistic", "HypCluster", "Finetune"),
    ("logistic", "FedAvg", "Mapper"), ("logistic of numbers", "Agnostic", "Local"),
    ("logistic of numbers", "FedAvg", "Dapper"), ("as it is", "FedAvg", "Finetune without guard"),
    ("mlp", "FedAvg", "Finetune"), ("mlp", "HypCluster", "Local"), ("linear", "FedAvg", "Finetune"),
    ("linear", "HypCluster", "Mapper"), ("linear", "FedAvg", "Dapper"),
)  # fmt: skip
"""What is fitted: each of them takes seconds to compile, once, and then moments."""


def as_data(table: Known, named: bool) -> ClientData:
    """The clients of a table, with named columns or without."""
    if not named:
        return from_arrays(table.x, table.y, table.who, table.domain)
    columns = {f"f{j}": table.x[:, j] for j in range(FEATURES)}
    frame = pa.table({**columns, "who": table.ids, "y": table.y, "d": table.domain})
    return from_frame(frame, client="who", label="y", domain="d")


def fitted(rng: Rng, directory: Path | None = None) -> Fitted:
    """Models of a random table, trained for moments."""
    model, central_name, personal_name = pick(rng, COMBINED)
    kind, make = MODELS[model]
    table = known(rng, rows=ROWS, clients=CLIENTS, features=FEATURES, kind=kind)
    table.x += np.arange(ROWS)[:, None] / 1024  # rows differ
    how = {"validation": 0.2, "test": 0.25, "unseen": pick(rng, [0.0, 0.2])}
    data = as_data(table, named=chance(rng, 0.5)).split(**how, seed=int(rng.integers(99)))
    seed = int(rng.integers(99))
    central = CENTRALS[central_name]().fit(make(), data, seed=seed, progress=False)
    personal = PERSONALS[personal_name]().fit(
        central, data, seed=seed, directory=directory, progress=False
    )
    return Fitted(table, data, central, personal)


def forward(params: Any, scaling: Any, x: np.ndarray, regression: bool) -> np.ndarray:
    """Probabilities or means of a perceptron, in plain numpy."""
    z = np.asarray(x, np.float32).astype(np.float64)
    if scaling is not None:
        z = z - scaling.shift
        z = z * scaling.matrix if scaling.matrix.ndim == 1 else z @ scaling.matrix
    layers = sorted(params)
    for layer in layers:
        z = z @ np.asarray(params[layer]["w"], np.float64) + np.asarray(params[layer]["b"])
        z = np.maximum(z, 0) if layer != layers[-1] else z
    if regression:
        return z[:, 0]
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def hypothesis(central: Any, cluster: int) -> Any:
    """One of the central hypotheses."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[cluster], central.hypotheses)


def expected(made: Fitted, client: str, x: np.ndarray) -> np.ndarray:
    """What a client's model must predict, from its parameters."""
    personal, scaling = made.personal, made.personal.scaling
    decided = personal.clients.get(client)
    if decided is None:  # nobody's client: the hypothesis that most clients belong to
        belongs = [one["cluster"] for one in personal.clients.values()]
        usual = max(dict.fromkeys(belongs), key=belongs.count)
        return forward(hypothesis(made.central, usual), scaling, x, made.regression)
    if decided.get("kept"):
        params = hypothesis(made.central, decided["cluster"])
        return forward(params, scaling, x, made.regression)
    own = forward(personal.params(client), scaling, x, made.regression)
    if personal.algorithm["name"] != "Mapper":
        return own
    mix, params = decided["lambda"], hypothesis(personal.central, decided["cluster"])
    return mix * own + (1 - mix) * forward(params, scaling, x, made.regression)


def said(model: Any, *given: Any, **how: Any) -> np.ndarray:
    """Probabilities, or means where there are none."""
    ask = model.predict if model.model.kind == "regression" else model.predict_proba
    return ask(*given, **how)


def predict(rng: Rng, scratch: Path) -> None:
    """Predictions are those of the saved parameters, in whatever way they are asked for."""
    made = fitted(rng)
    count = pick(rng, [1, 7, 20])
    x = np.round(rng.normal(size=(count, FEATURES)) * 64) / 8
    asked = [pick(rng, [*made.data.ids, "nobody", 12345]) for _ in range(count)]
    if chance(rng, 0.2):
        return odd_inputs(rng, made, x)
    check_scaling(made)
    for cluster in range(made.central.q):
        wanted = forward(hypothesis(made.central, cluster), made.central.scaling, x,
                         made.regression)  # fmt: skip
        near("the central model", said(made.central, x, cluster), wanted, made.rounding)
    one = pick(rng, [*made.data.ids, "nobody"])
    whole = said(made.personal, one, x)
    near(f"the model of {one!r}", whole, expected(made, one, x), made.rounding)
    order = rng.permutation(count)
    near("in another order", said(made.personal, one, x[order]), whole[order], 1e-6)
    singly = [said(made.personal, one, x[i : i + 1]) for i in range(count)]
    near("one by one", np.concatenate(singly), whole, 1e-6)
    ways = [asked, np.array(asked, object), pd.Series(asked, dtype=object)]
    each = said(made.personal, pick(rng, ways), x)
    for i, client in enumerate(asked):
        wanted = expected(made, str(client), x[i : i + 1])
        near(f"row {i} for {client!r}", each[i : i + 1], wanted, made.rounding)
    if made.data.feature_names:
        columns = {f"f{j}": x[:, j] for j in rng.permutation(FEATURES)}
        frame = pd.DataFrame({"other": ["a"] * count, **columns})
        same("from a frame", said(made.personal, one, frame), whole)
        if count > 1:
            with refuses("ids in another order than the rows"):
                said(made.personal, pd.Series(asked, dtype=object)[::-1], frame)
    labels = made.personal.predict(one, x)
    if not made.regression:
        names, best = made.table.label_names, whole
        best = best[:, : len(names)].argmax(axis=1) if names else best.argmax(axis=1)
        same("labels", labels, np.array(names)[best] if names else best)
    with refuses("a client without a model, strictly"):
        made.personal.predict("nobody", x, strict=True)
    made.personal.save(scratch / "models")
    again = sartor.load(scratch / "models")
    same("after loading", said(again, asked, x), each)
    same("names after loading", (again.label_names, again.feature_names),
         (made.personal.label_names, made.personal.feature_names))  # fmt: skip


def check_scaling(made: Fitted) -> None:
    """Features are centred and scaled by the training rows of the seen clients alone."""
    scaling, data = made.central.scaling, made.data
    if scaling is None:
        return
    seen = [client for client, is_seen in zip(data.ids, data.seen, strict=True) if is_seen]
    x = np.concatenate([data.client(client)["x"] for client in seen]).astype(np.float64)
    near("the mean of features", scaling.shift, x.mean(axis=0))
    if scaling.matrix.ndim == 1:
        scaled = (x - scaling.shift) * scaling.matrix
        near("their deviations", scaled.std(axis=0), np.ones(FEATURES), 1e-4)
        return
    scaled = (x - scaling.shift) @ scaling.matrix
    near("their covariance", scaled.T @ scaled / len(x), np.eye(FEATURES), 1e-4)


def odd_inputs(rng: Rng, made: Fitted, x: np.ndarray) -> None:
    """Inputs that are none are refused, and so are clients that are none."""
    client = made.data.ids[0]
    odd_x: list[Any] = [
        None, "abc", x[0], x[:, :2], x[:0], np.full_like(x, np.nan), x.astype(str), [[1.0], [1, 2]],
        {}, object(), x[..., None], 1e39 * np.ones_like(x), pd.DataFrame({"f0": [1.0]}),
        {"f0": [1]}, np.full_like(x, np.inf), 3, b"x", [x.tolist()],
    ]  # fmt: skip
    odd_clients: list[Any] = [
        None, [client] * (len(x) + 1), [], {}, ("a", "b"), np.zeros((len(x), 2)), 1j,
        [["a"]] * len(x), float("nan"), pd.DataFrame({"a": [1]}), [None] * len(x), object(),
    ]  # fmt: skip
    if chance(rng, 0.5):
        bad = pick(rng, odd_x)
        with must_refuse(f"inputs {bad!r:.100}"):
            made.personal.predict(client, bad)
    bad = pick(rng, odd_clients)
    with must_refuse(f"client {bad!r:.100}"):
        made.personal.predict(bad, x)


def scores(rng: Rng, scratch: Path) -> None:
    """Scores are numpy's of the predictions on test rows, and rows that were trained on refused."""
    directory = scratch / "models" if chance(rng, 0.2) else None
    made = fitted(rng, directory)
    data, personal = made.data, made.personal
    if chance(rng, 0.3):
        personal.save(scratch / "models")
        personal = sartor.load(scratch / "models")
    found = personal.evaluate(data)
    tested = [c for c, n in zip(data.ids, data.sizes("test"), strict=True) if n]
    same("clients", found.client, tuple(tested))
    losses, right = [], []
    for client in tested:
        rows = data.client(client, "test")
        predicted, y = expected(made, client, rows["x"]), rows["y"]
        if made.regression:
            losses += np.square(predicted - y).tolist()
            continue
        with np.errstate(divide="ignore"):
            losses += (-np.log(predicted[np.arange(len(y)), y])).tolist()
        right += (predicted.argmax(axis=1) == y).tolist()
    most = np.inf if made.regression else 80.0  # numpy's probabilities end at 0
    near("losses", np.minimum(found.example_loss, most), np.minimum(losses, most), 1e-3)
    parts = np.split(found.example_loss.astype(np.float64), np.cumsum(found.test_size)[:-1])
    near("means", found.loss, [part.mean() for part in parts])
    if not made.regression:
        sure(np.mean(found.example_correct != right) < 0.05, "accuracy")  # ties may round
    seen = dict(zip(data.ids, data.seen, strict=True))
    same("who is seen", found.seen.tolist(), [bool(seen[client]) for client in tested])
    alone = made.central.evaluate(data)
    near("the baseline", found.baseline.example_loss, alone.example_loss, 1e-5)
    other_split(rng, made)
    other_order(rng, made, found)


def other_order(rng: Rng, made: Fitted, found: Any) -> None:
    """The order of clients in the table does not matter."""
    whose, order = np.array(made.table.ids), []
    for client in rng.permutation(made.data.ids):
        order += np.flatnonzero(whose == client).tolist()
    again = as_data(made.table.take(order), made.data.feature_names is not None)
    parts = [made.data.client(client, part)["x"] for client in again.ids for part in PARTS]
    bounds = np.cumsum([0, *map(len, parts)])
    there = {tuple(row): i for i, row in enumerate(again.columns["x"].tolist())}  # they differ
    rows = np.array([there[tuple(x)] for x in np.concatenate(parts).tolist()])
    moved = dataclasses.replace(
        again, rows=rows, seen=made.data.seen[[made.data.position(c) for c in again.ids]],
        bounds=np.stack([bounds[k : k + 4] for k in range(0, len(bounds) - 1, 3)]),
    )  # fmt: skip
    scored = made.personal.evaluate(moved)
    place = [scored.client.index(client) for client in found.client]
    near("in another order", scored.loss[place], found.loss, 1e-5)


def other_split(rng: Rng, made: Fitted) -> None:
    """On another split, rows that were trained on are refused, or counted."""
    whole = made.data.merge_parts()
    other = whole.split(test=0.3, seed=int(rng.integers(99)))
    used = contents_of(made.data, "train")
    if made.personal.algorithm["guard"] is not False or len(made.personal.lambda_):
        used += contents_of(made.data, "validation")  # by which something was chosen
    again = dict.fromkeys(other.ids, 0)
    for row in contents_of(other, "test"):
        again[row[0]] += row in used
    if any(again.values()):
        with refuses("test rows that were trained on"):
            made.personal.evaluate(other)
    marked = made.personal.evaluate(other, allow_trained=True)
    counts = marked.extra.get("trained_rows", np.zeros(len(marked), np.int64))
    same("rows that were trained on", counts.tolist(), [again[c] for c in marked.client])


def own(scale: float = 1.0, **changes: Any) -> Any:
    """A model of one's own: that of models.logistic(3, 3, scale=False), but for the changes."""

    def init(key: jax.Array) -> Any:
        return models.logistic(FEATURES, 3, scale=False).init(key)

    def apply(params: Any, x: jax.Array, key: Any) -> jax.Array:
        return jax.nn.log_softmax(scale * (x @ params["dense_1"]["w"]) + params["dense_1"]["b"])

    whole = {"init": init, "apply": apply, "classes": 3, "input_shape": (FEATURES,), **changes}
    return models.Model(**whole)


def fails(*_: Any) -> Any:
    raise KeyError("a model that fails")


BROKEN: dict[str, Any] = {
    "an init that fails": lambda: own(init=fails),
    "an apply that fails": lambda: own(apply=fails),
    "another shape": lambda: own(apply=lambda p, x, key: jnp.zeros((len(x), 2)) - np.log(2)),
    "one row": lambda: own(apply=lambda p, x, key: jnp.full(3, -np.log(3))),
    "no probabilities": lambda: own(apply=lambda p, x, key: x @ p["dense_1"]["w"] + 5),
    "NaN": lambda: own(apply=lambda p, x, key: x @ p["dense_1"]["w"] * jnp.nan),
    "texts": lambda: own(init=lambda key: {"a": "b"}),
    "nothing": lambda: own(apply=lambda p, x, key: None),
    "a number": lambda: own(apply=lambda p, x, key: 1.0),
    "too few classes": lambda: own(classes=2),
    "no parameters": lambda: own(init=lambda key: {}),
    "whole numbers": lambda: own(init=lambda key: {"dense_1": {"w": jnp.ones((3, 3), jnp.int32),
                                                                "b": jnp.zeros(3, jnp.int32)}}),
    "another input": lambda: own(input_shape=(4,)),
    "numpy inside": lambda: own(apply=lambda p, x, key: np.log(np.asarray(x) @ np.ones((3, 3)))),
    "two arguments": lambda: own(apply=lambda p, x: x),
    "a kind without labels": lambda: own(kind="density"),
    "a loss of the wrong shape": lambda: own(training_loss=lambda p, y: p.mean()),
    "a loss that fails": lambda: own(training_loss=fails),
    "a loss of NaN": lambda: own(training_loss=lambda p, y: p[:, 0] * jnp.nan),
    "branches on values": lambda: own(apply=lambda p, x, key: x if x.sum() > 0 else -x),
}  # fmt: skip


def own_models(rng: Rng, scratch: Path) -> None:
    """A model of one's own does what the ready one does, and a broken one is refused."""
    table = known(rng, rows=ROWS, clients=CLIENTS, features=FEATURES, kind="numbers")
    data = from_arrays(table.x, table.y, table.who).split(test=0.25)
    fedavg = sartor.FedAvg(rounds=1, cohort=3, learning_rate=0.05)
    if chance(rng, 0.6):
        name = pick(rng, BROKEN)
        with must_refuse(name):
            central = fedavg.fit(BROKEN[name](), data, progress=False)
            sartor.Finetune(**QUICK, guard=False).fit(central, data, progress=False)
    ready = fedavg.fit(models.logistic(FEATURES, 3, scale=False), data, progress=False)
    mine = own(scale=1.0)
    central = fedavg.fit(mine, data, progress=False)
    x = table.x[:7]
    near("the ready model's predictions", central.predict_proba(x), ready.predict_proba(x), 1e-5)
    near("its loss", central.evaluate(data).loss, ready.evaluate(data).loss, 1e-4)
    central.save(scratch / "mine")
    with refuses("own functions out of a file"):
        sartor.load(scratch / "mine")
    again = sartor.load(scratch / "mine", model=mine)
    same("after loading", again.predict_proba(x), central.predict_proba(x))
    with refuses("another model for these parameters"):
        sartor.load(scratch / "mine", model=models.logistic(FEATURES, 4))
    with may_refuse():
        start = pick(rng, [ready, central])
        fedavg.fit(mine, data, start=start, progress=False)


AREAS: dict[str, tuple[int, Case]] = {
    "predict": (500, predict), "scores": (400, scores), "models": (300, own_models),
}  # fmt: skip

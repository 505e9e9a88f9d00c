"""The names behind class and feature numbers, which a model and its data have to share."""

import dataclasses
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from sartor.checking import checks_arguments
from sartor.data.dataset import ClientData
from sartor.data.trained import Contents
from sartor.errors import DataError

Names = tuple[str, ...] | None


def check_names(
    labels: Names, features: Names, data: ClientData, whose: str = "the model was trained on"
) -> None:
    """Refuse data that numbers its labels or features in another way than a model's data.

    Args:
        labels: the word of each class there, if labels were words.
        features: the name of each feature there; None accepts any.
        data: the data to check.
        whose: how an error message begins; it says where the names come from.
    """
    if features is not None and data.feature_names not in (None, features):
        raise DataError(
            f"{whose} other features, or in another order: {_first(features, data.feature_names)}; "
            "name the columns in the same order: features=[...]"
        )
    if data.label_names != labels:
        raise DataError(
            f"{whose} other labels: {_first(labels, data.label_names)}, so class numbers do not "
            "mean the same; number the labels in the same way, sartor.data.with_labels(data, "
            "central.label_names) for a fitted central (or personal) model, or build both data "
            "sets from one table"
        )


@checks_arguments
def with_labels(data: ClientData, label_names: Sequence[str]) -> ClientData:
    """The same clients, whose labels are numbered in the order of these words.

    Data of new clients may lack some words, and numbers the others in its own way.

    >>> from sartor.data import from_arrays
    >>> late = from_arrays(None, ["mid", "high"], ["a", "a"])
    >>> with_labels(late, ["low", "mid", "high"]).client("a")["y"].tolist()
    [1, 2]
    """
    if data.label_names is None:
        raise DataError("the labels of this data are numbers, and no words: they cannot be renamed")
    place = {word: number for number, word in enumerate(label_names)}
    y = data.columns["y"]
    used = [data.label_names[number] for number in np.unique(y[data.rows])]
    unknown = [word for word in used if word not in place]
    if unknown or len(place) < len(label_names):
        what = f"the label {unknown[0]!r} is not among" if unknown else "a label appears twice in"
        raise DataError(f"{what} label_names={list(label_names)}; give every word once")
    numbers = np.array([place.get(word, 0) for word in data.label_names], np.int32)
    columns = {**data.columns, "y": numbers[y]}
    return dataclasses.replace(
        data, columns=columns, label_names=tuple(label_names), contents=Contents()
    )


def refuse_words(data: ClientData) -> None:
    """Refuse labels that were words: a regression would take their numbers for values."""
    if data.label_names is not None:
        raise DataError(
            f"labels are words ({', '.join(data.label_names[:3])}, ...), but a regression model "
            "needs numbers; use a classifier such as 'logistic', or make the labels numbers"
        )


def _first(there: Names, here: Names) -> str:
    """The first name that differs; all of them may be very many.

    >>> _first(("a", "b"), ("a", "c", "b"))
    "number 1 is 'b' there and 'c' here"
    >>> _first(("a", "b"), None)
    "number 0 is 'a' there and unnamed here"
    """
    pairs = enumerate(zip_longest(there or (), here or ()))
    place, names = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
    one, other = ("unnamed" if name is None else repr(name) for name in names)
    return f"number {place} is {one} there and {other} here"

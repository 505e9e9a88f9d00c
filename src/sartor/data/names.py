"""What numbers stand for: the words of classes and of features, which data sets have to share."""

from __future__ import annotations

from sartor.data.dataset import ClientData
from sartor.errors import DataError

Names = tuple[str, ...] | None


def check_names(
    labels: Names, features: Names, data: ClientData, whose: str = "the model was trained on"
) -> None:
    """Refuse data whose labels or features are numbered otherwise than those of a model's data.

    Args:
        labels: the word of each class there, if labels were words.
        features: the column that each feature was; any will do if they have no names.
        data: what has to be numbered in the same way.
        whose: how an error message says where the names are from.
    """
    if features is not None and data.feature_names not in (None, features):
        raise DataError(
            f"{whose} other features, or in another order: {_first(features, data.feature_names)}; "
            "name the columns in the same order: features=[...]"
        )
    if data.label_names != labels:
        raise DataError(
            f"{whose} other labels: {_first(labels, data.label_names)}, so class numbers do not "
            "mean the same; build both data sets from one table, or give the labels as integers"
        )


def refuse_words(data: ClientData) -> None:
    """Refuse labels that were words where their numbers would be taken for values."""
    if data.label_names is not None:
        raise DataError(
            f"labels are words ({', '.join(data.label_names[:3])}, ...), of which a regression "
            "model would take the numbers for values; use a classifier such as 'logistic', or "
            "make the labels numbers"
        )


def _first(there: Names, here: Names) -> str:
    """The first name that differs; all of them may be very many.

    >>> _first(("a", "b"), ("a", "c", "b"))
    "number 1 is 'b' there and 'c' here (2 and 3 in all)"
    >>> _first(("a", "b"), None)
    "'a', 'b' there, and numbers here"
    """
    if there is None or here is None:
        said = [
            "numbers" if side is None else ", ".join(map(repr, side[:3])) + " ..." * (len(side) > 3)
            for side in (there, here)
        ]
        return f"{said[0]} there, and {said[1]} here"
    pairs = zip((*there, None), (*here, None), strict=False)
    place, (one, other) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
    said = ["nothing" if name is None else repr(name) for name in (one, other)]
    counts = f"({len(there)} and {len(here)} in all)"
    return f"number {place} is {said[0]} there and {said[1]} here {counts}"

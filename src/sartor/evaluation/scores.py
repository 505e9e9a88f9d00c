"""The score table: what one method's models did on every client's test examples.

Per-example results go in; per-client means, an Arrow table and an honest summary come out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sartor.checking import checked, is_list, shown
from sartor.errors import DataError
from sartor.evaluation.statistics import Metric
from sartor.evaluation.summary import Summary, summarise
from sartor.types import Bools, Floats, Ints

_COLUMNS = {"client", "size", "test_size", "seen", "domain", "loss", "accuracy"}
_COLUMNS |= {"central_loss", "central_accuracy"}
_KINDS: tuple[tuple[str, Any, Any], ...] = (
    ("size", np.int64, None), ("test_size", np.int64, None), ("seen", np.bool_, None),
    ("example_loss", np.float64, np.float32), ("example_correct", np.float64, np.bool_),
    ("example_range", np.float64, np.float32), ("rows", np.uint64, None),
)  # fmt: skip
"""The columns of numbers: their type, and another one that may stay."""

_OPTIONAL = ("example_correct", "example_range", "rows")

Examples = Floats | npt.NDArray[np.float32] | Bools


@dataclass(frozen=True, eq=False)
class Scores:
    """One method's results, one row per client, on the examples of the client's test part.

    Attributes:
        method: name of the method, as it should read in tables.
        client: client ids.
        size: training examples m_k of each client.
        test_size: test examples of each client, at least one.
        seen: whether the client took part in central training.
        example_loss: plain loss of every test example, client after client. It may be infinite
            (a model may give a label no probability at all) but not NaN.
        example_correct: in the same order, whether the prediction was right (or what fraction of
            it); None where accuracy has no meaning, as in regression.
        domain: the client's domain, if clients come from several.
        extra: more columns, one value per client. "mixture_loss" (the client's model on
            everybody's data) and "central_mixture_loss" are the ones that the summary knows.
        baseline: the central model on the same examples in the same order.
        rows: a word for the test rows of each client, which tells whether two methods were scored
            on the same ones; unknown if not given.
        example_range: [examples, 2] the least and the most by which the loss could have been below
            the baseline's, over all labels that the example might have had; None if unknown. It
            decides who has gained or lost beyond chance (see `betting`).

    >>> scores = Scores("Local", client=("a", "b"), size=[10, 20], test_size=[2, 1],
    ...                 seen=[True, False], example_loss=[1.0, 3.0, 5.0],
    ...                 example_correct=[True, False, True])
    >>> scores.loss.tolist(), scores.accuracy.tolist()
    ([2.0, 5.0], [0.5, 1.0])
    >>> scores
    Scores('Local': 2 clients, 3 test examples)
    """

    method: str
    client: tuple[str, ...]
    size: Ints
    test_size: Ints
    seen: Bools
    example_loss: Examples
    example_correct: Examples | None = None
    domain: tuple[str, ...] | None = None
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    baseline: Scores | None = None
    rows: npt.NDArray[np.uint64] | None = None
    example_range: Examples | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        checked("method", self.method, str)
        checked("extra", self.extra, Mapping)
        checked("baseline", self.baseline, Scores | None)
        for name in ("client", "domain"):
            texts = getattr(self, name)
            if not is_list(texts) and (texts is not None or name == "client"):
                raise DataError(f"{name} must hold one text for each client (got {shown(texts)})")
            several = None if texts is None else checked(name, list(texts), Sequence[str | float])
            put(self, name, several and tuple(map(str, several)))
        for name, kind, keep in _KINDS:
            if name not in _OPTIONAL or getattr(self, name) is not None:
                put(self, name, _frozen(name, getattr(self, name), kind, keep))
        put(
            self, "extra", {str(name): _frozen(name, column) for name, column in self.extra.items()}
        )
        self._check_clients()
        self._check_examples()
        self._check_baseline()

    def _check_clients(self) -> None:
        if len(set(self.client)) != len(self):
            twice = next(c for c, rows in Counter(self.client).items() if rows > 1)
            raise DataError(f"client {twice!r} has two rows: give every client one")
        for name in sorted(_COLUMNS & set(self.extra)):
            raise DataError(f"extra column {name!r} is the name of a column of Scores: rename it")
        columns = {"size": self.size, "test_size": self.test_size, "seen": self.seen, **self.extra}
        if self.domain is not None:
            columns["domain"] = np.asarray(self.domain)
        if self.rows is not None:
            columns["rows"] = self.rows
        for name, column in columns.items():
            if column.shape != (len(self),):
                raise DataError(
                    f"{name} must hold {len(self)} values, one per client (got {column.shape})"
                )
        for k in np.flatnonzero((self.test_size < 1) | (self.size < 0))[:1]:
            raise DataError(
                f"client {self.client[k]!r} has size {self.size[k]} and test_size "
                f"{self.test_size[k]}: leave out clients without test examples"
            )

    def _check_examples(self) -> None:
        n = int(self.test_size.sum())
        for name, values in (("loss", self.example_loss), ("correct", self.example_correct)):
            if values is None:
                continue
            if values.shape != (n,):
                raise DataError(
                    f"example_{name} must hold {n} values, the sum of test_size "
                    f"(got shape {values.shape})"
                )
            wrong = np.isnan(values) if name == "loss" else ~((values >= 0) & (values <= 1))
            for row in np.flatnonzero(wrong)[:1]:
                k = np.searchsorted(np.cumsum(self.test_size), row, side="right")
                rule = "must not be NaN" if name == "loss" else "must lie in [0, 1]"
                raise DataError(
                    f"client {self.client[k]!r} has example_{name} {values[row]}, which {rule}: "
                    "its model has probably diverged; train it again or leave the client out"
                )

        ranges = self.example_range
        if ranges is not None and not (
            ranges.shape == (n, 2) and (ranges[:, 0] <= ranges[:, 1]).all()
        ):
            raise DataError(
                f"example_range must hold a least and a most for each of {n} test examples, not "
                f"NaN and in this order (got shape {ranges.shape}); leave it out if unknown"
            )

    def _check_baseline(self) -> None:
        base = self.baseline
        if base is None:
            return
        if base.client != self.client or not np.array_equal(base.test_size, self.test_size):
            raise DataError(
                f"the baseline {base.method!r} and {self.method!r} differ in clients, their order "
                "or their test_size: score both on the same examples in the same order"
            )
        if (base.example_correct is None) != (self.example_correct is None):
            raise DataError("example_correct must be given for method and baseline, or for neither")

    def __len__(self) -> int:
        return len(self.client)

    def __repr__(self) -> str:
        clients, examples = len(self), int(self.test_size.sum())
        return f"Scores({self.method!r}: {clients:,} clients, {examples:,} test examples)"

    def examples(self, metric: Metric) -> Examples:
        """Per-example values of a metric, client after client."""
        if checked("metric", metric, Metric) == "loss":
            return self.example_loss
        if self.example_correct is None:
            raise DataError(f"{self.method!r} has no accuracy: pass example_correct, or use 'loss'")
        return self.example_correct

    def sum_by_client(self, values: npt.ArrayLike) -> Floats:
        """Add per-example values up, client by client."""
        starts = np.cumsum(self.test_size) - self.test_size
        examples = _frozen("values", values, np.float64)
        if examples.shape != (total := int(self.test_size.sum()),):
            raise DataError(f"values must hold {total} numbers (got {shown(values)})")
        return np.add.reduceat(examples, starts, dtype=np.float64)

    def totals(self, metric: Metric) -> Floats:
        """Each client's sum of a metric over its test examples."""
        return self.sum_by_client(self.examples(metric))

    @cached_property
    def loss(self) -> Floats:
        """Mean loss of each client."""
        return self.totals("loss") / self.test_size

    @cached_property
    def accuracy(self) -> Floats | None:
        """Share of each client's test examples that are right; None where it has no meaning."""
        return None if self.example_correct is None else self.totals("accuracy") / self.test_size

    def table(self) -> pa.Table:
        """One row per client, as an Arrow table (what `per_client.parquet` holds).

        >>> Scores("Local", ("a",), [10], [2], [True], [1.0, 3.0]).table().column_names
        ['client', 'size', 'test_size', 'seen', 'loss']
        """
        columns: dict[str, Any] = {
            "client": pa.array(self.client, pa.string()),
            "size": self.size,
            "test_size": self.test_size,
            "seen": self.seen,
        }
        if self.domain is not None:
            columns["domain"] = pa.array(self.domain, pa.string())
        for prefix, scores in (("", self), ("central_", self.baseline)):
            if scores is not None:
                columns[prefix + "loss"] = scores.loss
                if scores.accuracy is not None:
                    columns[prefix + "accuracy"] = scores.accuracy
        return pa.table(columns | dict(self.extra))

    def select(self, mask: Sequence[bool] | Bools) -> Scores:
        """The same scores with only the clients where mask is True, in the baseline as well.

        >>> scores = Scores("Local", ("a", "b"), [9, 9], [2, 1], [True, False], [1.0, 3.0, 5.0])
        >>> scores.select([False, True]).example_loss.tolist()
        [5.0]
        """
        keep = _frozen("mask", mask)
        if keep.dtype != np.bool_ or keep.shape != (len(self),):
            raise DataError(
                f"mask must hold {len(self)} booleans, one per client "
                f"(got {keep.dtype}, shape {keep.shape})"
            )
        rows = np.repeat(keep, self.test_size)
        correct, ranges = self.example_correct, self.example_range
        return replace(
            self,
            client=tuple(c for c, kept in zip(self.client, keep, strict=True) if kept),
            size=self.size[keep],
            test_size=self.test_size[keep],
            seen=self.seen[keep],
            example_loss=self.example_loss[rows],
            example_correct=None if correct is None else correct[rows],
            domain=None if self.domain is None else tuple(np.asarray(self.domain)[keep].tolist()),
            extra={name: column[keep] for name, column in self.extra.items()},
            baseline=None if self.baseline is None else self.baseline.select(keep),
            rows=None if self.rows is None else self.rows[keep],
            example_range=None if ranges is None else ranges[rows],
        )

    def seen_only(self) -> Scores:
        """The clients that took part in central training."""
        return self.select(self.seen)

    def unseen_only(self) -> Scores:
        """The clients that central training never saw."""
        return self.select(~self.seen)

    def summary(self) -> Summary:
        """The distribution over clients in a few numbers; `print` shows it as a table."""
        return summarise(self)


def _frozen(name: str, values: Any, dtype: Any = None, keep: Any = None) -> npt.NDArray[Any]:
    """A read-only view (the caller's own array stays writable), of dtype unless it is `keep`."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} must hold numbers (got {shown(values)})") from error
    whole = array.dtype.kind != "f" or bool((array == array.round()).all())
    if dtype and (array.dtype.kind not in "biuf" or (dtype == np.int64 and not whole)):
        kind = "whole numbers" if dtype == np.int64 else "numbers"
        raise DataError(f"{name} must hold {kind} (got {shown(values)})")
    if dtype is not None and array.dtype != keep:
        array = array.astype(dtype, copy=False)
    array = array.view()
    array.setflags(write=False)
    return array

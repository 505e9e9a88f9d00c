"""Estimators of scikit-learn's kind that give every client a model of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from sartor.checking import AnyPath, shown
from sartor.data import encoding
from sartor.errors import ConfigError, DataError
from sartor.estimators import checks, choosing, evaluating, reporting, store
from sartor.estimators.candidates import GLOBAL, MIXTURE
from sartor.estimators.folds import make_folds
from sartor.estimators.frames import Table, read
from sartor.estimators.intervals import Intervals, check_level
from sartor.estimators.listing import effects_of
from sartor.estimators.makers import candidates_for, makers_for
from sartor.estimators.models import Models, Words
from sartor.estimators.rows import Rows
from sartor.estimators.seen import Seen
from sartor.estimators.tasks import Task
from sartor.estimators.trying import Trial, Tried
from sartor.estimators.views import View
from sartor.evaluation import Scores
from sartor.evaluation.measures import Measure
from sartor.progress import Bar
from sartor.types import Floats


class _Personal(BaseEstimator):
    """What the classifier and the regressor share."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        client: str | int | None = None,
        second: str | int | None = None,
        approach: str = "auto",
        time: str | int | None = None,
        groups: str | int | None = None,
        columns: Literal["auto"] | None = "auto",
        folds: int = 5,
        budget: float = 300.0,
        random_state: int = 0,
        progress: bool | None = False,
    ) -> None:
        self.estimator = estimator
        self.client = client
        self.second = second
        self.approach = approach
        self.time = time
        self.groups = groups
        self.columns = columns
        self.folds = folds
        self.budget = budget
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any, client: Any = None, sample_weight: Any = None) -> Any:
        """Fit the models of all clients.

        Args:
            X: a frame with the client column, or an array.
            y: the labels.
            client: the client of each row, if it is no column of ``X``.
            sample_weight: how much each row counts.
        """
        checks.check_settings(self)
        seed = checks.seed_of(self.random_state)
        table = read(self, X, client, fitting=True)
        checks.refuse_label_among(table, y)
        table, y, weight = checks.with_weight(table, y, sample_weight)
        labels, task = self._labels(y)
        self._check(table, labels)
        view = View.learn(table, self.estimator, self.columns)
        checks.refuse_nothing(view)
        rows = view.rows(table, table.client, labels, weight, table.second)
        folds = make_folds(rows.owner, min(self.folds, len(rows)), seed, table.groups, table.time)
        checks.refuse_one_fold(folds, self)
        about = (task, view, rows, self.estimator, len(table.ids), seed)
        candidates, clients = candidates_for(self.approach, *about), max(len(table.ids), 1)
        chooses = self.approach == "auto" and len(candidates) > 1
        budget = self.budget if chooses else np.inf
        size = np.bincount(rows.owner[rows.owner >= 0], minlength=clients)
        with Bar("candidates", len(candidates) + chooses, self.progress) as bar:
            made = 0

            def done(piece: str) -> None:
                nonlocal made
                made += piece in candidates or piece == MIXTURE
                bar.update(made, piece)

            trial = Trial(task, rows, folds, clients, makers_for(*about), budget, done)
            tried = trial.run(candidates, mixes=chooses)
            names = np.full(clients, list(candidates)[-1])
            decision: choosing.Decision | None = None
            if chooses:
                decision = choosing.choose(tried, rows, folds, size)
                names = decision.name
            of = tried.candidates(candidates)
            used = [GLOBAL, *names.tolist()]
            used += [part for name in dict.fromkeys(used) for part in of[name].parts]
            kept = {name: of[name] for name in dict.fromkeys(used)}
            added = trial.added(kept)
        self.models_ = Models(
            task, view, {name: k for k, name in enumerate(table.ids)}, size, names, kept,
            {c.base: tried.central[c.base].fitted for c in kept.values()}, added,
            second={name: k for k, name in enumerate(table.levels)},
            intervals=self._intervals(tried, rows, names), seen=Seen.of(rows),
        )  # fmt: skip
        self.tried_: Tried | None = tried
        self.decision_ = decision
        self._range, self._seed = (float(labels.min()), float(labels.max())), seed
        return self

    @property
    def clients_(self) -> Any:
        """What was decided for each client, as an Arrow table."""
        models, decision = self.models_, self.decision_
        ids, which = list(models.ids), np.array([*models.ids.values()], np.int64)
        columns: dict[str, Any] = {"client": ids, "rows": models.rows[which]}
        columns["approach"] = models.names[which]
        columns["lambda"] = [models.candidates[name].personal for name in models.names[which]]
        if decision is not None:
            place = [list(decision.gain).index(name) for name in models.names[which]]
            tried = which < len(decision.loss)  # later clients were not
            for column, of in (("expected_gain", decision.gain), ("deviation", decision.deviation)):
                values = np.stack(list(of.values()))[place, np.where(tried, which, 0)]
                columns[column] = np.where(tried, values, np.nan)
        columns["note"] = pa.array([models.note(k) for k in which], pa.string())
        return pa.table(columns)

    def update(self, X: Any, y: Any, client: Any = None, sample_weight: Any = None) -> Any:
        """Learn from new rows of some clients, who may be new; all others stay as they are.

        The central models stay as they are, too. For most clients this is what a fit to all rows
        would have found. Fit again when there are many new rows.
        """
        check_is_fitted(self)
        table, y, weight = checks.with_weight(self._read(X, client), y, sample_weight)
        labels = self._known_labels(y)
        self.models_ = self.models_.updated(table, labels, weight)
        return self

    def drop(self, client: str | int) -> Any:
        """Forget a client: what was learned of it is removed, and it gets the global model."""
        check_is_fitted(self)
        if isinstance(client, list | tuple | set | dict):
            raise ConfigError(f"client={shown(client)}: drop forgets one client; call it for each")
        self.models_ = self.models_.without(encoding.text_of(client))
        return self

    def _read(self, X: Any, client: Any) -> Table:
        """A table of new rows."""
        if client is None and self.client is None and self.models_.ids:
            raise ConfigError(
                "the models were fitted with clients beside the table: predict(X, client=...)"
            )
        return read(self, X, client, fitting=False)

    def _scores(self, X: Any, client: Any = None) -> Floats:
        """The scores of rows, each by the model of its client."""
        check_is_fitted(self)
        return self.models_.scores(self.models_.rows_of(self._read(X, client)))

    def evaluate(self, X: Any, y: Any, client: Any = None) -> Scores:
        """The loss and the accuracy of every client on fresh rows, beside the global model's.

        ``print(model.evaluate(X, y).summary())`` says who gained and who was hurt. Rows that the
        models were fitted to are refused.
        """
        fresh = self._fresh(X, y, client)
        return evaluating.score(self.models_, fresh, self._range, "personal")

    def measure(
        self, X: Any, y: Any, client: Any = None, *, measures: Sequence[str | Measure] | None = None
    ) -> Any:
        """Measures such as AUC or RMSE on fresh rows, as an Arrow table.

        Args:
            X: fresh rows.
            y: their labels.
            client: the client of each row, if it is no column of ``X``.
            measures: names of measures, or measures of your own; all that fit if not given.
        """
        return evaluating.measure(self.models_, self._fresh(X, y, client), measures)

    def report(self, path: AnyPath, X: Any = None, y: Any = None, client: Any = None) -> None:
        """Write a page: which clients to personalize, what it brings, and what was tried.

        Args:
            path: the HTML file.
            X: fresh rows; without them, the page shows expected gains only.
            y: their labels.
            client: the client of each row, if it is no column of ``X``.
        """
        check_is_fitted(self)
        reporting.report(self, path, X, y, client)

    def _fresh(self, X: Any, y: Any, client: Any) -> evaluating.Fresh:
        check_is_fitted(self)
        table, labels = self._read(X, client), self._known_labels(y)
        check_consistent_length(table.client, labels)
        return evaluating.Fresh.of(self.models_, table, labels)

    def save(self, path: AnyPath, *, replace: bool = False) -> None:
        """Write the models into a directory, without pickle; ``sartor.estimators.load`` reads them.

        Args:
            path: where to. Models of the same clients, or of some of them, are replaced.
            replace: whether to replace models of other clients, too, which are lost then.
        """
        check_is_fitted(self)
        store.save(self, path, replace)

    def effects(self, of: Literal["client", "second"] = "client") -> Any:
        """The effects of clients, as an Arrow table: intercepts and slopes, where there are some.

        Each row has a client, a column whose effect varies between clients, how far the client's
        effect is from everybody's, and the standard deviation of what is not known of it.

        Args:
            of: ``"second"`` lists the effects of the second grouping.
        """
        check_is_fitted(self)
        return effects_of(self.models_, of, getattr(self, "classes_", ()))

    def _check(self, table: Table, labels: Floats) -> None:
        """Refuse what nothing can be learned from."""
        if len(labels) < 2:
            raise DataError(
                f"n_samples = {len(labels)}; at least two rows are needed, one of them to hold out"
            )
        if not table.features.num_columns:
            raise DataError("1 feature(s), and all have a role; give columns to learn from")
        if is_classifier(self) and self.second is not None:
            raise ConfigError(
                f"second={self.second!r}: a second grouping is for regression; leave it out, and "
                "the column is one to learn from"
            )
        if is_classifier(self) and len(np.unique(labels)) < 2:
            raise DataError("all labels are of one class; at least two are needed")

    def _intervals(self, tried: Tried, rows: Rows, names: Words) -> Intervals | None:
        """How far labels are from predictions, where that is asked for."""
        return None

    def _labels(self, y: Any) -> tuple[Floats, Task]:
        raise NotImplementedError

    def _known_labels(self, y: Any) -> Floats:
        raise NotImplementedError


class PersonalClassifier(ClassifierMixin, _Personal):
    """A classifier that gives every client of a table a model of its own.

    Rows of clients that are new, or that have no client, get the model of everybody.

    Args:
        estimator: the central model: a classifier of scikit-learn's kind, or a pipeline (default:
            gradient boosting, with as many iterations as are best on held-out rows, mixed with a
            linear model as far as that pays there).
        client: the column that says whose row it is: its name, or its position in an array.
            ``None`` if clients are given beside the table: ``fit(X, y, client=...)``.
        second: for regression: a second column of clients, such as the region of a shop, or the
            item of a user; nested or crossed. It is no column to learn from then: its effects are
            fitted together with those of clients.
        approach: what is fitted to each client beside the central model. ``"auto"`` tries all on
            held-out rows, and takes what clearly pays; see ``sartor.estimators.CANDIDATES``.
        time: the column that says when a row was seen. Folds then follow each other in time, so
            that what is chosen has been tried on what came later.
        groups: the column that says which rows belong together, such as the rows of one day.
        columns: ``"auto"`` turns words, gaps and dates into numbers that the estimator takes, as
            learned from the training rows. ``None`` gives it the table as it is. So do pipelines.
        folds: how many folds of rows are held out in turn.
        budget: seconds after which ``"auto"`` begins no further central model.
        random_state: the seed of the folds and of the default estimator.
        progress: whether to show a progress bar; ``None`` shows it on terminals only.

    Attributes:
        classes_: the classes.
        clients_: what was decided for each client, as an Arrow table.
        models_: the fitted models.

    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"rain": rng.random(400) < 0.5, "shop": rng.choice(["A", "B"], 400)})
    >>> y = np.where(X.rain == (X.shop == "A"), "many", "few")
    >>> model = PersonalClassifier(LogisticRegression(), client="shop").fit(X, y)
    >>> model.predict(pd.DataFrame({"rain": [True, True], "shop": ["A", "B"]})).tolist()
    ['many', 'few']
    """

    def _labels(self, y: Any) -> tuple[Floats, Task]:
        self.classes_, codes = checks.as_classes(y)
        return codes.astype(np.float64), Task(max(len(self.classes_), 2))

    def predict_proba(self, X: Any, client: Any = None) -> Floats:
        """The probability of each class."""
        scores = self._scores(X, client)
        return self.models_.task.proba(scores)

    def _known_labels(self, y: Any) -> Floats:
        y = checks.as_labels(y).tolist()
        number = {label: k for k, label in enumerate(self.classes_.tolist())}
        if new := [label for label in y if label not in number]:
            raise DataError(
                f"label {new[0]!r} is new, and the models know {self.classes_.tolist()}; fit again "
                "with rows of all classes"
            )
        return np.array([number[label] for label in y], np.float64)

    def predict(self, X: Any, client: Any = None) -> npt.NDArray[Any]:
        """The most probable class."""
        chances = self.predict_proba(X, client)
        return np.asarray(self.classes_[chances.argmax(axis=1)])


class PersonalRegressor(RegressorMixin, _Personal):
    """A regressor that gives every client of a table a model of its own.

    Arguments and attributes are those of :class:`PersonalClassifier`; ``estimator`` is a regressor.

    >>> import pandas as pd
    >>> from sklearn.linear_model import Ridge
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"day": rng.random(400), "shop": rng.choice(["A", "B"], 400)})
    >>> y = X.day * np.where(X.shop == "A", 3.0, -3.0)
    >>> model = PersonalRegressor(Ridge(), client="shop").fit(X, y)
    >>> model.predict(pd.DataFrame({"day": [1.0, 1.0], "shop": ["A", "B"]})).round(1).tolist()
    [3.0, -3.0]
    """

    def _labels(self, y: Any) -> tuple[Floats, Task]:
        return checks.as_targets(y), Task(0)

    def _known_labels(self, y: Any) -> Floats:
        return checks.as_targets(y)

    def predict(self, X: Any, client: Any = None) -> Floats:
        """The mean of each row."""
        return self._scores(X, client)[:, 0]

    def _intervals(self, tried: Tried, rows: Rows, names: Words) -> Intervals | None:
        return Intervals.learn(tried.losses, rows.owner, names, GLOBAL)

    def predict_interval(self, X: Any, level: float = 0.9, client: Any = None) -> Floats:
        """Intervals that hold a share of the labels, for each row: its lower and its upper end.

        They are as wide as errors were on held-out rows of the client, and symmetric. Clients with
        few rows and new ones have wider intervals.

        Args:
            X: rows, as for ``predict``.
            level: the share of labels that the intervals hold.
            client: the client of each row, if it is no column of ``X``.

        >>> import pandas as pd
        >>> from sklearn.linear_model import Ridge
        >>> rng = np.random.default_rng(0)
        >>> shop = rng.choice(["A", "B"], 1000)
        >>> X = pd.DataFrame({"day": rng.random(1000), "shop": shop})
        >>> y = X.day + rng.normal(size=1000) * np.where(shop == "A", 0.1, 1.0)
        >>> model = PersonalRegressor(Ridge(), client="shop").fit(X, y)
        >>> ends = model.predict_interval(pd.DataFrame({"day": [0, 0], "shop": ["A", "B"]}))
        >>> np.diff(ends).round().tolist()
        [[0.0], [3.0]]
        """
        check_level(level)
        check_is_fitted(self)
        rows = self.models_.rows_of(self._read(X, client))
        mean = self.models_.scores(rows)[:, 0]
        intervals = self.models_.intervals
        if intervals is None:
            raise ConfigError("the models were fitted without intervals; fit again to have some")
        width = intervals.half_width(rows.owner, level)
        return np.stack([mean - width, mean + width], axis=1)

"""What was fitted: central models, and what was learned of each client beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sartor.errors import DataError, nearest, warn
from sartor.estimators.approaches import Added
from sartor.estimators.central import Fitted
from sartor.estimators.choosing import GLOBAL, Candidate
from sartor.estimators.frames import UNKNOWN, Table
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.estimators.views import View
from sartor.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Models:
    """The models of all clients.

    Attributes:
        task: what they predict.
        view: how tables become rows.
        ids: the number of each client.
        rows: [clients] how many rows each was fitted to.
        names: [clients] the candidate that predicts for each.
        candidates: those that are used.
        central: the central models that they begin with.
        added: what was fitted beside them.
    """

    task: Task
    view: View
    ids: Mapping[str, int]
    rows: Ints
    names: npt.NDArray[np.str_]
    candidates: Mapping[str, Candidate]
    central: Mapping[str, Fitted]
    added: Mapping[str, Added]

    def rows_of(self, table: Table, y: Floats | None = None, weight: Floats | None = None) -> Rows:
        """The rows of a table, with clients as they are numbered here."""
        number = [*(self.ids.get(name, UNKNOWN) for name in table.ids), UNKNOWN]
        owner = np.array(number, np.int64)[table.client]  # the last one is of rows of nobody
        return self.view.rows(table, owner, np.zeros(len(owner)) if y is None else y, weight)

    def scores(self, rows: Rows) -> Floats:
        """The scores of rows, each by the model of its client; others get the global model."""
        found = self.global_scores(rows)
        everybody = found.copy()
        names = np.where(rows.owner >= 0, self.names[rows.owner], GLOBAL)
        for name, candidate in self.candidates.items():
            mine = np.flatnonzero(names == name)
            if name == GLOBAL or not len(mine):
                continue
            some = rows.take(mine)
            base = everybody[mine]
            if candidate.base != GLOBAL:
                base = self.central[candidate.base].scores(some)
            mixed = self.added[name].scores(some, base) if name in self.added else base
            if candidate.lambda_ < 1:
                mixed = self.task.blend(mixed, everybody[mine], candidate.lambda_)
            found[mine] = mixed
        return found

    def global_scores(self, rows: Rows) -> Floats:
        """The scores of the global model."""
        return self.central[GLOBAL].scores(rows)

    def updated(self, table: Table, y: Floats, weight: Floats | None = None) -> Models:
        """The same models with new rows of some clients, who may be new.

        Central models stay as they are, and so do all other clients. A new client is predicted as
        most of the others are.
        """
        ids = dict(self.ids)
        for name in table.ids:
            ids.setdefault(name, len(ids))
        more = len(ids) - len(self.ids)
        usual, counts = np.unique(self.names, return_counts=True)
        grown = replace(
            self,
            ids=ids,
            rows=np.append(self.rows, np.zeros(more, np.int64)),
            names=np.append(self.names, np.full(more, usual[counts.argmax()])),
        )
        rows = grown.rows_of(table, y, weight)
        rows = rows.take(rows.owner >= 0)
        if len(rows) and not self.added:
            warn(
                "nothing is fitted to clients here, so new rows change nothing: fit again with all "
                "rows, or with another approach"
            )
        added = {}
        for name, each in self.added.items():
            base = self.central[self.candidates[name].base].scores(rows)
            added[name] = each.updated(rows, base, len(ids))
        counted = grown.rows + np.bincount(rows.owner, minlength=len(ids))
        return replace(grown, added=added, rows=counted)

    def without(self, client: str) -> Models:
        """The same models without what was learned of a client, who is unknown then."""
        if client not in self.ids:
            raise DataError(f"there is no client {client!r}; {nearest(client, self.ids)}")
        number = self.ids[client]
        ids = {name: k for name, k in self.ids.items() if name != client}
        rows = self.rows.copy()
        rows[number] = 0
        return replace(
            self,
            ids=ids,
            rows=rows,
            added={name: each.without(number) for name, each in self.added.items()},
            central={name: each.without(number) for name, each in self.central.items()},
        )

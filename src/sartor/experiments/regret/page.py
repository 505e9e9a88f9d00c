"""The page about the regret of advice: what ``page.md`` shows."""

from pathlib import Path

from matplotlib.figure import Figure

from sartor.evaluation.means import ENOUGH
from sartor.report import PageKind
from sartor.report.figures import curve, drawing, legend, log_axis, look
from sartor.report.numbers import edge
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import provenance
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("page.md"))

TITLES = {
    "local": "Local",
    "global": "FedAvg",
    "cluster": "HypCluster",
    "bounds": "bounds alone",
    "advice": "advice",
    "interpolation": "advice with λ",
}
"""The names of policies on the page."""


def regret_sections(record: Record) -> list[Section]:
    """The parts of the page."""
    results = record.results
    tuned = next(iter(results["regret"].values()))[:-1]
    ends = [edge(rate, results["rates"]) for row in tuned for rate in row["rates"].values()]
    values = {
        **results,
        "few": results["settings"]["seeds"] < ENOUGH,
        "in_words": [{"words": in_words(*item)} for item in results["regret"].items()],
        "kinds": [_kind(n, *item) for n, item in enumerate(results["regret"].items())],
        "tuned": tuned,
        "ends": sum(map(bool, ends)),
        "choices": len(ends),
    }
    command = "sartor reproduce advice --out DIRECTORY"
    return [*TEMPLATE.sections(values, record), provenance(record, command)]


def in_words(kind: str, rows: list[Row]) -> str:
    """Advice compared with a single answer for all, at each size and on average."""
    *sizes, mean = rows
    many = [row["less"]["mean"] for row in sizes if row["samples"] >= 20]
    few = [row["less"]["mean"] for row in sizes if row["samples"] < 20]
    worst = [f"at most {max(many):+.4f} from 20 samples on"] if many else []
    worst += [f"at most {max(few):+.4f} with fewer samples"] if few else []
    best = mean["best"]
    return (
        f"With Local {kind}, the mean regret of advice is {mean['advice']['mean']:.4f} nats over "
        f"all sizes. The best single answer for all sizes, {TITLES[best]}, has "
        f"{mean[best]['mean']:.4f}, and the bounds alone have {mean['bounds']['mean']:.4f}. At "
        "each size, the regret of advice minus that of the best single answer is "
        f"{' and '.join(worst)}."
    )


def _kind(place: int, kind: str, rows: list[Row]) -> Row:
    """What is shown about one way to train Local."""
    shown = []
    for row in rows:
        means = {title: row[name]["mean"] for name, title in TITLES.items()}
        shown.append({
            **row,
            "size": row["samples"] or "mean",
            "means": means,
            "estimates": {title: row[name] for name, title in TITLES.items()},
            "best": [title for title, mean in means.items() if mean == min(means.values())],
            "best_title": TITLES[row["best"]],
            "best_of_all_title": TITLES.get(row["best_of_all"], row["best_of_all"]),
        })  # fmt: skip
    return {
        "kind": kind, "place": place, "rows": shown, "sizes": rows[:-1],
        "titles": list(TITLES.values()), f"regret-{place}": regret_figure(rows[:-1]),
    }  # fmt: skip


def regret_figure(rows: list[Row]) -> Figure:
    """The regret of every policy by number of samples."""
    with drawing(6.8, 3.8) as (figure, axes):
        samples = [row["samples"] for row in rows]
        for place, (name, title) in enumerate(TITLES.items()):
            curve(axes, samples, [row[name] for row in rows], title, look(place)[0])
        log_axis(axes, samples, "samples per client")
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_ylabel("mean regret, nats")
        axes.grid(linewidth=0.6)
        legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
        return figure


PAGE = PageKind("The regret of advice", regret_sections)

"""The page about the regret of advice."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from sartor.report import PageKind
from sartor.report.figures import curve, drawing, legend, log_axis, look
from sartor.report.numbers import edge, number, share, signed, spread
from sartor.report.page import Row, Section, Texts, listed
from sartor.report.record import Record
from sartor.report.runs import provenance

TEXTS = Texts(Path(__file__).with_name("page.md"))

TITLES = {
    "local": "Local",
    "global": "FedAvg",
    "cluster": "HypCluster",
    "bounds": "bounds alone",
    "advice": "advice",
    "interpolation": "advice with λ",
}
"""The names of policies on the page."""

SHARED = ("local", "global", "cluster")
"""The models that a client can take, in the order of the tables."""


def regret_sections(record: Record) -> list[Section]:
    """The parts of the page."""
    results = record.results
    summary = Section("Summary")
    summary.lead([in_words(kind, rows) for kind, rows in results["regret"].items()])
    summary.note(TEXTS("regret"))
    return [
        summary,
        *(_kind(record, kind, n) for n, kind in enumerate(results["regret"])),
        _method(results),
        provenance(record, "sartor reproduce advice --out DIRECTORY"),
    ]


def in_words(kind: str, rows: list[Row]) -> str:
    """Advice compared with a single answer for all, at each size and on average."""
    *sizes, mean = rows
    many = [row["less"]["mean"] for row in sizes if row["samples"] >= 20]
    few = [row["less"]["mean"] for row in sizes if row["samples"] < 20]
    worst = [f"at most {max(many):+.4f} from 20 samples on"] if many else []
    worst += [f"at most {max(few):+.4f} with fewer samples"] if few else []
    best = mean["best"]
    return TEXTS(
        "in words", kind=kind, advice=mean["advice"]["mean"], best=TITLES[best],
        best_mean=mean[best]["mean"], bounds=mean["bounds"]["mean"], worst=" and ".join(worst),
    )  # fmt: skip


def _samples(row: Row) -> str:
    return str(row["samples"] or "mean")


def _kind(record: Record, kind: str, place: int) -> Section:
    section, rows = Section(f"Local {kind}"), record.results["regret"][kind]
    names = {title: name for name, title in TITLES.items()}

    def is_least(row: Row, heading: str) -> bool:
        least = min(row[name]["mean"] for name in TITLES)
        return heading in names and row[names[heading]]["mean"] == least

    section.table(
        [
            ("samples", _samples),
            *((t, lambda row, name=name: number(row[name]["mean"])) for name, t in TITLES.items()),
            ("vacuous bounds", lambda row: share(row.get("vacuous"))),
        ],
        rows,
        "Mean regret in nats over clients and populations; the least is bold",
        bold=is_least,
    )
    section.figure(
        regret_figure(rows[:-1]),
        "Mean regret by samples per client, with 95% intervals over populations.",
        record.figure(f"regret-{place}"),
    )
    section.table(
        [
            ("samples", _samples),
            *(
                (f"advised: {TITLES[name]}", lambda row, name=name: share(row["advised"][name]))
                for name in SHARED
            ),
            ("all the same", lambda row: share(row["alike"])),
            ("with λ: interpolate", lambda row: share(row["interpolate"])),
            ("with λ: all the same", lambda row: share(row["alike_with_lambda"])),
        ],
        rows[:-1],
        "What is advised, by share of clients; all the same: the share of populations in which all "
        "clients got the same advice",
    )
    _against(section, rows, "", "Advice", "one answer for all clients of a size")
    _against(section, rows, "_of_all", "Advice with λ", "one answer for all, one λ included")
    section.table(
        [
            ("samples", _samples),
            *((title, lambda row, name=name: spread(row[name])) for name, title in TITLES.items()),
        ],
        rows,
        "95% intervals over populations",
    )
    return section


def _against(section: Section, rows: list[Row], key: str, policy: str, against: str) -> None:
    """A policy against the best constant answer, which is known only in hindsight."""
    best, less = f"best{key}", f"less{key}"
    section.table(
        [
            ("samples", _samples),
            ("the best single answer", lambda row: TITLES.get(row[best], row[best])),
            (f"{policy.lower()} minus that", lambda row: signed(row[less]["mean"])),
            ("95% interval", lambda row: spread(row[less], signed)),
        ],
        rows,
        f"{policy} against {against}, paired over populations; below 0, {policy.lower()} is better",
        left=("the best single answer",),
    )


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


def _method(results: Row) -> Section:
    section = Section("How it was done")
    section.text(TEXTS("method", seeds=results["settings"]["seeds"]))
    rows = next(iter(results["regret"].values()))[:-1]
    section.table(
        listed("samples", "FedAvg", "HypCluster", "Local", "interpolation"),
        [[row["samples"], *(f"{rate:g}" for rate in row["rates"].values())] for row in rows],
        f"Step sizes, chosen from {', '.join(f'{rate:g}' for rate in results['rates'])}",
    )
    ends = sum(bool(edge(r, results["rates"])) for row in rows for r in row["rates"].values())
    if ends:
        section.note(f"{ends} of {4 * len(rows)} are the largest or the smallest candidate.")
    return section


PAGE = PageKind("The regret of advice", regret_sections)

"""The parts of the EMNIST page beyond the paper's tables; each is shown if it was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sartor.experiments.common.claims import VERDICT
from sartor.experiments.emnist.figures import one_lambda_figure
from sartor.experiments.emnist.settings import GROUPS
from sartor.experiments.emnist.words import data_note, table_methods, titled, with_warm_rounds
from sartor.report.figures import shares_figure
from sartor.report.numbers import (
    Show,
    duration,
    edge,
    number,
    p_value,
    percent,
    points,
    share,
    signed,
    spread,
    traffic,
)
from sartor.report.page import Column, Row, Section, Texts, listed
from sartor.report.record import Record
from sartor.report.runs import cost_section

CONTROLS = {
    "fedavg": "FedAvg",
    "fedavg with more rounds": "FedAvg, more rounds",
    "fedavg on all images": "FedAvg, all images",
    "fedavg + finetune": "FedAvg + Finetune",
    "fedavg with more rounds + finetune": "more rounds + Finetune",
    "fedavg on all images + finetune": "all images + Finetune",
    "fedavg + finetune with Dapper's steps": "Finetune, Dapper's steps",
    "fedavg + dapper": "FedAvg + Dapper",
    "fedavg + dapper with Finetune's steps": "Dapper, Finetune's steps",
    "fedavg + mapper": "FedAvg + Mapper",
    "fedavg + mapper without joint rounds": "Mapper, no joint rounds",
    "fedavg + mapper without joint rounds, with Finetune's steps": "the same, Finetune's steps",
}
"""The methods of the section on controls, and their names there."""

ORDERS = {"shuffled": "shuffled", "id": "by id", "high school last": "high school last"}


class Study(NamedTuple):
    """A section that compares the accuracies of some methods.

    Attributes:
        title: of the section.
        text: the name of its paragraph.
        needs: it is shown if there is any of these methods.
        methods: its methods, and their names in the tables.
        heading: of the column with these names.
        caption: what the table of accuracies is about.
        clusters: numbers of clusters by method, if their shares are shown.
        tuned: the methods whose candidates of validation are shown.
    """

    title: str
    text: str
    needs: Sequence[str]
    methods: Mapping[str, str]
    heading: str = "model"
    caption: str = ""
    clusters: Mapping[str, int] = {}
    tuned: Sequence[str] = ()


def studies(results: Row) -> dict[str, Study]:
    """The studies of methods, by the name of their paragraph."""
    starts = {
        "hypcluster": "warm, {warm_rounds} each",
        "hypcluster from warm, short": "warm, {warm_rounds} each",
        "hypcluster from clients": "single clients' models",
        "hypcluster from kmeans++": "k-means++ of clients' models",
        "hypcluster from random": "random models",
    }
    starts = {
        name: title.format(**with_warm_rounds(results["algorithms"][name]["central"]))
        for name, title in starts.items()
        if name in results["algorithms"]
    }
    numbers = {f"hypcluster{'' if q == 2 else f' q={q}'}": q for q in (1, 2, 3, 4)}
    servers = {"fedavg": ("adam", "adagrad"), "hypcluster": ("adam", "adagrad")}
    adaptive = {row: [row, *(f"{row} with {s}" for s in names)] for row, names in servers.items()}
    found = [
        Study(
            "Starts of HypCluster", "starts", [*starts][1:], starts, "start",
            " of HypCluster with two clusters", dict.fromkeys(starts, 2),
        ),
        Study(
            "Numbers of clusters", "clusters", [n for n, q in numbers.items() if q != 2],
            {name: f"q = {q}" for name, q in numbers.items()}, "clusters",
            " of HypCluster with q clusters", numbers,
        ),
        Study(
            "Local", "local", ["local"],
            {name: titled(name) for name in ("local", "fedavg", "fedavg + finetune")},
            tuned=["local"],
        ),
        Study("Controls", "controls", ["fedavg with more rounds"], CONTROLS),
        Study(
            "Adaptive servers", "servers", [n for names in adaptive.values() for n in names[1:]],
            {
                name + tuned: titled(name + tuned)
                for names in adaptive.values()
                for tuned in ("", " + finetune")
                for name in names
            },
            tuned=[name for names in adaptive.values() for name in names],
        ),
    ]  # fmt: skip
    return {study.text: study for study in found}


def study_sections(record: Record, texts: Texts) -> list[Section]:
    """The sections for which there is something to show."""
    results = record.results
    known = studies(results)
    sections = [
        _sources(results, texts),
        _study(results, known["starts"], texts),
        _study(results, known["clusters"], texts),
        _orders(results, texts),
        _lambda(record, texts),
        _study(results, known["local"], texts),
        _controls(results, known["controls"], texts),
        _study(results, known["servers"], texts),
        _forgetting(results, texts),
        _cost(results, texts),
    ]
    return [section for section in sections if section.parts]


def _estimate_columns(
    results: Row, heading: str, key: str, show: Show, show_deviation: Show
) -> list[Column]:
    """Columns for an estimate of each row: mean, interval, and the deviation between seeds."""

    def of(row: Row) -> Row:
        return row.get(key) or {"mean": None, "low": None, "high": None, "seed_deviation": None}

    columns: list[Column] = [
        (heading, lambda row: show(of(row)["mean"])),
        ("95% interval", lambda row: spread(of(row), show)),
    ]
    if results["settings"]["seeds"] > 1:
        columns.append(("± seeds", lambda row: show_deviation(of(row)["seed_deviation"])))
    return columns


def _accuracy_table(
    section: Section, results: Row, heading: str, rows: Mapping[str, Row], caption: str = "",
    groups: Sequence[str] = GROUPS, more: Sequence[Column] = (),
) -> None:  # fmt: skip
    """The accuracy of groups of writers; rows are estimates by group."""
    columns: list[Column] = [(heading, lambda row: row["title"])]
    for group in groups:
        columns += _estimate_columns(results, group, group, percent, percent)
    section.table(
        [*columns, *more],
        [{"title": title, **estimates} for title, estimates in rows.items()],
        f"Test accuracy in %{caption}.{data_note(results)}",
    )


def _study(results: Row, study: Study, texts: Texts, **values: object) -> Section:
    section, methods = Section(study.title), results["methods"]
    if not any(name in methods for name in study.needs):
        return section
    names = {name: title for name, title in study.methods.items() if name in methods}
    held_out = [methods[name].get("validation_loss") for name in names]
    more: list[Column] = []
    if all(held_out):
        more = [("held-out loss", lambda row: _mean(row["held_out"]))]
    rows = {
        title: {**methods[name]["accuracy"], "held_out": losses}
        for (name, title), losses in zip(names.items(), held_out, strict=True)
    }
    _accuracy_table(section, results, study.heading, rows, study.caption, more=more)
    if more:
        section.note(texts("held-out"))
    if study.clusters:
        _cluster_table(section, results, names, study.clusters)
    tuned = [name for name in study.tuned if name in methods]
    if tuned:
        _tried_table(section, results, tuned)
    edges = "".join(_edges(name, methods[name]) for name in tuned)
    section.text(texts(study.text, edges=edges, **values))
    return section


def _mean(losses: Sequence[float | None]) -> str:
    known = [loss for loss in losses if loss is not None]
    return number(sum(known) / len(known) if len(known) == len(losses) else None)


def _cluster_table(
    section: Section, results: Row, names: Mapping[str, str], clusters: Mapping[str, int]
) -> None:
    """The share of writers in each cluster, seed by seed; empty clusters count."""
    several = results["settings"]["seeds"] > 1
    most = max(clusters[name] for name in names)
    rows = []
    for name, title in names.items():
        q = clusters[name]
        by_seed = results["methods"][name].get("clusters", {}).get("by_seed", [])
        for seed, by_domain in enumerate(by_seed):
            counts = [sum(column) for column in zip(*by_domain.values(), strict=True)]
            shares = [n / max(sum(counts), 1) for n in [*counts, *[0] * q][:q]]
            used = sum(value >= 0.01 for value in shares)
            shown = [*map(share, shares), *[""] * (most - q)]
            rows.append([title, *[str(seed)] * several, *shown, str(used)])
    section.table(
        listed("HypCluster", *["seed"] * several, *(f"{n + 1}." for n in range(most)), "used"),
        rows,
        "Share of the writers, seen and unseen, in each cluster, the largest first; used: clusters "
        "with at least 1% of them",
    )


def _tried_table(section: Section, results: Row, names: Sequence[str]) -> None:
    """The candidates of validation, and their losses."""
    rows = []
    for name in names:
        method = results["methods"][name]
        if name not in results["table2"]:
            rows += [
                (titled(name), _candidate(options), loss, options == method["chosen"])
                for options, loss in method["tried"]
            ]
        elif losses := method.get("validation_loss"):
            rows.append((titled(name), "momentum, as in the paper", losses[0], False))
    section.table(
        [
            ("model", lambda row: row[0]),
            ("tried", lambda row: row[1]),
            ("validation loss", lambda row: number(row[2])),
        ],
        rows,
        "All candidates; the chosen ones are bold",
        left=("tried",),
        bold=lambda row, heading: row[3] and heading != "model",
    )


def _candidate(options: Row) -> str:
    server = options.get("server_optimizer")
    if server:
        return f"server step size {server['learning_rate']:g}"
    return f"step size {options['learning_rate']:g}, {options['epochs']} epochs"


def _edges(name: str, method: Row) -> str:
    """A sentence for each chosen setting that is the largest or smallest candidate."""
    tried = [options.get("server_optimizer", options) for options, _ in method.get("tried", [])]
    chosen: Row = method.get("chosen") or {}
    return "".join(
        f" {titled(name)} has the {end} {key.replace('_', ' ')} that was tried; others may be "
        "better."
        for key, value in chosen.get("server_optimizer", chosen).items()
        if isinstance(value, int | float) and (end := edge(value, [o[key] for o in tried]))
    )


def _sources(results: Row, texts: Texts) -> Section:
    """Census workers and students."""
    section, counts = Section("Sources of the writers"), results["data"]["domains"]
    if not counts:
        return section
    methods = results["methods"]
    rows = {titled(name): methods[name]["accuracy"] for name in table_methods(results)}
    caption = ", by source; seen and unseen writers"
    _accuracy_table(section, results, "model", rows, caption, list(counts))
    weights = methods.get("agnostic", {}).get("domain_weights")
    if weights:
        shares = ", ".join(
            f"{d} has {share(w)} and {share(counts[d] / sum(counts.values()))} of the writers"
            for d, w in zip(counts, weights, strict=True)
        )
        of_seed = "of the first seed " * (results["settings"]["seeds"] > 1)
        section.text(texts("sources", of_seed=of_seed, weights=shares))
    found = methods.get("hypcluster", {})
    if "clusters" not in found:
        return section
    rows_by_seed = [
        [domain, str(seed), str(sum(n)), *(share(k / max(sum(n), 1)) for k in [*n, 0][:2])]
        for seed, by_domain in enumerate(found["clusters"]["by_seed"])
        for domain, n in by_domain.items()
    ]
    section.heading("Does HypCluster find the sources?")
    section.table(
        listed("source", "seed", "writers", "larger cluster", "smaller cluster"),
        rows_by_seed,
        "Share of each source's writers, seen and unseen, in HypCluster's two clusters",
    )
    oracle = " and ".join(f"{percent(found['oracle'][g]['mean'])}% for {g}" for g in GROUPS)
    accuracy = " and ".join(f"{percent(found['accuracy'][g]['mean'])}%" for g in GROUPS)
    section.text(texts("oracle", oracle=oracle, accuracy=accuracy))
    return section


def _orders(results: Row, texts: Texts) -> Section:
    section = Section("Order of writers")
    if not results.get("order"):
        return section

    def finetuned(item: tuple[str, Row]) -> str:
        name = "fedavg" if item[0] == "shuffled" else f"fedavg by {item[0]}"
        accuracy = results["methods"][f"{name} + finetune"]["accuracy"]
        seen, unseen = (accuracy[group]["mean"] for group in GROUPS)
        return "–" if None in (seen, unseen) else points(unseen - seen)

    columns: list[Column] = [
        ("order", lambda item: ORDERS[item[0]]),
        ("seen", lambda item: percent(item[1]["seen"]["mean"])),
        ("unseen", lambda item: percent(item[1]["unseen"]["mean"])),
        ("gap", lambda item: points(item[1]["gap"])),
        ("95% interval", lambda item: spread(item[1], points)),
        ("by seed", lambda item: ", ".join(map(points, item[1]["by_seed"]))),
        ("gap with Finetune", finetuned),
    ]
    if results["settings"]["seeds"] == 1:
        columns = [column for column in columns if column[0] != "by seed"]
    section.table(
        columns,
        list(results["order"].items()),
        "FedAvg's test accuracy in %, and the gap: unseen minus seen writers, in points."
        f"{data_note(results)}",
    )
    section.text(texts("order"))
    return section


def _lambda(record: Record, texts: Texts) -> Section:
    section, results = Section("Choice of λ"), record.results
    shares = {
        f"{titled(name)}, {group}": found[group]
        for name in table_methods(results)
        if (found := results["methods"][name].get("lambda"))
        for group in GROUPS
        if group in found
    }
    keys = sorted({key for of in shares.values() for key in of}, key=float)
    size = 7.2, 0.9 + 0.3 * len(shares)
    figure = shares_figure(shares, keys, "writers", size)
    section.figure(figure, texts("lambda"), record.figure("lambda"))
    section.table(
        listed("λ", *keys),
        [[name, *(share(of.get(key, 0.0)) for key in keys)] for name, of in shares.items()],
        f"Share of the writers that have chosen each λ.{data_note(results)}",
    )
    if "lambda" not in results:
        return section
    found = results["lambda"]
    section.heading("One λ for all")
    section.figure(
        one_lambda_figure(results),
        "Dapper on FedAvg with one λ for all writers, with 95% intervals; dashed: every writer "
        "chooses its own.",
        record.figure("one-lambda"),
    )
    rows = {
        f"λ = {value:g}": {group: found[group][n] for group in GROUPS}
        for n, value in enumerate(found["cover"])
    }
    rows["chosen by each writer"] = results["methods"]["fedavg + dapper"]["accuracy"]
    rows["oracle"] = {group: found[f"{group}_oracle"] for group in GROUPS}
    _accuracy_table(section, results, "Dapper on FedAvg", rows)
    section.note(texts("one lambda"))
    return section


def _controls(results: Row, study: Study, texts: Texts) -> Section:
    settings = results["settings"]
    rounds = settings["rounds"]
    section = _study(
        results, study, texts, rounds=rounds, more=rounds + settings["joint"],
        validation=settings["validation"],
    )  # fmt: skip
    if section.parts:
        section.table(
            [
                ("first against second", lambda c: f"{titled(c['a'])} against {titled(c['b'])}"),
                *difference_columns(results),
                ("counts", lambda c: VERDICT[c["beyond_chance"]]),
            ],
            results["comparisons"],
            "Differences in points of accuracy, paired over writers; which count is decided as for "
            f"the paper's claims, over all of this table.{data_note(results)}",
            text=("first against second",),
            left=("writers",),
        )
    return section


def difference_columns(results: Row) -> list[Column]:
    """Columns for tested differences."""
    columns: list[Column] = [
        ("writers", lambda c: c["group"]),
        ("points", lambda c: points(c["mean"])),
        ("95% interval", lambda c: spread(c, points)),
        ("p-value", lambda c: p_value(c["p_value"])),
    ]
    if results["settings"]["seeds"] > 1:
        columns += [
            ("by seed", lambda c: ", ".join(map(points, c["by_seed"]))),
            ("p, seeds", lambda c: p_value(c["p_seeds"])),
        ]
    return columns


def _forgetting(results: Row, texts: Texts) -> Section:
    section, methods = Section("Forgetting"), results["methods"]
    names = [*table_methods(results), "fedavg + mapper without joint rounds"]
    rows = [
        {"title": titled(name), **methods[name]}
        for name in names
        if methods.get(name, {}).get("forgetting")
    ]
    if rows:
        section.table(
            [
                ("model", lambda row: row["title"]),
                *_estimate_columns(results, "forgetting", "forgetting", signed, number),
            ],
            rows,
            f"Rise of the loss on everybody's images, in nats.{data_note(results)}",
        )
        section.text(texts("forgetting"))
    return section


def _cost(results: Row, texts: Texts) -> Section:
    methods, seeds = results["methods"], results["settings"]["seeds"]
    names = [*table_methods(results), *(["local"] if "local" in methods else [])]
    section = cost_section(
        {titled(name): methods[name]["cost"] for name in names},
        "Mean over seeds; each includes the training of the central model.",
    )
    section.table(
        [("model", titled), ("time", lambda name: duration(sum(methods[name]["seconds"]) / seeds))],
        names,
        "Wall time, mean over seeds; for a personal model only its own part",
    )
    memory = [
        f"{traffic(results['memory'][key])} {where}"
        for key, where in (("host_bytes", "of the process"), ("device_bytes", "on the device"))
        if results["memory"].get(key)
    ]
    section.note(
        texts(
            "cost",
            methods=len(methods),
            seeds=f"in {seeds} seeds " * (seeds > 1),
            total=duration(results["wall_seconds"]["total"]),
            device=results["device"]["kind"],
            memory=", ".join(memory) or "not known",
        )
    )
    return section

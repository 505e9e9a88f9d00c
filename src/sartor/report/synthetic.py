"""The report of the synthetic experiment: Table 1, Figure 1, claims, clients, choices and cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.report.figures import INK, Values, change_figure, drawing, legend, look
from sartor.report.page import Section, amount, edge, interval, number, p_value, share
from sartor.report.record import Record
from sartor.report.runs import cost_section, provenance

Row = Mapping[str, Any]

ORDER = (
    "FedAvg", "HypCluster", "Local", "Finetune", "Dapper", "Mapper", "HypCluster + Dapper",
    "HypCluster + Mapper",
)  # fmt: skip
"""Which method has which colour."""


def synthetic_sections(record: Record) -> list[Section]:
    """The parts of the page about one run of the experiment."""
    results, losses = record.results, _exact_losses(record)  # damage is found before any writing
    return [
        _summary(results),
        _figure1(record),
        _table1(record),
        _claims(results["claims"]),
        _clients(record, losses),
        _choices(record),
        _tuning(results),
        _cost(results),
        _method(results),
        provenance(record, command(results["settings"])),
    ]


def command(settings: Mapping[str, Any]) -> str:
    """The command line that runs it again."""
    quick = " --quick" if settings["quick"] else ""
    samples = "".join(f" --samples {n}" for n in settings["samples"])
    return (
        f"sartor reproduce synthetic{quick} --seed {settings['seed']} --seeds {settings['seeds']} "
        f"--layout {settings['layout']} --loss {settings['loss']}{samples} --out DIRECTORY"
    )


def _by_samples(results: Mapping[str, Any]) -> dict[int, dict[str, Row]]:
    """The rows of Figure 1 by number of samples, then by method."""
    return {
        samples: {row["method"]: row for row in rows}
        for samples, rows in itertools.groupby(results["figure1"], lambda row: row["samples"])
    }


def _summary(results: Mapping[str, Any]) -> Section:
    section = Section("Summary")
    every, bayes = _by_samples(results), results["limits"]["bayes"]
    # What was not tuned is there to explain, not to be chosen.
    sizes = {m: {n: row for n, row in rows.items() if row["tried"]} for m, rows in every.items()}
    few, many = min(sizes), max(sizes)
    best = {m: min(rows.values(), key=lambda row: row["exact_loss"]) for m, rows in sizes.items()}
    spans = []
    for name, group in itertools.groupby(best, lambda m: best[m]["method"]):
        which = list(group)
        of = f"{which[0]}" if len(which) == 1 else f"{which[0]} to {which[-1]}"
        spans.append(f"{name} with {of} samples per client")
    first, last = best[few], best[many]
    reached = f"{last['exact_loss']:.3f}"
    if few < many:
        reached = f"from {first['exact_loss']:.3f} down to {reached}"
    found = [
        f"The best of all methods is {', and '.join(spans)}: {reached} nats, where {bayes:.3f} is "
        "the least possible."
    ]
    found += [
        f"With {m} samples per client one model for all costs "
        f"{sizes[m]['FedAvg']['exact_loss']:.3f} and four models "
        f"{sizes[m]['HypCluster']['exact_loss']:.3f}; {_hurt(sizes[m])}."
        for m in sorted({few, many})
    ]
    verdicts = [claim["holds"] for claim in results["claims"]]
    undecided = verdicts.count(None)
    found.append(
        f"Of the paper's {len(verdicts)} claims {verdicts.count(True)} hold here and "
        f"{verdicts.count(False)} do not"
        + (f"; {undecided} cannot be decided." if undecided else ".")
    )
    section.lead(found)
    return section


def _hurt(rows: Mapping[str, Row]) -> str:
    worst = max(rows.values(), key=lambda row: row["against_fedavg"]["hurt"])
    hurt = worst["against_fedavg"]["hurt"]
    if hurt == 0:
        return "none of them makes anybody worse off than FedAvg"
    return f"of the tuned methods {worst['method']} hurts the most clients, {share(hurt)}"


def _figure1(record: Record) -> Section:
    section, results = Section("Figure 1"), record.results
    figures = record.directory / "figures"
    section.figure(
        _loss_figure(results),
        "Loss under the clients' true distributions against samples per client; bands are 95% "
        "intervals over populations. Dashed: the Bayes limit, which nothing can beat; dotted: the "
        "least that one model for all (upper) and four models (lower) can reach.",
        figures / "figure1",
    )
    section.figure(
        _excess_figure(results),
        "The same less the Bayes limit, on a logarithmic axis.",
        figures / "figure1-excess",
    )
    sizes = _by_samples(results)
    methods = list(next(iter(sizes.values())))
    losses = [[sizes[m][name]["exact_loss"] for m in sizes] for name in methods]
    best = [(int(np.argmin(column)), n + 1) for n, column in enumerate(zip(*losses, strict=True))]
    section.table(
        ["samples per client", *(amount(m) for m in sizes)],
        [[name, *(number(v) for v in row)] for name, row in zip(methods, losses, strict=True)],
        "Exact loss: mean over clients and populations",
        best=best,
    )
    section.table(
        ["samples per client", *(amount(m) for m in sizes)],
        [
            [name, *(f"{number(r['test_loss'])} ({interval((r['low'], r['high']))})" for r in rows)]
            for name in methods
            if (rows := [sizes[m][name] for m in sizes])
        ],
        "The same on test samples, with 95% intervals over populations",
    )
    return section


def _curves(axes: Any, results: Mapping[str, Any], less: float) -> None:
    sizes = _by_samples(results)
    for name in next(iter(sizes.values())):
        rows = [sizes[m][name] for m in sizes]
        colour, line = _colour(name), "-" if rows[0]["tried"] else ":"
        keys = ("exact_loss", "exact_low", "exact_high")
        mean, low, high = (np.array([r[k] for r in rows], float) - less for k in keys)
        axes.plot(list(sizes), mean, line, color=colour, marker="o", markersize=3, label=name)
        axes.fill_between(list(sizes), low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(list(sizes), [str(m) for m in sizes])
    axes.minorticks_off()
    axes.set_xlabel("samples per client")


def _colour(method: str) -> str:
    """Always the same for a method and its variants."""
    return look(ORDER.index(method.partition(",")[0]))[0]


def _loss_figure(results: Mapping[str, Any]) -> Figure:
    limits = results["limits"]
    with drawing(7.2, 4.2) as (figure, axes):
        _curves(axes, results, 0.0)
        axes.axhline(limits["bayes"], color=INK, linestyle="--", linewidth=1, label="Bayes limit")
        for q in ("1", "4"):
            axes.axhline(limits["clusters"][q], color=INK, linestyle=":", linewidth=0.8)
        axes.set_ylabel("exact loss (nats)")
        axes.grid(axis="y", linewidth=0.6)
        legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        return figure


def _excess_figure(results: Mapping[str, Any]) -> Figure:
    with drawing(7.2, 3.8) as (figure, axes):
        _curves(axes, results, results["limits"]["bayes"])
        axes.set_yscale("log")
        axes.set_ylabel("exact loss above the Bayes limit")
        axes.grid(axis="y", linewidth=0.6)
        legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        return figure


def _table1(record: Record) -> Section:
    section, rows = Section("Table 1"), record.results["table1"]
    section.table(
        ["q", *(str(row["q"]) for row in rows)],
        [
            ["test loss", *(number(row["test_loss"]) for row in rows)],
            ["95% interval", *(interval((row["low"], row["high"])) for row in rows)],
            ["exact loss", *(number(row["exact_loss"]) for row in rows)],
            ["95% interval", *(interval((r["exact_low"], r["exact_high"])) for r in rows)],
            ["least possible", *(number(row["limit"]) for row in rows)],
            ["above it", *(number(row["exact_loss"] - row["limit"]) for row in rows)],
            ["the paper", *(number(row["paper"], digits=1) for row in rows)],
            ["smoothed loss", *(number(row["smoothed_loss"]) for row in rows)],
            ["least possible of it", *(number(row["smoothed_limit"]) for row in rows)],
            ["starts", *(amount(row["restarts"]) for row in rows)],
        ],
        f"Loss of HypCluster with q clusters, "
        f"{record.results['settings']['table_samples']} samples per client",
    )
    section.figure(
        _table_figure(rows),
        "HypCluster with q clusters, the least that any q models can reach, and the paper's "
        "figures.",
        record.directory / "figures" / "table1",
    )
    section.text(
        "One cluster is FedAvg; q = 2, 3 and 5 have the step size and the smoothing chosen for "
        "q = 4; of several starts the one with the lowest training loss counts. The least "
        "possible is the best partition of the clients into q clusters under their true "
        "distributions that a search has found; the smoothed loss, exact as well, is the one with "
        "the paper's weight 0.9 of the label.",
        "note",
    )
    least = ", ".join(f"{v:.3f}" for v in record.results["limits"]["smoothed_shifted"].values())
    section.text(
        "Why the paper's figures are higher: they agree with the smoothed loss, not with the plain "
        f"one. In the shifted layout the least possible smoothed losses are {least}, which is what "
        "the paper has to a decimal; but for q = 2, where it has 3.1, which is what the other ways "
        "of joining the four clusters give (3.08 two and two, 3.12 three and one)."
    )
    return section


def _table_figure(rows: Sequence[Row]) -> Figure:
    with drawing(6.0, 3.2) as (figure, axes):
        q = [row["q"] for row in rows]
        paper, limit = ([row[k] for row in rows] for k in ("paper", "limit"))
        axes.plot(q, paper, "s--", color=look(0)[0], label="the paper", markersize=5)
        mean, low, high = (np.array([row[k] for row in rows]) for k in ("test_loss", "low", "high"))
        error = np.maximum([mean - low, high - mean], 0)
        axes.errorbar(q, mean, error, fmt="o-", color=look(1)[0], label="test loss", capsize=3)
        axes.plot(q, limit, "_", color=INK, label="least possible", markersize=14)
        axes.set_xticks(q)
        axes.set_xlabel("clusters q")
        axes.set_ylabel("loss (nats)")
        axes.grid(axis="y", linewidth=0.6)
        legend(axes, loc="upper right")
        return figure


def _claims(claims: Sequence[Row]) -> Section:
    section = Section("The paper's claims")
    verdict = {True: "yes", False: "no", None: "undecided"}
    section.table(
        ["", "claim", "tested with", "holds", "p-value"],
        [
            [
                f"{n}.",
                c["claim"],
                f"{c['samples']} samples",
                verdict[c["holds"]],
                p_value(c["p_value"]),
            ]
            for n, c in enumerate(claims, start=1)
        ],
        words=(1,),
    )
    for n, claim in enumerate(claims, start=1):
        section.text(f"{n}. {claim['found']}")
    section.text(
        "Tests compare exact losses, paired over populations, by sign flips, which have a least "
        "p-value (of n populations 2 to the power 1 − n, and 0.0001); a difference counts below "
        "0.05. Only the methods of the paper's figure take part.",
        "note",
    )
    return section


def _clients(record: Record, losses: Mapping[tuple[int, str], Values]) -> Section:
    section, sizes = Section("Who gains and who is hurt"), _by_samples(record.results)
    shown = sorted({min(sizes), max(sizes)})
    figures = []
    for samples in shown:
        central = losses[samples, "FedAvg"]
        changes = {
            name: central - losses[samples, name]
            for name, row in sizes[samples].items()
            if name != "FedAvg" and row["tried"]
        }
        figure = change_figure(changes, "FedAvg", "exact loss", (5.0, 3.6))
        caption = f"{samples} samples per client: every client of every population."
        figures.append((figure, caption, record.directory / "figures" / f"gains-{samples}"))
    section.figures(figures)
    rows = []
    for samples in shown:
        for name, row in sizes[samples].items():
            if name != "FedAvg":
                gain = row["against_fedavg"]
                rows.append([
                    name, amount(samples),
                    number(gain["mean_gain"], "+", 3), interval(gain["mean_gain_interval"], "+", 3),
                    number(gain["percentiles"]["5"], "+", 3),
                    number(gain["percentiles"]["95"], "+", 3),
                    share(gain["hurt"]),
                    " to ".join(share(v) for v in gain["hurt_interval"]),
                    number(gain["mean_if_hurt"], "+", 3),
                ])  # fmt: skip
    section.table(
        [
            "method", "samples", "mean gain", "95% interval", "5th percentile",
            "95th", "hurt", "95% interval", "mean if hurt",
        ],
        rows,
        "Gain in exact loss over FedAvg, per client",
    )  # fmt: skip
    section.text(
        "A client is hurt if its exact loss is above that of FedAvg: distributions are known here, "
        "so no luck of test samples is in it. Intervals are over populations.",
        "note",
    )
    return section


def _exact_losses(record: Record) -> dict[tuple[int, str], Values]:
    """The exact loss of every client of every population, by samples and method."""
    table = record.clients()
    samples, method = table["samples"].to_numpy(), np.array(table["method"].to_pylist())
    loss = table["exact_loss"].to_numpy()
    found = {}
    for row in record.results["figure1"]:
        mine = (samples == row["samples"]) & (method == row["method"])
        found[row["samples"], row["method"]] = loss[mine]
    return found


def _choices(record: Record) -> Section:
    section, sizes = Section("What clients choose"), _by_samples(record.results)
    first = next(iter(sizes.values()))
    interpolating = [name for name, row in first.items() if "lambda" in row]
    keys = sorted(
        {k for rows in sizes.values() for r in rows.values() for k in r.get("lambda", {})},
        key=float,
    )
    section.figures([
        (
            _lambda_figure({m: rows[name]["lambda"] for m, rows in sizes.items()}, keys),
            f"λ chosen by the clients of {name}.",
            record.directory / "figures" / f"lambda-{name.replace(' + ', '-')}",
        )
        for name in interpolating
    ])  # fmt: skip
    section.table(
        ["method", "samples", *(f"λ = {key}" for key in keys)],
        [
            [name, amount(m), *(share(rows[name]["lambda"].get(key, 0)) for key in keys)]
            for name in interpolating
            for m, rows in sizes.items()
        ],
        "Share of the clients; λ = 1 is the client's own data or model alone",
    )
    clustered = [
        (f"{m} samples, q = 4", rows["HypCluster"]["cluster_shares"])
        for m, rows in sizes.items()
        if "cluster_shares" in rows["HypCluster"]
    ]
    clustered += [
        (f"{record.results['settings']['table_samples']} samples, q = {row['q']}", found)
        for row in record.results["table1"]
        if row["q"] != 4 and (found := row.get("cluster_shares"))
    ]
    most = max((len(shares) for _, shares in clustered), default=0)
    section.table(
        ["HypCluster", *(f"{n + 1}." for n in range(most))],
        [[name, *map(share, shares), *[""] * (most - len(shares))] for name, shares in clustered],
        "Share of the clients in each cluster, the largest first; mean over populations",
    )
    return section


def _lambda_figure(shares: Mapping[int, Mapping[str, float]], keys: Sequence[str]) -> Figure:
    with drawing(4.6, 2.9) as (figure, axes):
        names = [str(m) for m in shares]
        below = np.zeros(len(names))
        for place, key in enumerate(keys):
            height = np.array([of.get(key, 0.0) for of in shares.values()])
            strength = 0.15 + 0.85 * place / max(len(keys) - 1, 1)
            axes.bar(
                names, height, bottom=below, color=look(1)[0], alpha=strength, label=f"λ = {key}"
            )
            below += height
        axes.set_xlabel("samples per client")
        axes.set_ylabel("share of clients")
        legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, reverse=True)
        return figure


def _tuning(results: Mapping[str, Any]) -> Section:
    section, sizes = Section("What validation chooses"), _by_samples(results)
    methods = next(iter(sizes.values()))

    def cell(row: Row) -> str:
        return f"{row['rate']:g}" + (f", {row['smoothing']:g}" if row["smoothing"] else "")

    section.table(
        ["samples per client", *(amount(m) for m in sizes)],
        [[name, *(cell(rows[name]) for rows in sizes.values())] for name in methods],
        "Step size and, where there is any, label smoothing",
    )
    if any(not row["tried"] for row in methods.values()):
        section.text(
            "Local with 10 times the steps has Local's step size, and no label smoothing beyond "
            "the training loss's own: it shows what stopping early does.",
            "note",
        )
    rates, smoothings = (
        ", ".join(f"{v:g}" for v in sorted({t[n] for r in results["figure1"] for t in r["tried"]}))
        for n in (0, 1)
    )
    found = [
        end
        for rows in sizes.values()
        for row in rows.values()
        if row["tried"] and (end := edge(row["rate"], [t[0] for t in row["tried"]]))
    ]
    ends = " and ".join(
        f"{found.count(end)} times the {end}" for end in ("largest", "smallest") if end in found
    )
    quick = " (in the quick version Local and Finetune have it instead of the least step size)"
    section.text(
        f"Each method tries {len(next(iter(methods.values()))['tried'])} points for every number "
        f"of samples: step sizes {rates} and label smoothing {smoothings}"
        f"{quick if results['settings']['quick'] else ''}. They are compared on "
        f"{results['settings']['tuning_populations']} populations that are not reported, of which "
        "a fifth of every client's samples is held out. No test sample is used for a choice."
        + f" The step size is {ends} that was tried."
        * bool(ends),
        "note",
    )
    return section


def _cost(results: Mapping[str, Any]) -> Section:
    sizes = _by_samples(results)
    samples = min(sizes, key=lambda m: abs(m - results["settings"]["table_samples"]))
    return cost_section(
        {name: row["cost"] for name, row in sizes[samples].items()},
        f"With {samples} samples per client; the training of the central model is included.",
    )


def _method(results: Mapping[str, Any]) -> Section:
    section, settings = Section("How it was done"), results["settings"]
    own = "k % (d − 4)" if settings["layout"] == "literal" else "4 + k % (d − 4)"
    section.text(
        f"Each of {settings['clients']} clients draws symbols out of {settings['symbols']}: half "
        f"of the time its cluster's, k % 4, a quarter of the time its own, {own} "
        f"({settings['layout']} layout), else any. A model is a distribution over the symbols. "
        f"{settings['seeds']} populations, draws of all clients' samples, are trained on side by "
        "side. Losses are mean negative log-probabilities (in nats): on test samples, or exact, "
        "which is their expectation under the client's true distribution. The Bayes limit is what "
        "these distributions themselves have."
    )
    section.text(
        "FedAvg is one model for all; HypCluster q models, of which every client takes the best; "
        "Local a model from the client's samples alone; Finetune goes on from FedAvg's on the "
        "client's samples, Dapper on a λ-mixture of them and everybody's; Mapper mixes the "
        "predictions of a local and a central model, trained together."
    )
    plain = "plain but for what smoothing of labels validation chooses"
    smooth = (
        "smoothed with the paper's weight 0.9 of the label, or more where validation chooses it"
    )
    section.text(
        f"The training loss is {plain if settings['loss'] == 'plain' else smooth}; all losses "
        "that are reported are plain, except where Table 1 says smoothed."
    )
    section.text(
        "All methods have the same samples. Dapper and Mapper choose every client's λ on a fifth "
        "of them, which is left out of their central model as well; the client's own model is then "
        "trained on all of them. HypCluster has q = 4 in Figure 1."
    )
    if settings["quick"]:
        section.text(
            "This is the quick version: fewer populations and numbers of samples, a coarser grid, "
            "and no personal methods on clusters. Without --quick, the whole experiment is run.",
            "note",
        )
    return section

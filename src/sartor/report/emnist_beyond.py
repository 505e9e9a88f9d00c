"""What the EMNIST experiment has beyond the paper's tables, each part where it was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sartor.report.emnist_figures import by_lambda_figure, lambda_figure
from sartor.report.emnist_words import (
    GROUPS,
    all_points,
    cell_names,
    each_seed,
    on_what,
    percent,
    percents,
    points,
    seeds_apart,
    titled,
)
from sartor.report.page import Section, duration, edge, interval, number, p_value, share, traffic
from sartor.report.record import Record
from sartor.report.runs import cost_section

Row = Mapping[str, Any]


def beyond_sections(record: Record) -> list[Section]:
    """Those for which there is something to show."""
    results = record.results
    sections = [
        _sources(results),
        _starts(results),
        _clusters(results),
        _orders(results),
        _lambda(record),
        _local(results),
        _controls(results),
        _servers(results),
        _forgetting(results),
        _cost(results),
    ]
    return [section for section in sections if section.parts]


def _accuracy_table(
    section: Section, results: Row, names: Mapping[str, str], first: str, caption: str
) -> None:
    """Methods as rows: the accuracy of seen and of unseen writers.

    Where all of them have been scored on held-out images, that is there, too.
    """
    several, methods = results["settings"]["seeds"] > 1, results["methods"]
    held = {name: methods[name].get("validation_loss") for name in names}
    rows = []
    for name, shown in names.items():
        accuracy, cells = methods[name]["accuracy"], []
        for group in GROUPS:
            cells += [percent(accuracy[group]["mean"]), percents(accuracy[group])]
            cells += [seeds_apart(accuracy[group])] * several
        if all(held.values()):
            cells.append(_mean(held[name]))
        rows.append([shown, *cells])
    head = [first]
    for group in GROUPS:
        head += [group, "95% interval", *["± seeds"] * several]
    head += ["held-out loss"] * all(held.values())
    section.table(head, rows, f"Test accuracy in %{caption}.{on_what(results)}")
    if all(held.values()):
        section.text(
            "Held-out loss: the plain loss of seen writers on images that central models never "
            "see, mean over seeds. It may be chosen by; the accuracies may not.",
            "note",
        )


def _mean(losses: Sequence[float | None]) -> str:
    known = [loss for loss in losses if loss is not None]
    return number(sum(known) / len(known) if len(known) == len(losses) else None)


def _present(results: Row, names: Mapping[str, str]) -> dict[str, str]:
    return {name: shown for name, shown in names.items() if name in results["methods"]}


def _cluster_shares(by_seed: Sequence[Mapping[str, Sequence[int]]], q: int) -> list[list[float]]:
    """Of every seed, the share of writers in each of q clusters; empty ones count, too."""
    found = []
    for domains in by_seed:
        counts = [sum(column) for column in zip(*domains.values(), strict=True)]
        counts += [0] * (q - len(counts))
        found.append([count / max(sum(counts), 1) for count in counts])
    return found


def _shares_table(section: Section, results: Row, names: Mapping[str, tuple[str, int]]) -> None:
    """How many of the writers are in each cluster, seed by seed."""
    several, most = results["settings"]["seeds"] > 1, max(q for _, q in names.values())
    rows = []
    for name, (shown, q) in names.items():
        clusters = results["methods"][name].get("clusters")
        for seed, shares in enumerate(_cluster_shares(clusters["by_seed"], q) if clusters else []):
            used = sum(value >= 0.01 for value in shares)
            cells = [*map(share, shares), *[""] * (most - q)]
            rows.append([shown, *[str(seed)] * several, *cells, str(used)])
    head = ["HypCluster", *["seed"] * several, *(f"{n + 1}." for n in range(most)), "used"]
    section.table(
        head,
        rows,
        "Share of the writers, seen and unseen, in each cluster, the largest first; used: clusters "
        "with at least 1% of them",
    )


def _sources(results: Row) -> Section:
    """Census workers and students."""
    section, domains = Section("Sources of the writers"), list(results["data"]["domains"])
    if not domains:
        return section
    methods = results["methods"]
    rows = []
    for name in cell_names(results):
        found = [methods[name]["accuracy"].get(domain) for domain in domains]
        cells = [(percent(e["mean"]), percents(e)) if e else ("–", "–") for e in found]
        rows.append([titled(name), *(cell for pair in cells for cell in pair)])
    head = ["model", *(word for domain in domains for word in (domain, "95% interval"))]
    section.table(
        head,
        rows,
        f"Test accuracy in %, by source; seen and unseen writers.{on_what(results)}",
    )
    weights = methods.get("agnostic", {}).get("domain_weights")
    if weights:
        counts = results["data"]["domains"]
        said = ", ".join(
            f"{d} has {share(w)} and {share(counts[d] / sum(counts.values()))} of the writers"
            for d, w in zip(domains, weights, strict=True)
        )
        section.text(
            "Agnostic moves weight to the source with the higher loss; in the end "
            f"{'of the first seed ' * (results['settings']['seeds'] > 1)}{said}."
        )
    if "clusters" not in methods.get("hypcluster", {}):
        return section
    rows = []
    for seed, by_domain in enumerate(methods["hypcluster"]["clusters"]["by_seed"]):
        for domain, counts in by_domain.items():
            shares = [count / max(sum(counts), 1) for count in [*counts, 0][:2]]
            rows.append([domain, str(seed), str(sum(counts)), *map(share, shares)])
    section.heading("Does HypCluster find the sources?")
    section.table(
        ["source", "seed", "writers", "larger cluster", "smaller cluster"],
        rows,
        "Share of each source's writers, seen and unseen, in HypCluster's two clusters",
    )
    oracle = methods["hypcluster"]["oracle"]
    said = " and ".join(f"{percent(oracle[g]['mean'])}% for {g}" for g in GROUPS)
    own = " and ".join(f"{percent(methods['hypcluster']['accuracy'][g]['mean'])}%" for g in GROUPS)
    section.text(
        "Writers are told nothing of sources: each takes the model with the lower loss on its "
        "training images. An oracle that gives each writer the better model on the writer's own "
        f"test images, which nobody may do, would have an accuracy of {said} writers, instead of "
        f"{own}; part of that is luck on few test images."
    )
    return section


def _starts(results: Row) -> Section:
    section, short = Section("Starts of HypCluster"), "hypcluster from warm, short"
    warm = {
        name: f"warm, {algorithms['central']['warm_rounds']} each"
        for name, algorithms in results["algorithms"].items()
        if name in ("hypcluster", short)
    }
    names = {
        "hypcluster": warm.get("hypcluster", ""),
        short: warm.get(short, ""),
        "hypcluster from clients": "single clients' models",
        "hypcluster from kmeans++": "k-means++ of clients' models",
        "hypcluster from random": "random models",
    }
    names = _present(results, names)
    if len(names) < 2:
        return section
    _accuracy_table(section, results, names, "start", " of HypCluster with two clusters")
    _shares_table(section, results, {name: (shown, 2) for name, shown in names.items()})
    section.text(
        "Warm: two FedAvg models, each trained apart for so many of the rounds, before writers "
        "choose between them; the first is that of Tables 2 and 3. The paper starts from models of "
        "single clients. Where one start is better than the other for nearly everybody, it takes "
        "all writers, and two clusters are one."
    )
    return section


def _clusters(results: Row) -> Section:
    section = Section("Numbers of clusters")
    names = {f"hypcluster q={q}": f"q = {q}" for q in (1, 3, 4)}
    if not _present(results, names):
        return section
    names = {"hypcluster q=1": "q = 1", "hypcluster": "q = 2", **names}
    names = _present(results, names)
    _accuracy_table(section, results, names, "clusters", " of HypCluster with q clusters")
    _shares_table(
        section, results, {name: (shown, int(shown[-1])) for name, shown in names.items()}
    )
    section.text(
        "The paper takes two clusters, as with more of them all clients essentially map to just "
        "two. One cluster is FedAvg with HypCluster's step size. All numbers of clusters have the "
        "same rounds: the more clusters, the fewer for each."
    )
    return section


ORDERS = {"shuffled": "shuffled", "id": "by id", "high school last": "high school last"}


def _orders(results: Row) -> Section:
    section, methods = Section("Order of writers"), results["methods"]
    if not results.get("order"):
        return section
    several = results["settings"]["seeds"] > 1
    rows = []
    for order, found in results["order"].items():
        name = "fedavg" if order == "shuffled" else f"fedavg by {order}"
        tuned = methods[f"{name} + finetune"]["accuracy"]
        less = [tuned[group]["mean"] for group in ("unseen", "seen")]
        rows.append([
            ORDERS[order], percent(found["seen"]["mean"]), percent(found["unseen"]["mean"]),
            points(found["gap"]), all_points(found), *[each_seed(found["by_seed"])] * several,
            "–" if None in less else points(less[0] - less[1]),
        ])  # fmt: skip
    section.table(
        [
            "order", "seen", "unseen", "gap", "95% interval", *["by seed"] * several,
            "gap with Finetune",
        ],
        rows,
        "FedAvg's test accuracy in %, and how much better or worse off unseen writers are, in "
        f"points.{on_what(results)}",
    )  # fmt: skip
    section.text(
        "The last writers of an order are the unseen ones. The paper saw almost 10 points less for "
        "unseen writers in the original order, explains it by high-school writers, who all came "
        "into one part, and therefore shuffles. Here: shuffled, as in Tables 2 and 3; ordered by "
        "id; and with all high-school writers last, so that they are among the unseen ones. The "
        "interval is over writers; how far models differ that are trained anew, the seeds show."
    )
    return section


def _lambda(record: Record) -> Section:
    section, results = Section("Choice of λ"), record.results
    methods = results["methods"]
    shares = {
        f"{titled(name)}, {group}": found[group]
        for name in cell_names(results)
        if (found := methods[name].get("lambda"))
        for group in GROUPS
        if group in found
    }
    keys = sorted({key for of in shares.values() for key in of}, key=float)
    if shares:
        section.figure(
            lambda_figure(shares, keys),
            "λ that writers have chosen: with 1 the own images or model alone, with 0 everybody's.",
            record.directory / "figures" / "lambda",
        )
        section.table(
            ["λ", *keys],
            [[name, *(share(of.get(key, 0.0)) for key in keys)] for name, of in shares.items()],
            f"Share of the writers that have chosen each λ.{on_what(results)}",
        )
    if "lambda" in results:
        _one_lambda(section, record, results["lambda"])
    return section


def _one_lambda(section: Section, record: Record, found: Row) -> None:
    results = record.results
    chosen = results["methods"]["fedavg + dapper"]["accuracy"]
    section.heading("One λ for all")
    section.figure(
        by_lambda_figure(results),
        "Dapper on FedAvg with one λ for all writers, with 95% intervals; dashed: every writer "
        "chooses its own.",
        record.directory / "figures" / "one-lambda",
    )
    rows = [
        [f"λ = {point:g}", *_both({group: found[group][n] for group in GROUPS})]
        for n, point in enumerate(found["cover"])
    ]
    rows.append(["chosen by each writer", *_both(chosen)])
    rows.append(["oracle", *_both({group: found[f"{group}_oracle"] for group in GROUPS})])
    section.table(
        ["Dapper on FedAvg", "seen", "95% interval", "unseen", "95% interval"],
        rows,
        f"Test accuracy in %.{on_what(results)}",
    )
    section.text(
        "The oracle gives each writer the λ that is best on the writer's own test images, which "
        "nobody may do: no way of choosing among these could be better. To take the best λ of this "
        "table for all would be a choice by test images, too.",
        "note",
    )


def _both(estimates: Mapping[str, Row]) -> list[str]:
    shown = [(percent(estimates[g]["mean"]), percents(estimates[g])) for g in GROUPS]
    return [cell for pair in shown for cell in pair]


def _tried(section: Section, results: Row, names: Sequence[str], note: str) -> None:
    """What validation has compared, and chosen."""
    rows: list[list[str]] = []
    best: list[tuple[int, int]] = []
    for name in names:
        method = results["methods"][name]
        if name in results["table2"]:  # with the paper's settings
            if held := method.get("validation_loss"):
                rows.append([titled(name), "momentum, as in the paper", number(held[0])])
            continue
        for options, loss in method["tried"]:
            if options == method["chosen"]:
                best += [(len(rows), column) for column in (1, 2)]
            rows.append([titled(name), _options(options), number(loss)])
    head = ["model", "tried", "validation loss"]
    section.table(head, rows, "All that was tried; what was chosen is bold", left=(1,), best=best)
    for name in names:
        for end, key in _ends(results["methods"][name]):
            note += f" {titled(name)} has the {end} {key} that was tried: others may be better."
    section.text(note, "note")


def _ends(method: Row) -> list[tuple[str, str]]:
    """The settings that are at an end of what was tried."""
    flat = [options.get("server_optimizer", options) for options, _ in method.get("tried", [])]
    chosen: Row = method.get("chosen") or {}
    mine: Row = chosen.get("server_optimizer", chosen)
    return [
        (end, key.replace("_", " "))
        for key, value in mine.items()
        if isinstance(value, int | float) and (end := edge(value, [o[key] for o in flat]))
    ]


def _options(options: Row) -> str:
    server = options.get("server_optimizer")
    if server:
        return f"server step size {server['learning_rate']:g}"
    return f"step size {options['learning_rate']:g}, {options['epochs']} epochs"


def _local(results: Row) -> Section:
    section = Section("Local")
    if "local" not in results["methods"]:
        return section
    names = {
        "local": "Local",
        **{name: titled(name) for name in ("fedavg", "fedavg + finetune")},
    }
    _accuracy_table(section, results, _present(results, names), "model", "")
    _tried(
        section,
        results,
        ["local"],
        "Local: every writer trains a network from its own images alone, from a random start, "
        "without any central model. Its settings are chosen by plain loss on the held-out images "
        "of some seen writers, in the first seed, and are the same for all.",
    )
    return section


def _controls(results: Row) -> Section:
    section = Section("Controls")
    names = {
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
    if not _present(results, {"fedavg with more rounds": ""}):
        return section
    _accuracy_table(section, results, _present(results, names), "model", "")
    settings = results["settings"]
    several = settings["seeds"] > 1
    section.text(
        f"More rounds: {settings['rounds'] + settings['joint']} instead of {settings['rounds']}, "
        "as many as Mapper's central model has with its joint ones. All images: the central model "
        f"is also trained on the {settings['validation']:.0%} of seen writers' images that are "
        "held out to choose λ by. No joint rounds: Mapper mixes with the central model as it is. "
        "The paper's best step sizes and epochs differ from algorithm to algorithm, so that the "
        "algorithm alone is not what makes a difference; some controls exchange them: "
        "Finetune with Dapper's step size, Dapper with Finetune's, Mapper with Finetune's step "
        "size and epochs."
    )
    section.table(
        ["first against second", "writers", "difference", "95% interval", "p-value",
         *(("by seed", "p, seeds") if several else ()), "counts"],
        [
            [
                f"{titled(c['a'])} against {titled(c['b'])}", c["group"], points(c["mean"]),
                all_points(c), p_value(c["p_value"]),
                *((each_seed(c["by_seed"]), p_value(c["p_seeds"])) if several else ()),
                {True: "yes", False: "no", None: "undecided"}[c["beyond_chance"]],
            ]
            for c in results["comparisons"]
        ],
        "Differences in points of accuracy, paired over writers; which count is decided as among "
        f"the paper's claims, for all of this table.{on_what(results)}",
        words=(0,),
        left=(1,),
    )  # fmt: skip
    return section


def _servers(results: Row) -> Section:
    section = Section("Adaptive servers")
    trained = [f"{r} with {s}" for r in ("fedavg", "hypcluster") for s in ("adam", "adagrad")]
    there = [name for name in trained if name in results["methods"]]
    if not there:
        return section
    names = {}
    for row in ("fedavg", "hypcluster"):
        mine = [row, *(name for name in there if name.startswith(f"{row} "))]
        for name in [n + tuned for tuned in ("", " + finetune") for n in mine]:
            names[name] = titled(name)
    _accuracy_table(section, results, _present(results, names), "model", "")
    _tried(
        section,
        results,
        [n for n in names if " + " not in n and n in results["methods"]],
        "The paper leaves adaptive servers open. The server's step size is chosen by the plain "
        "loss of seen writers on their held-out images, in the first seed; without Adam or "
        "Adagrad, the server has momentum, with the paper's settings, and nothing was chosen.",
    )
    return section


def _forgetting(results: Row) -> Section:
    section, methods = Section("Forgetting"), results["methods"]
    names = [*cell_names(results), "fedavg + mapper without joint rounds"]
    found = {
        name: methods[name]["forgetting"]
        for name in names
        if methods.get(name, {}).get("forgetting")
    }
    if not found:
        return section
    several = results["settings"]["seeds"] > 1
    rows = [
        [
            titled(name), number(e["mean"], "+"), interval([e["low"], e["high"]], "+"),
            *[number(e["seed_deviation"])] * several,
        ]
        for name, e in found.items()
    ]  # fmt: skip
    section.table(
        ["model", "forgetting", "95% interval", *["± seeds"] * several],
        rows,
        f"Rise of the loss on everybody's images, in nats.{on_what(results)}",
    )
    section.text(
        "The loss of a writer's model on test images of all seen writers, less the central "
        "model's: what a model for one unlearns for the others. Below 0, it has become better for "
        "them, too."
    )
    return section


def _cost(results: Row) -> Section:
    methods, settings = results["methods"], results["settings"]
    names = [*cell_names(results), *(["local"] if "local" in methods else [])]
    costs = {titled(name): methods[name]["cost"] for name in names}
    section = cost_section(
        costs, "Mean over seeds; the training of the central model is included in every one."
    )
    rows = [
        [titled(name), duration(sum(seconds) / len(seconds))]
        for name in names
        if (seconds := methods[name]["seconds"])
    ]
    section.table(
        ["model", "time"], rows, "Wall time, mean over seeds; of a personal model its own part only"
    )
    memory, device = results["memory"], results["device"]
    most = [
        f"{traffic(memory[key])} {where}"
        for key, where in (("host_bytes", "of the process"), ("device_bytes", "on the device"))
        if memory.get(key)
    ]
    seeds = settings["seeds"]
    section.text(
        f"Everything together, {len(methods)} models {f'in {seeds} seeds ' * (seeds > 1)}and what "
        f"validation tried, took {duration(results['wall_seconds']['total'])} on "
        f"{device['kind']}. The most memory in use: {', '.join(most) or 'not known'}. Times hold "
        "compilation and scoring, and on a GPU several models are trained side by side: they "
        "compare models roughly.",
        "note",
    )
    return section

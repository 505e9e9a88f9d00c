"""The page about the EMNIST experiment: Tables 2 and 3, claims, and who gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from sartor.experiments.common.claims import count
from sartor.experiments.emnist.figures import tables_figure
from sartor.experiments.emnist.method_page import command, method_section
from sartor.experiments.emnist.settings import GROUPS
from sartor.experiments.emnist.studies import difference_columns, study_sections
from sartor.experiments.emnist.words import (
    TABLES,
    as_claimed,
    data_note,
    quick_version,
    table_methods,
    titled,
    verdict,
)
from sartor.report import PageKind
from sartor.report.compare import compare_values
from sartor.report.figures import Values, change_figure
from sartor.report.numbers import amount, percent, points, share, spread
from sartor.report.page import Row, Section, Texts, listed
from sartor.report.record import Record
from sartor.report.runs import provenance

TEXTS = Texts(Path(__file__).with_name("page.md"))

COLUMNS = {
    "initial": "initial model", "finetune": "+ Finetune", "dapper": "+ Dapper",
    "mapper": "+ Mapper",
}  # fmt: skip

WRITERS = {"seen": 2500, "unseen": 900}
"""The paper's numbers of writers."""

CLAIMS = {
    "better": "The first is better than the second",
    "alike": "Personal models do not differ",
    "averse": "The first hurts fewer writers than the second",
}
"""The kinds of claims."""


def emnist_sections(record: Record) -> list[Section]:
    """The parts of the page about one run of the experiment."""
    results, accuracies = record.results, _accuracies(record)  # finds damage before any writing
    return [
        _summary(results),
        _tables(record),
        _claims(results),
        _clients(record, accuracies),
        *study_sections(record, TEXTS),
        method_section(results, TEXTS),
        provenance(record, command(results["settings"])),
    ]


def _summary(results: Row) -> Section:
    section = Section("Summary")
    generated = [TEXTS("generated")] if results["data"]["generated"] else []
    section.lead(
        [*generated, _best(results), *_clustering(results), *_personal(results), _hurt(results)]
    )
    section.warnings(results)
    if results["settings"]["quick"]:
        section.note(quick_version(results))
    return section


def _best(results: Row) -> str:
    best = []
    for table, group in TABLES.items():
        cells = {
            name: (cell, results["paper"][table][row][column])
            for name, (row, column) in table_methods(results).items()
            if (cell := results[table][row][column])["mean"] is not None
        }
        name, (cell, paper) = max(cells.items(), key=lambda item: item[1][0]["mean"])
        best.append(
            f"for {group} writers by {titled(name)}, {percent(cell['mean'])}% (95% interval "
            f"{spread(cell, percent)}; the paper has {percent(paper, 1)}%)"
        )
    return f"The best mean test accuracy is reached {' and '.join(best)}."


def _clustering(results: Row) -> list[str]:
    """HypCluster against FedAvg, if there are both."""
    pair = "hypcluster", "fedavg"
    found = [
        f"{points(c['mean'])} points{'' if c['beyond_chance'] else ' (may be chance)'} for "
        f"{c['group']} writers"
        for c in results["claims"]
        if (c["a"], c["b"]) == pair and not c["margin"]
    ]
    if not found:
        return []
    papers = [[results["paper"][table][row]["initial"] for row in pair] for table in TABLES]
    theirs = " and ".join(f"{100 * (a - b):+.1f}" for a, b in papers)
    return [f"HypCluster against FedAvg: {' and '.join(found)} (the paper: {theirs})."]


def _personal(results: Row) -> list[str]:
    """The gains of personal models, and whether it matters which."""
    claims = results["claims"]
    gains = [c for c in claims if c["kind"] == "better" and " + " in c["a"]]
    ranges = []
    for group in GROUPS:
        mine = sorted((c for c in gains if c["group"] == group), key=lambda c: c["mean"])
        ends = [f"{points(c['mean'])} ({titled(c['a'])})" for c in (mine[0], mine[-1])]
        ranges.append(f"{' to '.join(ends)} for {group} writers")
    sure = sum(c["beyond_chance"] for c in gains)
    pairs = [c for c in claims if c["kind"] == "alike"]
    apart = [c for c in pairs if c["beyond_chance"]]
    among = f"none of {len(pairs)} differences is beyond chance{_undecided(pairs)}."
    if apart:
        top = max(apart, key=lambda c: abs(c["mean"]))
        among = (
            f"{len(apart)} of {len(pairs)} differences are beyond chance. The largest is "
            f"{points(top['mean'])} points between {titled(top['a'])} and {titled(top['b'])} for "
            f"{top['group']} writers."
        )
    return [
        "Personal models change the accuracy of their central model by "
        f"{', and '.join(ranges)}, in points; {sure} of these {len(gains)} changes are beyond "
        "chance.",
        f"Among Finetune, Dapper and Mapper on the same central model {among}",
    ]


def _hurt(results: Row) -> str:
    hurt = [
        (found[group], f"{titled(name)}, {group}")
        for name in table_methods(results)
        for group in GROUPS
        if group in (found := results["methods"][name].get("hurt", {}))
    ]
    least, most = (pick(hurt, key=lambda h: h[0]["hurt"]) for pick in (min, max))
    beyond = max(found["hurt_beyond_chance"] for found, _ in hurt)
    sure = f"at most {share(beyond)} do" if beyond else "nobody does"
    return (
        f"With a personal model, {share(least[0]['hurt'])} ({least[1]}) to "
        f"{share(most[0]['hurt'])} ({most[1]}) of the writers get fewer of their test images right "
        f"than with its central model; beyond chance, {sure}."
    )


def _tables(record: Record) -> Section:
    section, results = Section("Tables 2 and 3"), record.results
    about, seeds = results["data"], results["settings"]["seeds"]

    def show(table: str, column: str, row: str) -> str:
        ours, theirs = (of[table][row][column] for of in (results, results["paper"]))
        return f"{percent(ours['mean'])} ({percent(theirs, 1)})"

    def stands_out(row: str, heading: str, best: object, columns: Row) -> bool:
        return (row, columns.get(heading)) == best

    for table, group in TABLES.items():
        cells = results[table]
        columns = {COLUMNS[c]: c for c in next(iter(cells.values()))}
        means = {(r, c): cells[r][c]["mean"] or 0.0 for r, c in table_methods(results).values()}
        best = max(means.items(), key=lambda item: item[1])[0]
        section.table(
            [(group, titled), *((h, partial(show, table, c)) for h, c in columns.items())],
            list(cells),
            f"Table {table[-1]}: test accuracy in % of {amount(about[group])} {group} writers, "
            f"mean over writers and {seeds} seed{'s' * (seeds > 1)}. In brackets: the paper's, of "
            f"{amount(WRITERS[group])} real writers. The best is bold."
            f"{data_note(results, paper=True)}",
            bold=partial(stands_out, best=best, columns=columns),
        )
    section.figure(
        tables_figure(results),
        "Filled: test accuracy with 95% intervals over writers. Hollow: the paper's numbers"
        + (", which are of real EMNIST." if about["generated"] else "."),
        record.figure("tables"),
    )
    for table, group in TABLES.items():
        rows = []
        for name, (row, column) in table_methods(results).items():
            cell, theirs = results[table][row][column], results["paper"][table][row][column]
            less = None if cell["mean"] is None else cell["mean"] - theirs
            shown = [percent(cell["mean"]), spread(cell, percent), percent(theirs, 1), points(less)]
            rows.append([titled(name), *shown, percent(cell["seed_deviation"])])
        head = [group, "accuracy, %", "95% interval", "the paper", "minus the paper", "± seeds"]
        section.table(
            listed(*head[: None if seeds > 1 else -1]),
            rows,
            f"Table {table[-1]} in full.{data_note(results, paper=True)}",
        )
    deviation = " ± seeds: the standard deviation of the seeds' means, in points."
    section.note(TEXTS("tables", seeds=deviation * (seeds > 1)))
    return section


def _claims(results: Row) -> Section:
    section, claims = Section("The paper's claims"), results["claims"]
    differences = [c for c in claims if c["kind"] != "alike"]
    alike = [c for c in claims if c["kind"] == "alike"]
    generated = ", on generated handwriting, which proves nothing about EMNIST"
    section.text(
        f"The paper claims or expects {len(differences)} differences; {count(differences)} of them "
        f"are shown here{_undecided(differences)}. It calls {len(alike)} differences not "
        f"significant; {count(alike)} of them are not shown here{_undecided(alike)}"
        f"{generated * results['data']['generated']}."
    )
    for kind, title in CLAIMS.items():
        mine = [as_claimed(claim) for claim in claims if claim["kind"] == kind]
        by_group = [[claim for claim in mine if claim["group"] == group] for group in GROUPS]
        rows = [claim for pair in zip(*by_group, strict=True) for claim in pair]
        section.heading(title)
        section.text(TEXTS(kind))
        section.table(
            [("first against second", _against), *difference_columns(results), ("found", verdict)],
            rows,
            f"{count(mine)} of {len(mine)} as the paper says{_undecided(mine)}."
            f"{data_note(results)}",
            text=("first against second",),
            left=("writers", "found"),
        )
    controls = "; the section on controls shows what more rounds alone do"
    joint = results["settings"]["joint"]
    section.note(TEXTS("claims", joint=joint, controls=controls * bool(results["comparisons"])))
    return section


def _undecided(claims: Sequence[Row]) -> str:
    undecided = count(claims, None)
    return f", and {undecided} cannot be decided by one seed" if undecided else ""


def _against(claim: Row) -> str:
    row, _, personal = claim["b"].partition(" + ")
    by = f", by {100 * claim['margin']:g} points or more" if claim["margin"] else ""
    return f"{titled(claim['a'])} against {titled(personal or row)}{by}"


def _clients(record: Record, accuracies: Mapping[str, Values]) -> Section:
    section, results = Section("Who gains and who is hurt"), record.results
    names, figures = table_methods(results), []
    for row in results["table2"]:
        changes = {
            titled(column): 100 * (accuracies[name] - accuracies[row])
            for name, (base, column) in names.items()
            if base == row and column != "initial"
        }
        figure = change_figure(changes, titled(row), "accuracy, points,", (5.0, 3.6))
        caption = f"On {titled(row)}: every writer of every seed, on its own test images."
        figures.append((figure, caption, record.figure(f"gains-{row}")))
    section.figures(figures)
    for group in GROUPS:
        section.table(
            listed(
                f"{group} writers", "mean gain", "95% interval", "gained", "hurt", "hurt*",
                "worst 10%", "its gain",
            ),
            [row for name in names if (row := _gain_row(results, name, group))],
            f"Against the central model, each writer on its own test images.{data_note(results)}",
        )  # fmt: skip
    tests = float(record.clients()["test_size"].to_numpy().mean())
    section.note(TEXTS("clients", tests=tests))
    averse = [claim for claim in results["claims"] if claim["kind"] == "averse"]
    fewer, total = count(averse), len(averse)
    more = sum(c["beyond_chance"] and not c["holds"] for c in averse)
    rest = total - fewer - more
    section.text(TEXTS("risk", fewer=fewer, more=more, total=total, rest=rest))
    return section


def _gain_row(results: Row, name: str, group: str) -> list[str]:
    """What a method gains over its central model; nothing, if there are no writers to compare."""
    method, central = results["methods"][name], results["methods"][name.partition(" + ")[0]]
    worst, base = (each["worst_decile"].get(group) for each in (method, central))
    if method is central:
        return [titled(name), *["–"] * 5, percent(worst, 1), "–"]
    if group not in method["hurt"]:
        return []
    gain, hurt = method["gain"][group], method["hurt"][group]
    return [
        titled(name), points(gain["mean"]), spread(gain, points),
        *(share(hurt[key]) for key in ("gained", "hurt", "hurt_beyond_chance")),
        percent(worst, 1), points(None if worst is None or base is None else worst - base),
    ]  # fmt: skip


def _accuracies(record: Record) -> dict[str, Values]:
    """The test accuracy of every writer of every seed by method, in the same order of writers."""
    table = record.clients()
    names, client = (np.array(table[c].to_pylist(), str) for c in ("method", "client"))
    seed, accuracy = (table[c].to_numpy().astype(float) for c in ("seed", "accuracy"))
    found = {}
    for name, (row, _) in table_methods(record.results).items():
        mine = np.flatnonzero(names == name)
        found[name] = accuracy[mine[np.lexsort((client[mine], seed[mine]))]]
        if not len(mine) or len(mine) != len(found[row]):
            raise ValueError(f"per_client.parquet lacks writers of {name}")
    return found


def compare(section: Section, records: Sequence[Record]) -> None:
    """The tables of several runs of the experiment."""
    generated = [r.name for r in records if r.results["data"]["generated"]]
    note = f"; generated handwriting: {', '.join(generated)}" if generated else ""
    for table, group in TABLES.items():

        def accuracies(record: Record, table: str = table) -> dict[str, str]:
            return {
                titled(name): percent(record.results[table][row][column]["mean"])
                for name, (row, column) in table_methods(record.results).items()
            }

        title = f"Table {table[-1]}, {group}"
        compare_values(section, title, records, accuracies, f"Test accuracy in %{note}")


PAGE = PageKind("The EMNIST experiment", emnist_sections, compare)

"""How the EMNIST experiment was done: data, network, hyper-parameters, and the command."""

from __future__ import annotations

from sartor.experiments.emnist.words import quick_version, titled, with_warm_rounds
from sartor.report.numbers import amount
from sartor.report.page import Row, Section, Texts, listed

PRECISION = {"f32": "float32", "bf16": "bfloat16, with parameters in float32"}


def command(settings: Row) -> str:
    """The command line that runs it again."""
    data = settings["data"]
    known = data if data in ("emnist", "generated") else "DATA"
    keys = ("writers", "seeds", "rounds", "joint", "precision", "seed")
    lines = [
        f"sartor reproduce emnist{' --quick' * settings['quick']} --data {known}",
        " ".join(f"--row {row}" for row in settings["rows"]),
        " ".join(f"--part {part}" for part in settings["parts"]),
        " ".join(f"--{key} {settings[key]}" for key in keys if key in settings),
        "--out DIRECTORY",
    ]
    return " \\\n    ".join(lines)


def method_section(results: Row, texts: Texts) -> Section:
    """Data, network, hyper-parameters, and the differences from the paper."""
    section, settings, about = Section("How it was done"), results["settings"], results["data"]
    domains = " and ".join(f"{amount(n)} of {name}" for name, n in about["domains"].items())
    counts = {key: amount(about[key]) for key in ("images", "writers", "seen", "unseen")}
    section.text(
        texts(
            "data",
            what="generated, not real, handwriting" if about["generated"] else "handwriting",
            domains=f" ({domains})" if domains else "",
            seeds=settings["seeds"],
            **counts,
        )
    )
    section.text(texts("validation", validation=settings["validation"]))
    network, precision = texts(settings["network"]), PRECISION[settings["precision"]]
    section.text(texts("network", network=network, precision=precision))
    section.table(
        listed("algorithm", "settings"), _algorithms(results), texts("algorithms"),
        text=("settings",),
    )  # fmt: skip
    section.text(texts("differences"))
    if settings["quick"]:
        section.note(quick_version(results))
    return section


def _steps(algorithm: Row) -> str:
    epochs = algorithm["epochs"]
    return f"{epochs} epoch{'s' * (epochs > 1)} with step size {algorithm['learning_rate']:g}"


def _algorithms(results: Row) -> list[list[str]]:
    """The hyper-parameters of the tables' rows and columns."""
    known = {row: results["algorithms"][row] for row in results["table2"]}
    first = next(iter(known.values()))
    central, personal = first["central"], first["personal"]
    found = [[
        "all", f"{central['rounds']} rounds of {central['cohort']} writers, batches of "
        f"{central['batch']}, server step size {central['server_learning_rate']:g} and momentum "
        f"{central['server_momentum']:g}",
    ]]  # fmt: skip
    more = {
        "fedavg": "",
        "agnostic": "; the domains are the writers' sources, step size {domain_step:g}",
        "hypcluster": "; {q} clusters; {warm_rounds} of its rounds train each model apart, before "
        "writers choose",
    }
    for row, algorithms in known.items():
        central = algorithms["central"]
        found.append([titled(row), _steps(central) + more[row].format(**with_warm_rounds(central))])
    dapper, mapper = personal["dapper"], personal["mapper"]
    return [
        *found,
        ["Finetune", _steps(personal["finetune"])],
        [
            "Dapper", f"{_steps(dapper)}, {dapper['r']} images of all seen writers for each own "
            f"one; {len(dapper['cover'])} candidates λ",
        ],
        [
            "Mapper", f"{_steps(mapper)}; {len(mapper['cover'])} candidates λ; {mapper['rounds']} "
            "more rounds, which train the central model through the mixtures",
        ],
    ]  # fmt: skip

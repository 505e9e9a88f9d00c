"""Classes by name, so that configurations and saved models find them."""

from typing import Any

from sartor.errors import ConfigError

REMEDY = "choose another name, or add listed=False to the class"


def register(known: dict[str, Any], name: str, kind: type, remedy: str = REMEDY) -> None:
    """Make a class known by a name.

    Users may define a class of theirs again, as notebooks do. They cannot replace one of Sartor's:
    saved models would then predict with the wrong class.

    Args:
        known: the classes by name.
        name: the new name.
        kind: the new class.
        remedy: what its author can do if the name is taken.
    """
    if name in known and _is_ours(known[name]) and not _is_ours(kind):
        raise ConfigError(
            f"the name of class {kind.__name__} is taken by Sartor's own {known[name].__name__}; "
            f"{remedy}"
        )
    known[name] = kind


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "sartor"

"""Progress goes to stderr, and only where somebody looks."""

from __future__ import annotations

import pytest

from sartor.progress import Bar


@pytest.mark.parametrize("show", [None, False])
def test_silent_where_there_is_no_terminal(capsys, show):
    with Bar("rounds", total=3, show=show) as bar:
        bar.update(3, "loss 0.1")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_shown_on_demand(capsys):
    with Bar("FedAvg", total=3, show=True) as bar:
        bar.update(2, "loss 0.25")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(word in captured.err for word in ("FedAvg", "2/3", "loss 0.25"))


def test_an_end_that_is_not_known(capsys):
    with Bar("fetching", total=None, show=True) as bar:
        bar.update(2)
    assert "2/?" in capsys.readouterr().err


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), Bar("rounds", total=3, show=False):
        _ = 1 / 0


def test_lines_are_for_logs_only(capsys):
    with Bar("rounds", 2) as bar:  # no terminal here
        bar.line("one is done")
    assert "one is done" in capsys.readouterr().err
    for show in (True, False):
        with Bar("rounds", 2, show=show) as bar:
            bar.line("two are done")
        assert "two are done" not in capsys.readouterr().err

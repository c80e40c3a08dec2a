"""What is seen of a flow while it runs, on a terminal and in a log."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from penstock.pipelines.flow.display import Display


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


def wait_until(seen) -> None:
    deadline = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    return found


def test_a_terminal_shows_what_runs_and_the_last_line_of_its_log(monkeypatch, tmp_path):
    terminal = a_terminal(monkeypatch)
    display, log = Display(quiet=False), tmp_path / "walks.log"
    display.begin("walks", "there is no output yet", log)
    wait_until(lambda: "walks" in terminal.getvalue())
    log.write_text("walk: 10 %\nwalk: 40 %\x1b[2J, [bold]" + "x" * 200 + "\n")
    wait_until(lambda: "walk: 40 %" in terminal.getvalue())
    display.say("graph: [1] s")
    display.end("walks")
    display.end("never begun")
    display.close()
    text = terminal.getvalue()
    assert "graph: [1] s" in text
    assert "[bold]xx" in text
    assert "\x1b[2J" not in text  # what a log holds does not command the terminal
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 60
    display.say("after")
    assert terminal.getvalue().endswith("after\n")


def test_lines_stay_on_their_terminal_when_standard_error_is_replaced(monkeypatch, tmp_path):
    """As a test's capture or another thread's redirection does."""
    terminal, other = a_terminal(monkeypatch), io.StringIO()
    display, log = Display(quiet=False), tmp_path / "walks.log"
    display.begin("walks", "there is no output yet", log)
    proxy = sys.stderr
    monkeypatch.setattr(sys, "stderr", other)
    log.write_text("walk: 40 %\n")
    wait_until(lambda: "walk: 40 %" in terminal.getvalue())
    display.say("graph: 1 s")
    monkeypatch.setattr(sys, "stderr", proxy)
    display.close()
    assert "graph: 1 s" in terminal.getvalue()
    assert other.getvalue() == ""


def test_a_log_gets_a_line_when_a_stage_begins(capsys, tmp_path):
    display = Display(quiet=False)
    display.begin("walks", "option length: 5 -> 6", tmp_path / "walks.log")
    display.end("walks")
    display.close()
    assert capsys.readouterr().err == "walks: runs, option length: 5 -> 6\n"


def test_a_quiet_run_shows_nothing(monkeypatch, tmp_path):
    terminal = a_terminal(monkeypatch)
    display = Display(quiet=True)
    display.begin("walks", "--force", tmp_path / "walks.log")
    display.say("walks: 1 s")
    display.close()
    assert terminal.getvalue() == ""

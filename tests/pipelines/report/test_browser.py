"""What a headless Chromium makes of a page: charts are drawn, and hostile names do nothing."""

import os
import shutil
import subprocess

import pytest

from penstock.pipelines.flow.records import load_run
from penstock.pipelines.report.command import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HIT = "document.documentElement.dataset.hit=1"
EVIL = f"</script><script>{HIT}</script><img src=x onerror={HIT}>$$x$$\"'&"


@pytest.mark.browser
@pytest.mark.slow
def test_charts_are_drawn_and_hostile_names_do_nothing(make_run, tmp_path):
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is installed")
    make_run(1, evil=EVIL)
    page = write_report(load_run(make_run(2, evil=EVIL)))
    words = [program, "--headless", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words += ["--virtual-time-budget=60000", "--enable-logging=stderr", "--dump-dom"]
    words += ["--no-sandbox"] * (os.geteuid() == 0)
    done = subprocess.run([*words, page.as_uri()], capture_output=True, text=True, timeout=120)
    if done.returncode:  # as a stand-in that wants a package manager
        pytest.skip(f"Chromium ends with {done.returncode} when it is started")
    assert 'data-drawn="yes"' in done.stdout
    assert "data-hit" not in done.stdout
    assert "<img" not in done.stdout
    said = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line]
    assert [line for line in said if "setting log level" not in line] == []

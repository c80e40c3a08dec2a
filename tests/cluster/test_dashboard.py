"""The dashboard is loaded when it is opened, and not before."""

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from urllib.request import urlopen
from penstock.cluster.local import open_local
from penstock.cluster.spec import ClusterSpec

def main():
    spec = ClusterSpec(cluster="local", workers=1, no_tls=True)
    with open_local(spec) as running:
        with urlopen(running.dashboard.replace("/status", "/health"), timeout=30) as page:
            print(page.status, "bokeh" in sys.modules)
        with urlopen(running.dashboard.replace("status", "individual-plots.json")) as page:
            print(page.status, b"individual-" in page.read())
        for _ in range(2):
            with urlopen(running.dashboard, timeout=30) as page:
                print(page.status, b"Bokeh" in page.read() or b"bokeh" in page.read())
        with urlopen(running.dashboard.replace("/status", "/"), timeout=30) as page:
            print(page.status, page.url == running.dashboard, "bokeh" in sys.modules)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_it_is_loaded_when_somebody_looks(tmp_path):
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = [sys.executable, "-P", str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["200 False", *["200 True"] * 3, "200 True True"], (
        done.stderr
    )

"""A first run reports that it compiles, on any cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import generate


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["threads", "local"])
def test_a_first_run_says_that_it_compiles(tmp_path: Path, cluster: str) -> None:
    generate("sbm", tmp_path / "g", nodes=100)
    words = f"word2vec train g v --dim 8 --cluster {cluster}"  # which compiles for seconds
    command = [sys.executable, "-m", "penstock", *words.split()]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def said(*more: str) -> str:
        done = subprocess.run(
            [*command, "-n", "1", "--overwrite", *more], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return done.stderr

    assert said().count("compiling") == 1
    assert "compiling" not in said()

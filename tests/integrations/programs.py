"""Small programs in a Python of their own: what a framework does at its end can be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.source import ROOT

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python …`` in ``folder``; warnings are errors there, too."""
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complaint(folder: Path, module: str, *missing: str) -> str:
    """What importing ``module`` says where these packages are not installed."""
    program = (
        WITHOUT.format(names=set(missing))
        + f"""
from windlass.errors import MissingDependency
try:
    import {module}
except MissingDependency as error:
    print(error)
"""
    )
    ran = run(folder, "-c", program)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()

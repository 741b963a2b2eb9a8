"""Test with other versions than the pinned ones: the lowest that pyproject.toml allows.

    python -m tests.versions [--python python3.12] [--torch 2.13.0] [tests/heads ...]

Makes an environment in build/versions, with every dependency at its lower bound and what only the
tests need at what fits beside it, runs the tests there (those of all rooms that need no further
tool, if none are named), and prints a row for the table of docs/contributing.md. torch is what
--torch says: a build for the processor alone cannot be had of every version.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("duckdb", "faiss", "onnx", "postgres", "serve", "tensorboard", "zstd")
TOOLS = (
    "gensim", "httpx", "hypothesis", "lightning", "matplotlib", "onnxruntime", "pandas", "psutil",
    "pytest", "pytest-xdist", "schemathesis", "scipy",
)  # fmt: skip
ROOMS = (
    "auditing", "config", "data", "declarations", "encoders", "evaluation", "heads", "index",
    "kernels", "models", "ngrams", "objectives", "optim", "runs", "sampling", "scoring", "serving",
    "storage", "training", "vectors", "vocabulary",
)  # fmt: skip


def lowest(torch: str) -> list[str]:
    """Return every requirement of the package and of its extras at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = list(project["dependencies"])
    for extra in EXTRAS:
        asked += project["optional-dependencies"][extra]
    bounds = [each for each in asked if not each.startswith("torch>")]
    return [f"torch=={torch}", *sorted({each.replace(">=", "==", 1) for each in bounds})]


def installed(python: Path) -> dict[str, str]:
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], text=True, capture_output=True, check=True
    )
    return dict(line.split("==", 1) for line in listed.stdout.splitlines() if "==" in line)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to test with")
    parser.add_argument("--torch", default="2.13.0", help="the version of torch")
    parser.add_argument("tests", nargs="*", default=[f"tests/{room}" for room in ROOMS])
    options = parser.parse_args()
    version = subprocess.run(
        [options.python, "-c", "import platform; print(platform.python_version())"],
        text=True, capture_output=True, check=True,
    ).stdout.strip()  # fmt: skip
    place = ROOT / "build" / "versions" / f"python-{version}-torch-{options.torch}"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([options.python, "-m", "venv", place], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *lowest(options.torch), *TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.tests],
        cwd=ROOT, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    print(done.stdout[-6000:])
    counts = dict.fromkeys(("passed", "skipped", "failed"), "0")
    counts |= {kind: n for n, kind in re.findall(r"(\d+) (passed|skipped|failed)", done.stdout)}
    found = installed(python)
    names = ("torch", "numpy", "numba", "polars", "safetensors", "typer", "fastapi", "faiss-cpu")
    print(
        f"| {version} | " + " | ".join([*(found[name] for name in names), *counts.values()]) + " |"
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

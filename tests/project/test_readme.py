"""The first screen: its code runs as it stands, and both languages say the same commands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from widemax.declarations.table import names

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"


def blocks_of(path):
    """The blocks of code of a page: their language and their text."""
    return re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


def without_blocks(path):
    """What a page says between its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))


def commands_of(path):
    """The blocks of a page without what is said beside the commands of a shell."""
    return [
        (language, text if language else re.sub(r"[ \t]+#.*", "", text))
        for language, text in blocks_of(path)
    ]


def test_the_first_screen_prints_what_it_says(tmp_path):
    (_, _), (_, code), (_, said), *_ = blocks_of(ENGLISH)
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.stdout, done.stderr) == (said, "")


def test_the_objective_of_the_page_trains(tmp_path):
    code = next(code for _, code in blocks_of(ENGLISH) if "declare.objective" in code)
    command = next(text for _, text in blocks_of(ENGLISH) if "--plugin focal.py" in text).split()
    (tmp_path / "focal.py").write_text(code, encoding="utf-8")
    lines = [f"user{n % 20},item{n * n % 31},{n}" for n in range(400)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *lines]))
    words = [word.replace("log.parquet", "log.csv") for word in command[1:]]
    words = ["-m", "widemax", *words, "--epochs", "1", "--threads", "1"]
    done = forked.run(words, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "objective focal" in done.stderr
    assert "finished after" in done.stderr


def test_both_languages_have_the_same_commands_and_figures():
    assert commands_of(ENGLISH) == commands_of(CHINESE)
    english, chinese = (
        set(re.findall(r"`[^`]+`|\d[\d.,]*\d×?", without_blocks(path)))
        for path in (ENGLISH, CHINESE)
    )
    assert sorted(english - chinese) == []


@pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=lambda path: path.name)
def test_the_first_page_is_short_and_its_links_are_there(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


def test_every_model_is_named():
    text = ENGLISH.read_text(encoding="utf-8")
    assert [name for name in names("model") if f"`{name}`" not in text] == []

"""Reports: one file, whose content is text whatever it is, with every figure behind its plot."""

import random
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.reporting import Page, Series, Table, bar_chart, line_chart, to_html, to_markdown
from widemax.reporting.charts import COLOURS

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"
VOID = {"meta", "link", "img", "br"}
SHAPES = {"line", "circle", "rect", "polyline"}


class Outline(HTMLParser):
    """The elements of a page, each closed where it was opened."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def page_of(name):
    chart = line_chart(
        name,
        name,
        [
            Series(name=name, points=[(1, 2), (10, 3)], errors=[0.1, 0.2]),
            Series(name="b", points=[]),
        ],
        x=name,
        y=name,
        log_x=True,
    )
    bars = bar_chart(name, name, [name], [Series(name=name, points=[(0, 1.0)])], y=name)
    table = Table(title=name, header=[name], rows=[[name]], about=name)
    return Page(title=name, summary=[name], parts=[chart, bars, table], command=name, versions=name)


def test_whatever_is_shown_is_text():
    outline = Outline(to_html(page_of(HOSTILE)))
    assert not outline.all("img")
    assert len(outline.all("script")) == 1
    assert HOSTILE in outline.text
    for _, attributes in outline.found:
        assert not any(name.startswith("on") for name in attributes)


def test_a_page_asks_for_nothing():
    outline = Outline(to_html(page_of("loss")))
    for _, attributes in outline.found:
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:")
    (policy,) = (each["content"] for each in outline.all("meta") if "http-equiv" in each)
    assert policy.startswith("default-src 'none'")


def test_every_plot_says_what_it_shows_and_has_its_figures():
    outline = Outline(to_html(page_of("loss")))
    drawings = outline.all("svg")
    assert len(drawings) == len(outline.all("details")) == 2
    assert all(each["aria-label"] for each in drawings)
    chart = page_of("loss").parts[0]
    assert chart.rows == [["loss", "1", "2", "0.1"], ["loss", "10", "3", "0.2"]]


def test_what_an_axis_cannot_show_is_left_out_of_the_drawing_and_stays_in_the_table():
    points = [(0, 1), (1, float("nan")), (10, 5), (100, 7)]
    chart = line_chart("a", "b", [Series(name="c", points=points)], x="x", y="y", log_x=True)
    assert chart.svg.count("<circle") == 2
    assert [row[2] for row in chart.rows] == ["1", "–", "5", "7"]
    assert "nan" not in chart.svg


def test_a_colour_that_comes_again_has_rings_for_marks():
    series = [Series(name=str(each), points=[(1, each)]) for each in range(COLOURS + 1)]
    chart = line_chart("a", "b", series, x="x", y="y")
    assert chart.svg.count('fill="var(--card)"') == 1
    page = to_html(replace(page_of("loss"), parts=[chart]))
    assert page.count('class="disc"') == COLOURS
    assert page.count('class="ring"') == 1


def test_markdown_has_the_tables():
    text = to_markdown(page_of("a|b"))
    assert "| a\\|b |" in text
    assert text.count("## ") == 3


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_a_run_is_reported(tmp_path, suffix):
    drawn, rows = random.Random(0), ["user,item,time"]
    for user in range(40):
        start = drawn.randrange(20)
        rows += [f"u{user},i{(start + step) % 20},{step}" for step in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    config = wm.Config(model="next-item", dimension=8, epochs=3, split="last", patience=0)
    run = wm.train(tmp_path / "log.csv", config, folder=tmp_path / "run")
    audit = run.audit(draws=20, num_samples=(2, 4, 8))
    out = tmp_path / f"report.{suffix}"
    called = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--out", str(out)])
    assert called.exit_code == 0, called.output
    text = out.read_text()
    recall = run.evaluate_recommendations(ks=(20,)).metrics()["recall@20"]
    assert f"{recall:.4f}" in text
    assert "recall@20 by popularity" in text
    assert "ndcg@20 in validation" in text
    assert audit.verdict in text
    assert "Bias and variance against the number of samples" in text


def test_a_folder_that_is_neither_is_refused(tmp_path):
    called = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert called.exit_code != 0
    assert "is not the folder of a run" in str(called.exception)

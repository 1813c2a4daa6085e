"""Reports as Markdown, CSV, JSON, HTML and pictures: whole, escaped, and the same every time."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from ppsolve.models.studies.bench.file import BenchRecord
from ppsolve.solver.studies.bench.report.report import Report, bench_report
from ppsolve.solver.views.bench import pictures
from ppsolve.solver.views.bench.latex import latex_report, profiles_csv
from ppsolve.solver.views.bench.outputs import (
    csv_report,
    html_report,
    markdown_report,
    terminal_report,
)
from ppsolve.solver.views.bench.pictures import LIMITS, Picture, draw_pictures
from ppsolve.solver.views.bench.sections import FOOTER, Section, sections, with_profiles
from ppsolve.solver.views.terminal import TerminalConsole
from tests.studies.bench.records import MACHINE
from tests.studies.bench.results import crashed, heuristic, proved, results, unproved

EVIL = "</script><b>\"&' | `x` [a](b) $y$ é"
SVG = "{http://www.w3.org/2000/svg}"


def report_of(*records: BenchRecord, before: BenchRecord | None = None) -> Report:
    baseline = None if before is None else (results(before), "old.jsonl")
    return bench_report(results(*records), "r.jsonl", baseline)


def evil_report() -> Report:
    """Return a report in which every text of a user is hostile."""
    entries = [
        heuristic(EVIL, 150),
        heuristic("_hidden", None, status="failed", reason=EVIL),
    ]
    changes = {"family": EVIL, "instance": EVIL, "heuristics": entries}
    broken = crashed(error=EVIL, family=EVIL, failure="error")
    return report_of(
        proved(**changes), broken, crashed(), before=proved(**changes, value=90)
    )


def drawn(report: Report) -> dict[str, Picture]:
    return {picture.name: picture for picture in draw_pictures(report)}


@pytest.fixture(scope="module")
def plain() -> dict[str, Picture]:
    return drawn(report_of())


@pytest.fixture(scope="module")
def evil() -> dict[str, Picture]:
    return drawn(evil_report())


def shown(report: Report, width: int = 100, *, verbose: bool = False) -> str:
    console = TerminalConsole(width=width)
    with console.capture() as capture:
        console.print(terminal_report(report, verbose=verbose))
    return capture.get()


def section(report: Report, title: str) -> Section:
    return next(one for one in sections(report) if one.title == title)


def cells(found: Section) -> list[list[str]]:
    assert found.sheet is not None
    return [list(row) for row in found.sheet.rows]


class Page(HTMLParser):
    """Reads a page: elements that are open, texts of cells and headings, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.cells: list[str] = []
        self.titles: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in {"meta", "img", "wbr"}:
            self.open.append(tag)
        if tag in {"td", "th"}:
            self.cells.append("")
        if tag in {"h1", "h2", "h3"}:
            self.titles.append("")
        self.ids += [str(found["id"])] if "id" in found else []
        self.loads += [
            str(found[name]) for name in ("src", "href", "xlink:href") if name in found
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data
        elif {"h1", "h2", "h3"} & set(self.open):
            self.titles[-1] += data


class TestSections:
    def test_families(self) -> None:
        rows = cells(section(report_of(), "Families"))
        assert [row[:8] for row in rows] == [
            ["a", "2", "2", "1", "0", "5.00 %", "5.00 %", "10.00 %"],
            ["b", "1", "0", "0", "1", "-", "-", "-"],
            ["all", "3", "2", "1", "1", "5.00 %", "5.00 %", "10.00 %"],
        ]

    def test_instances_of_one_name_are_told(self) -> None:
        twins = [unproved(key=name, content=name) for name in "xy"]
        found = section(report_of(*twins), "Families")
        assert found.notes == ("2 instances are called a/two.",)

    def test_one_family_needs_no_total_and_no_section_of_its_own(self) -> None:
        found = report_of(proved(), unproved())
        assert [row[0] for row in cells(section(found, "Families"))] == ["a"]
        assert [one for one in sections(found) if one.family is not None] == []

    def test_methods_that_no_instance_is_made_for_are_named_alone(self) -> None:
        found = section(report_of(), "Methods")
        assert [row[0] for row in cells(found)] == ["ppsolve", "other", "gpipe", "1f1b"]
        assert found.notes == (
            "Not applicable to any instance: zbv.",
            "%: above the best value of any method. In common: 1 instance solved by all methods "
            "here.",
        )

    def test_means_stand_beside_those_on_the_instances_in_common(self) -> None:
        found = section(report_of(), "Methods").sheet
        assert found is not None
        assert [column.title for column in found.columns[5:7]] == [
            "mean %",
            "on 1 in common",
        ]
        assert [row[5:7] for row in found.rows] == [
            ("2.63", "5.26"), ("0.00", "0.00"), ("40.79", "31.58"), ("5.26", "5.26"),
        ]  # fmt: skip

    def test_methods_that_are_not_compared_are_named(self) -> None:
        report = report_of(
            *(proved(key=str(k), instance=str(k)) for k in range(8)), unproved()
        )
        note = section(report, "Methods").notes[-1]
        assert note.endswith(
            "In common: 9 instances solved by all methods here but 1f1b."
        )

    def test_near_the_best(self) -> None:
        rows = {row[0]: row[1:] for row in cells(section(report_of(), "Near the best"))}
        assert rows["other"] == ["100"] * 8
        assert rows["gpipe"] == ["0"] * 6 + ["100"] * 2
        assert rows["1f1b"] == ["0"] * 4 + ["50"] * 4

    def test_alarms_come_first(self) -> None:
        titles = [one.title for one in sections(evil_report())]
        assert titles[:3] == ["Contradictions", "Regressions", "Families"]
        assert [one.is_alarm for one in sections(evil_report())][:3] == [
            True,
            True,
            False,
        ]

    def test_no_regression_is_said_without_alarm(self) -> None:
        found = section(report_of(before=proved()), "Regressions")
        assert not found.is_alarm
        assert found.notes == (
            "1 instance is in both files.",
            "Only in the later file: a/two, b/three.",
            "No regression.",
        )

    def test_remarks_on_machines_and_limits(self) -> None:
        other = proved(machine="m2", time_limit=99)
        notes = section(report_of(proved(), before=other), "Regressions").notes
        assert notes[1:3] == (
            "They were not all solved on one machine: times say little.",
            "Time limits differ, and so may what was found within them.",
        )

    def test_machines(self) -> None:
        assert section(report_of(), "Machines").notes == (f"{MACHINE}.",)


class TestTerminal:
    def test_headline_and_words(self) -> None:
        lines = shown(report_of()).splitlines()
        assert (
            lines[0]
            == "3 instances, 2 solved, 1 proved, mean gap 5.00 %, 1 failed, 13.0 s"
        )
        assert lines[1] == "r.jsonl: 3 instances of a, b; 10 s; A CPU, 2 cores"
        assert lines[-1].startswith("Mean gap over time: a run counts as 100 %")

    def test_single_families_are_shown_on_request(self) -> None:
        assert "Methods on a" not in shown(report_of())
        assert "Methods on a" in shown(report_of(), verbose=True)

    def test_no_name_is_cut_at_80_columns(self) -> None:
        """A cell that wraps goes on below: what stands there makes the whole name."""
        place, mine = (
            "an-instance-with-a-long-name" * 3,
            f"{'folder/' * 9}mine.py:function",
        )
        entries = [
            heuristic(mine, 150),
            heuristic("gpipe", None, status="failed", reason=mine),
        ]
        found = report_of(
            unproved(instance=place, heuristics=entries, family="family" * 6)
        )
        text = shown(found, 80)
        starts = [
            line.rstrip() for line in text.splitlines() if line.startswith("method ")
        ]
        assert starts[0].split()[:3] == ["method", "solved", "wins"]
        assert starts[0].endswith("worst on")
        assert "~" not in text
        assert "…" not in text
        for first, last in (
            (0, starts[0].index("solved")),
            (starts[0].index("worst on"), 80),
        ):
            column = "".join(line[first:last].strip() for line in text.splitlines())
            assert (mine if first == 0 else place) in column

    def test_the_only_family_is_not_repeated(self) -> None:
        found = report_of(
            unproved(instance="zb-6.2b-8x6-0.5p", family="few_microbatches")
        )
        assert cells(section(found, "Methods"))[0][9] == "zb-6.2b-8x6-0.5p"
        assert cells(section(report_of(), "Methods"))[0][9] == "a/two"

    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_lines_fit(self, width: int) -> None:
        assert (
            max(map(len, shown(report_of(before=proved(value=90)), width).splitlines()))
            <= width
        )


class TestMarkdown:
    def test_tables(self) -> None:
        lines = markdown_report(report_of()).splitlines()
        assert (
            lines[0] == "# Benchmark report: 3 instances of a, b; 10 s; A CPU, 2 cores"
        )
        assert "| a | 2 | 2 | 1 | 0 | 5.00 % |" in next(
            x for x in lines if x.startswith("| a |")
        )
        assert "### Methods on a" in lines
        assert len([line for line in lines if line.startswith("- ")]) == len(FOOTER)

    def test_every_row_has_the_cells_of_its_head(self) -> None:
        width = 0
        for line in markdown_report(evil_report()).splitlines():
            count = len(re.findall(r"(?<!\\)\|", line))
            width = width or count
            assert count in {width, 0}
            width = count

    def test_names_are_escaped(self) -> None:
        text = markdown_report(evil_report())
        assert r"\</script\>\<b\>" in text
        assert re.search(r"(?<!\\)</?[a-z]", text) is None
        assert r"\[a\](b) \$y\$ é" in text


class TestCsv:
    def test_rows(self) -> None:
        rows = list(csv.DictReader(io.StringIO(csv_report(report_of()))))
        found = {(row["family"], row["role"], row["name"]): row for row in rows}
        ours = found["a", "ours", "ppsolve"]
        assert (ours["solved"], ours["wins"], ours["gap_worst"]) == ("2", "1", "0.1")
        assert (ours["to_proof_mean"], ours["to_best_worst_at"]) == ("1.0", "two")
        assert found["all", "heuristic", "gpipe"]["excess_worst"] == "0.5"

    def test_names_are_no_formulas(self) -> None:
        report = report_of(proved(family="=1+1"))
        assert {
            row["family"] for row in csv.DictReader(io.StringIO(csv_report(report)))
        } == {
            "all",
            "'=1+1",
        }


class TestLatex:
    ESCAPED = (
        r"\textless{}/script\textgreater{}\textless{}b\textgreater{}''\&' \textbar{} `x` "
        r"{[}a{]}(b) \$y\$ é"
    )

    def rows(self, text: str) -> list[list[str]]:
        return [
            re.split(r"(?<!\\) ?& ?", line.strip().removesuffix(r" \\"))
            for line in text.splitlines()
            if line.endswith(r"\\")
        ]

    def test_tables(self) -> None:
        text = latex_report(report_of())
        rows = self.rows(text)
        assert text.count("\\centering\\small") == text.count("\\begin{table}")
        assert rows[0][:6] == [
            "family",
            "instances",
            "solved",
            "proved",
            "failed",
            "mean gap",
        ]
        assert rows[1][:6] == ["a", "2", "2", "1", "0", r"5.00 \%"]
        assert rows[4][:4] == ["method", "solved", "proved", "wins"]
        assert rows[7][:6] == ["gpipe", "2", "0", "0", "40.79", "31.58"]
        assert re.findall(r"\\label\{(.*)\}", text) == [
            "tab:families", "tab:methods", "tab:methods-by-family", "tab:near-the-best",
            "tab:methods-on-a", "tab:methods-on-b",
        ]  # fmt: skip
        captions = re.findall(r"\\caption\{(.*)\}", text)
        assert captions[0] == "Families: 3 instances of a, b; 10 s; A CPU, 2 cores."
        assert captions[4].startswith(
            "Methods on a: 2 instances of a; 10 s; A CPU, 2 cores. "
        )

    def test_every_table_is_whole_whatever_names_hold(self) -> None:
        text = latex_report(evil_report())
        assert self.ESCAPED in text
        for table in re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.DOTALL):
            rules = (
                "toprule",
                "midrule",
                "bottomrule",
                "caption{",
                "label{",
                "centering",
            )
            assert [table.count(f"\\{rule}") for rule in rules] == [1] * 6
            columns = re.findall(
                r"\\begin\{tabular\}\{(l r*)\}".replace(" ", ""), table
            )
            assert {len(row) for row in self.rows(table)} == {len(columns[0])}
            bare = re.sub(r"\\[a-z]+|\\[&%$#_{}\\]", "", table)
            assert bare.count("{") == bare.count("}")
            assert not set(bare.replace(" & ", "")) & set('&%$#_^~<>|"\\')
        labels = re.findall(r"\\label\{(.*)\}", text)
        assert len(labels) == len(set(labels)) == text.count(r"\begin{table}") > 4

    def test_alarms_and_texts_stay_out(self) -> None:
        assert "Contradictions" not in latex_report(evil_report())
        assert "Why methods" not in latex_report(evil_report())


class TestProfiles:
    def test_columns_are_shares_at_every_ratio(self) -> None:
        rows = list(csv.DictReader(io.StringIO(profiles_csv(report_of()))))
        assert list(rows[0]) == ["ratio", "ppsolve", "other", "gpipe", "1f1b"]
        assert [row["ratio"] for row in rows] == [
            "1",
            "1.05263158",
            "1.31578947",
            "1.5",
        ]
        assert [row["gpipe"] for row in rows] == ["0", "0", "0.5", "1"]
        assert [row["ppsolve"] for row in rows] == ["0.5", "1", "1", "1"]

    def test_names_need_no_escape_and_differ(self) -> None:
        names = ("Ratio", "a_b", "a:b", EVIL, "x.py:f")
        entries = [heuristic(name, 150 + n) for n, name in enumerate(names)]
        head = profiles_csv(
            report_of(proved(heuristics=entries, peers=None))
        ).splitlines()[0]
        assert head == "ratio,ppsolve,Ratio-,a-b,a-b-,script-b-x-a-b-y,x.py-f"


def test_json_has_every_figure() -> None:
    found = json.loads(
        json.dumps(report_of(before=proved(value=90)).document(), allow_nan=False)
    )
    assert (found["schema"], found["kind"], found["baseline"]) == (
        1,
        "bench-report",
        "old.jsonl",
    )
    assert found["every"]["total"]["gap"]["worst"] == 0.1
    assert found["families"][0]["methods"][0]["method"] == {
        "role": "ours",
        "name": "ppsolve",
    }
    assert found["comparison"]["regressions"][0]["change"] == "value"
    assert found["machines"] == [MACHINE]


class TestPage:
    def test_it_is_whole_and_loads_nothing(self, plain: dict[str, Picture]) -> None:
        text = html_report(report_of(), plain)
        page = Page(text)
        assert page.open == []
        assert all(one.startswith("data:image/svg+xml") for one in page.loads)
        assert len(page.ids) == len(set(page.ids))
        assert "http" not in text.replace("http-equiv", "")

    def test_it_has_sections_figures_and_both_colour_schemes(
        self, plain: dict[str, Picture]
    ) -> None:
        text = html_report(report_of(before=unproved(value=195)), plain)
        page = Page(text)
        assert page.titles[:3] == [
            "Benchmark report: 3 instances of a, b; 10 s; A CPU, 2 cores", "Regressions",
            "Families",
        ]  # fmt: skip
        assert {"gpipe", "50.00", "a/one"} <= set(page.cells)
        for rule in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
            assert rule in text
        assert text.count("<img") == len(plain) == 3

    def test_names_are_escaped(self, evil: dict[str, Picture]) -> None:
        text = html_report(evil_report(), evil)
        page = Page(text)
        assert page.open == []
        assert text.count("<script") == text.count("</script>") == 1
        assert "<b>&quot;" not in text
        assert f"{EVIL}/{EVIL}" in page.cells

    def test_without_pictures(self) -> None:
        text = html_report(report_of(), None)
        assert "No pictures: they need matplotlib" in text
        assert "<img" not in text
        assert Page(text).open == []

    def test_equal_reports_give_equal_pages(self, plain: dict[str, Picture]) -> None:
        again = html_report(report_of(), drawn(report_of()))
        assert html_report(report_of(), plain) == again


class TestPictures:
    def test_they_are_svg(self, evil: dict[str, Picture]) -> None:
        assert list(evil)[:2] == ["profiles", "anytime"]
        for picture in evil.values():
            root = ElementTree.fromstring(picture.svg)
            assert root.tag == f"{SVG}svg"
            assert len(root.findall(f".//{SVG}path")) > 10

    def test_many_methods_and_families_share_few_lines(self) -> None:
        entries = [heuristic(f"h{number}", 130 - number) for number in range(30)]
        records = [
            unproved(
                key=str(k),
                family=f"f{k}",
                value=200 + k,
                heuristics=entries,
                peers=None,
            )
            for k in range(12)
        ]
        report = report_of(*records)
        curves = [curve.family for curve in pictures._chosen_curves(report)]
        assert len(curves) == LIMITS.lines
        assert curves[0] == "all"
        chosen = [
            profile.method.name
            for profile in with_profiles(report.every)[: LIMITS.lines]
        ]
        assert chosen == ["ppsolve", *(f"h{number}" for number in range(29, 21, -1))]

    def test_methods_that_coincide_are_one_line(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn_lines: dict[str, object] = {}
        monkeypatch.setattr(
            pictures,
            "_draw_steps",
            lambda axes, lines, *others: drawn_lines.update(lines),
        )
        entries = [
            heuristic("gpipe", 150),
            heuristic("bfs", 150),
            heuristic("1f1b", 140),
        ]
        drawn(report_of(proved(heuristics=entries)))
        assert list(drawn_lines)[:3] == ["ppsolve = other", "1f1b", "bfs = gpipe"]

    def test_lines_that_meet_have_marks_at_places_of_their_own(self) -> None:
        from matplotlib.figure import Figure

        axes = Figure().subplots()
        lines = {name: [(1.0, 0.2), (1.5, 1.0), (2.0, 1.0)] for name in "ab"}
        pictures._draw_steps(axes, lines, "a")
        looks = [(line.get_marker(), line.get_color()) for line in axes.lines]
        assert len(set(looks)) == 2
        assert axes.lines[0].get_markevery() != axes.lines[1].get_markevery()
        steps = zip(axes.lines[1].get_xdata(), axes.lines[1].get_ydata(), strict=True)
        assert all(y == (1.0 if x >= 1.5 else 0.2) for x, y in steps)

    def test_no_name_is_cut(self) -> None:
        name = "a_name_of_a_method_that_takes_more_than_one_line"
        assert pictures._label(name).replace("\n", "") == name
        assert pictures._label("_hidden") == " _hidden"

    def test_nothing_solved(self) -> None:
        assert list(drawn(report_of(crashed()))) == ["anytime"]

    def test_matplotlib_is_left_alone(self) -> None:
        import matplotlib

        before = matplotlib.rcParams.copy()
        drawn(report_of(crashed()))
        assert matplotlib.rcParams.copy() == before

    @pytest.mark.slow
    def test_it_is_loaded_only_to_draw(self) -> None:
        code = (
            "import sys, ppsolve.solver.cli.bench; print('matplotlib' in sys.modules)"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert run.stdout == "False\n"

"""What notebooks show of documents, and documents as rows."""

import html.parser
import json
import re

import pytest

import ppsolve
from ppsolve.models.core.result import ScheduledOp
from ppsolve.models.documents.display import display
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.curve import Curve
from ppsolve.solver.views.notebook import frame_of

EVIL = "<script>alert(1)</script>&\x1b[31m"
INSTANCE = {
    "kind": "pipeline",
    "name": EVIL,
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 2},
}
VOID = {"br", "meta", "img", "wbr"}


class Tags(html.parser.HTMLParser):
    """Reads HTML and keeps its tags; every element must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.names, self._open = set(), []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


@pytest.fixture(scope="module")
def result():
    return ppsolve.optimize(ppsolve.parse_instance(INSTANCE), workers=1)


class TestHtml:
    def test_a_result_is_a_chart_and_tables_without_any_script(self, result):
        shown = result._repr_html_()
        assert {"img", "table", "details"} <= Tags(shown).names
        assert "script" not in Tags(shown).names
        assert "makespan" in shown and "proved twice" not in shown

    def test_names_are_escaped(self, result):
        shown = result._repr_html_()
        assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in shown
        assert "\x1b" not in shown
        instance = ppsolve.parse_instance(INSTANCE)
        assert "<script" not in instance._repr_html_()

    def test_a_result_without_a_schedule(self, result):
        shown = result.model_copy(update={"schedule": None})._repr_html_()
        assert "img" not in Tags(shown).names

    def test_a_schedule_that_is_none_of_the_instance_leaves_the_tables(self, result):
        data = json.loads(result.model_dump_json())
        data["schedule"]["ops"].pop()
        shown = type(result).model_validate(data)._repr_html_()
        assert "img" not in Tags(shown).names
        assert "makespan" in shown

    def test_an_instance(self):
        shown = ppsolve.parse_instance(INSTANCE | {"name": "two"})._repr_html_()
        assert "two: pipeline" in shown
        assert re.search("micro-batches</th><td[^>]*>2<", shown)

    def test_a_heuristic_and_a_curve(self):
        instance = ppsolve.parse_instance(INSTANCE)
        assert "1f1b: feasible" in ppsolve.simulate(instance, "1f1b")._repr_html_()
        points = [{"at": 1, "status": "OPTIMAL", "value": 9, "bound": 9, "gap": 0}]
        found = Curve(
            instance="two", over="capacity", objective="makespan", time_unit="us",
            points=points,
        )  # fmt: skip
        assert "makespan over capacity, 1 points, 1 proved" in found._repr_html_()

    def test_nothing_is_shown_of_other_documents(self, result):
        assert display("html", result.versions) is None


class TestChart:
    @pytest.mark.slow
    def test_25000_ops_stay_small(self):
        instance = ppsolve.parse_instance(
            INSTANCE | {"name": "large", "num_devices": 32, "num_microbatches": 390}
        )
        assert len(ppsolve.simulate(instance, "gpipe")._repr_html_()) < 400_000

    def test_without_matplotlib_there_are_tables_alone(self, result, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
        shown = result._repr_html_()
        assert "table" in Tags(shown).names
        assert "img" not in Tags(shown).names


class TestRows:
    def test_a_dict_for_each_op(self, result):
        rows = result.to_dicts()
        assert [list(row)[:6] for row in rows] == [
            ["id", "kind", "stage", "device", "microbatch", "start"]
        ] * 8  # fmt: skip
        assert [ScheduledOp(**row) for row in rows] == list(result.schedule.ops)

    def test_read_from_a_file_they_are_the_same(self, result, tmp_path):
        result.save(tmp_path / "r.json")
        data = json.loads((tmp_path / "r.json").read_text())
        again = type(result).model_validate(data)
        assert again.to_pandas().equals(result.to_pandas())

    def test_a_frame(self, result):
        pytest.importorskip("pandas")
        frame = result.to_pandas()
        assert list(frame.columns) == list(ScheduledOp.model_fields)
        assert frame["device"].dtype == "Int64"
        assert frame["end"].max() == result.makespan
        assert frame.groupby("device").size().to_dict() == {0: 4, 1: 4}

    def test_a_frame_without_rows_has_the_columns(self, result):
        pytest.importorskip("pandas")
        empty = result.model_copy(update={"schedule": None})
        assert empty.to_dicts() == []
        assert list(empty.to_pandas().columns) == list(ScheduledOp.model_fields)

    def test_pandas_is_missing(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        with pytest.raises(InputError, match="pip install pandas"):
            frame_of([], ["a"])

    def test_a_chart_of_a_result(self, result):
        pytest.importorskip("matplotlib")
        assert result.gantt(title="x").axes[0].get_title(loc="left") == "x"


def test_a_notebook_shows_a_result():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    code = (
        "import ppsolve\n"
        f"result = ppsolve.optimize(ppsolve.parse_instance({INSTANCE!r}), workers=1)\n"
        "result"
    )
    cells = [
        nbformat.v4.new_code_cell(text)
        for text in (code, "repr(result)", "result.gantt()")
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown, short, figure = (cell.outputs[0]["data"] for cell in notebook.cells)
    assert "<img" in shown["text/html"]
    # A white chart would glare in a dark theme of a notebook; others leave it as it is.
    assert '[data-jp-theme-light="false"] .ppsolve-chart' in shown["text/html"]
    assert len(short["text/plain"]) < 300
    assert "image/png" in figure

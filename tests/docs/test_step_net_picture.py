"""The worked step net of docs/how-it-works.md is drawn from what rnnmem decides."""

import re
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Annotation as Arrow
from matplotlib.transforms import Bbox

from rnnmem.sizes import format_bytes
from tools import step_net_picture as picture

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def worked():
    return picture.worked()


def test_it_has_eight_nodes_and_says_of_each_what_becomes_of_it(worked):
    drawn = re.findall(r"<text [^>]*>([^<]+)</text>", picture.PICTURE.read_text("utf-8"))
    said = [word for node in worked.nodes for word in picture.words(node)]
    assert len(worked.nodes) == 8 and sorted(drawn) == sorted(said), "run `make docs`"


def test_its_caption_names_what_an_iteration_keeps(worked):
    caption = " ".join((ROOT / "docs" / "how-it-works.md").read_text("utf-8").split())
    before, after = map(format_bytes, picture.kept(worked))
    assert f"*{before} an iteration as TensorFlow runs it, {after} now." in caption


def test_no_arrow_crosses_a_node(worked):
    figure = picture.draw(worked)
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    nodes = [one for one in axes.patches if isinstance(one, FancyBboxPatch)]
    boxes = [one.get_window_extent() for one in nodes]
    arrows = [one.arrow_patch.get_window_extent() for one in axes.texts if isinstance(one, Arrow)]
    assert len(boxes) == 8 and len(arrows) == len(worked.edges) == 7
    assert not any(box.overlaps(arrow) for box in boxes for arrow in arrows)
    far = Bbox.union(
        [one for one in arrows if one.height > one.width]
    )  # from the first to the last
    assert sum(map(far.overlaps, boxes)) == 4

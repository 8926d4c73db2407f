"""The page, in a real browser: it fetches nothing, tells of what is pointed at, and descends."""

import dataclasses
import json
import re

import pytest

from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.encode.decision import Encoding
from rnnmem.reports.page import html
from rnnmem.sizes import MIB, format_bytes
from tests.reports import browser as chromium
from tests.reports.handmade_report import report

HOSTILE = 'step</script><script>document.title="broken"</script>'


@pytest.fixture(scope="module")
def browser():
    yield from chromium.browser()


@pytest.fixture(scope="module")
def told():
    return report(HOSTILE, budget=3 << 20, notes=("<b>as it is</b>",))


@pytest.fixture
def page(browser, told, tmp_path):
    path = tmp_path / "memory.html"
    told.save(path)
    browser.get_log("performance")
    browser.get(path.as_uri())
    return browser


def every(page, selector):
    from selenium.webdriver.common.by import By

    return page.find_elements(By.CSS_SELECTOR, selector)


def point_at(page, element):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page).move_to_element(element).perform()
    return every(page, "#tip")[0].text


def area(page, label, kind):
    found = [
        one
        for one in every(page, "path.area")
        if (one.get_attribute("data-label"), one.get_attribute("data-kind")) == (label, kind)
    ]
    assert found, (label, kind)
    return found[0]


def point_into(page, path):
    """Points at a place that is inside an area; its middle may lie outside of it."""
    page.execute_script(
        """
        const path = arguments[0], box = path.ownerSVGElement.getBoundingClientRect();
        const view = path.ownerSVGElement.viewBox.baseVal, bound = path.getBBox();
        const point = path.ownerSVGElement.createSVGPoint();
        for (let i = 1; i < 40; i += 1) for (let j = 1; j < 40; j += 1) {
          point.x = bound.x + bound.width * i / 40; point.y = bound.y + bound.height * j / 40;
          if (!path.isPointInFill(point)) continue;
          path.dispatchEvent(new MouseEvent("mousemove", {bubbles: true,
            clientX: box.left + point.x / view.width * box.width,
            clientY: box.top + point.y / view.height * box.height}));
          return;
        }""",
        path,
    )
    return every(page, "#tip")[0].text


def test_the_page_is_quiet_and_fetches_nothing(page):
    assert not [line for line in page.get_log("browser") if line["level"] == "SEVERE"]
    asked = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    urls = [
        one["params"]["request"]["url"]
        for one in asked
        if one["method"] == "Network.requestWillBeSent"
        and one["params"]["documentURL"] == page.current_url  # and not the browser's own start page
    ]
    assert urls and all(url.startswith(("file:", "data:")) for url in urls)


def test_text_of_the_user_stays_text(page, told):
    assert every(page, "h1")[0].text == HOSTILE
    assert page.title == f"{HOSTILE} - rnnmem"
    assert "<b>as it is</b>" in every(page, "#rest")[0].text


def test_hovering_over_a_saved_blob_tells_shape_decision_and_reason(page, told):
    part = next(part for part in told.before.parts if part.kind == "saved")
    text = point_into(page, area(page, part.label, "saved"))
    dims = ",".join(map(str, part.shape))
    assert part.label in text
    assert f"{part.op_type} {part.dtype}[{dims}]" in text
    assert f"decision: {part.decision}" in text
    assert part.reason in text
    assert re.search(r"line \S+", text)


def test_both_sides_the_budget_and_the_peaks_are_drawn(page, told):
    texts = [one.text for one in every(page, "#timeline text")]
    assert "before" in texts and "after" in texts
    assert format_bytes(told.before.peak_bytes) in texts
    assert f"budget {format_bytes(told.budget)}" in texts
    assert every(page, "#budget")
    figures = every(page, "#figures")[0].text
    assert format_bytes(told.after.peak_bytes) in figures


def test_a_click_on_a_loop_descends_and_the_path_leads_back(page):
    loop = next(
        one for one in every(page, "g.loop") if one.get_attribute("data-graph") == "before/loop"
    )
    page.execute_script(
        "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", loop
    )
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before/loop"
    types = {one.get_attribute("data-type") for one in every(page, "#graph g.node")}
    assert {"MatMul", "Tanh"} <= types
    every(page, "#path button")[0].click()
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before"


def test_a_click_on_a_loop_in_the_graph_descends_too(page):
    doors = every(page, "#graph g.node.door")
    assert len(doors) == 2
    doors[1].click()
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before/gradient"


def test_saved_recomputed_and_invariant_blobs_have_their_colours(page):
    page.execute_script("open('after/gradient')")
    colours = {
        decision: {
            one.value_of_css_property("fill")
            for one in every(page, f"g.node.decision-{decision} rect")
        }
        for decision in ("saved", "recomputed")
    }
    page.execute_script("open('before/loop')")
    colours["invariant"] = {
        one.value_of_css_property("fill") for one in every(page, "g.node.decision-invariant rect")
    }
    assert all(len(found) == 1 for found in colours.values()), colours
    assert len(set().union(*colours.values())) == 3
    node = every(page, "g.node.decision-invariant")[0]
    assert "the same in every iteration" in point_at(page, node)


def test_a_page_of_an_unknown_peak_says_so(browser, tmp_path):
    from rnnmem.planning.plan import Plan
    from rnnmem.reports.data import Side
    from rnnmem.reports.report import Report

    side = Side("before", None, unknown=("trip count of while",))
    path = tmp_path / "unknown.html"
    Report("f", side, side, Plan()).save(path)
    browser.get(path.as_uri())
    assert "trip count of while" in every(browser, "#timeline")[0].text


def test_the_page_stays_small():
    assert len(html(report(trips=4000))) < MIB


def test_the_page_names_no_other_place():
    """Not even the name of a namespace, which looks like an address."""
    assert "://" not in html(report())


def test_the_legend_names_what_is_drawn_and_nothing_else(browser, tmp_path):
    def legend(**fields):
        path = tmp_path / "memory.html"
        report(**fields).save(path)
        browser.get(path.as_uri())
        return every(browser, "#residuals")[0].text

    plain, segmented = legend(), legend(segments=True)
    assert "saved for every iteration" in plain
    assert "segment" not in plain
    assert "kept at the start of a segment" in segmented
    assert "run again with its segment" in segmented


def test_a_replay_descends_into_the_step_net_that_runs_again(browser, tmp_path):
    path = tmp_path / "memory.html"
    report(segments=True).save(path)
    browser.get(path.as_uri())
    browser.execute_script("open('after/gradient')")
    (door,) = every(browser, "#graph g.node.door")
    assert "runs again" in point_at(browser, door)
    door.click()
    shown = every(browser, "#graph svg")[0].get_attribute("data-id")
    assert shown == "after/gradient/rnnmem/again"
    assert every(browser, "#graph g.node.decision-replayed")


def test_the_headline_claims_the_same_bits_only_where_they_are():
    told = report()
    assert "the results have the same bits" in html(told)
    (loop,) = told.plan.loops
    rounded = dataclasses.replace(loop, encodings=(Encoding(loop.saved[0], ("bfloat16",)),))
    for plan, words in (
        (dataclasses.replace(told.plan, loops=(rounded,)), "so gradients differ"),
        (told.plan.having(chunked_loss=(ChunkedLoss("logits"),)), "added up in another order"),
    ):
        text = html(dataclasses.replace(told, plan=plan))
        assert words in text and "the same bits" not in text

"""The page, in a real browser: it fetches nothing, tells of what is pointed at, and descends."""

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.encode.decision import Encoding
from rnnmem.passes.rematerialise.decision import HOISTED, INVARIANT
from rnnmem.reports import colors
from rnnmem.reports.data import Curve, Graph, LoopSpan, Node
from rnnmem.reports.page import _legend, html
from rnnmem.sizes import KIB, MIB, format_bytes
from tests.reports import browser as chromium
from tests.reports.handmade_report import report

AXE = Path(__file__).parent / "axe" / "axe.min.js"
GUIDELINES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
"""Rules that axe-core asks, with those that it leaves out unless it is told to."""
HOSTILE = 'step</script><script>document.title="broken"</script>'


@pytest.fixture(scope="module")
def browser():
    yield from chromium.browser()


@pytest.fixture(scope="module")
def told():
    made = report(HOSTILE, budget=3 << 20, notes=("<b>as it is</b>",), made={"device": "CPU:0"})
    curve = Curve(made.before.x, tuple(9 * size // 10 for size in made.before.totals))
    return dataclasses.replace(made, before=dataclasses.replace(made.before, measured=curve))


@pytest.fixture
def page(browser, told, tmp_path):
    path = tmp_path / "memory.html"
    told.save(path)
    chromium.shown_as(browser, chromium.DESKTOP, "light")
    for log in ("performance", "browser"):
        browser.get_log(log)
    browser.get(path.as_uri())
    return browser


def every(page, selector):
    from selenium.webdriver.common.by import By

    return page.find_elements(By.CSS_SELECTOR, selector)


def point_at(page, element):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page).move_to_element(element).perform()
    return every(page, "#tip")[0].text


def point_into(page, side, row):
    """Points into the middle of an area, where it is highest; what is told there."""
    page.execute_script(
        """
        const [name, number] = arguments, side = R.sides.find((one) => one.name === name);
        const chart = charts[R.sides.indexOf(side)];
        const i = side.areas.findIndex((area) => area.id === number);
        const sizes = side.areas[i].bytes, j = sizes.indexOf(Math.max(...sizes));
        const low = side.areas.slice(0, i).reduce((sum, area) => sum + area.bytes[j], 0);
        const box = chart.over.getBoundingClientRect();
        chart.over.dispatchEvent(new MouseEvent("mousemove", {bubbles: true, view: window,
          clientX: box.left + chart.valToPos(side.x[j], "x"),
          clientY: box.top + chart.valToPos(low + sizes[j] / 2, "y")}));
        """,
        side,
        row["id"],
    )
    return every(page, "#tip")[0].text


def press(page, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    actions = ActionChains(page)
    for key in keys:
        actions.send_keys(key)
    actions.perform()


@pytest.mark.slow
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
    assert "<b>as it is</b>" in every(page, "#notes")[0].text
    assert "CPU:0" in every(page, "#made")[0].text


def test_the_page_prints_bytes_as_everything_else_does(page):
    """Ties above all: 313,600 bytes are 306.25 KiB."""
    twentieths = [unit * tenth // 20 for unit in (KIB, MIB) for tenth in range(1, 2000, 3)]
    counts = {near for count in twentieths for near in (count - 1, count, count + 1)}
    counts |= {0, KIB - 1, MIB - 1, 313_600, *(7**n for n in range(18)), 2**52 + MIB // 20}
    counts = sorted(counts | {-one for one in counts})
    written = page.execute_script("return arguments[0].map(size)", [*counts, None])
    assert written == [*map(format_bytes, counts), "?"]


def test_hovering_over_a_saved_blob_tells_shape_decision_and_reason(page, told):
    (side, _) = page.execute_script("return R.sides")
    part = next(part for part in told.before.parts if part.kind == "saved")
    row = next(one for one in side["areas"] if part.label in one["names"])
    text = point_into(page, "before", row)
    dims = ",".join(map(str, part.shape))
    assert part.label in text
    assert f"{part.op_type} {part.dtype}[{dims}]" in text
    assert f"decision: {part.decision}" in text
    assert part.reason in text
    assert re.search(r"line \S+", text)


def test_both_sides_the_budget_and_the_peaks_are_drawn(page, told):
    for side in (told.before, told.after):
        figure = every(page, f"#side-{side.name}")[0].text
        assert f"{side.name}: as " in figure
        assert f"peak {format_bytes(side.peak_bytes)}" in figure
        assert f"budget {format_bytes(told.budget)}" in figure
        assert "forward" in figure and "gradient" in figure
    before = every(page, "#side-before .gaps")[0].text
    assert re.fullmatch(
        r"Measured is at most 25\d\.\d KiB below \((loop|gradient)\) the prediction\.", before
    ), before
    assert not every(page, "#side-after .gaps")
    labels = page.execute_script("return charts.map((one) => one.axes.map((axis) => axis.label))")
    assert labels == 2 * [["allocations and releases, in order", "MiB above the resident state"]]
    figures = every(page, "#figures")[0].text
    assert format_bytes(told.after.peak_bytes) in figures
    assert f"{told.plan.slowdown:.2f}x" in figures


def test_how_far_measured_is_off_names_only_what_there_is(browser, tmp_path):
    def told(change):
        made = report()
        x, sizes = made.before.x, made.before.totals
        curve = Curve(x, tuple(map(change, range(len(x)), sizes)))
        path = tmp_path / "memory.html"
        before = dataclasses.replace(made.before, measured=curve)
        dataclasses.replace(made, before=before).save(path)
        browser.get(path.as_uri())
        return every(browser, "#side-before .gaps")[0].text

    assert told(lambda _, size: size) == "Measured is as predicted."
    above = told(lambda _, size: size + 1024)
    assert re.fullmatch(r"Measured is at most 1\.0 KiB above.* the prediction\.", above)
    both = told(lambda at, size: size + (1024 if at % 2 else -512))
    assert re.fullmatch(r".* at most 1\.0 KiB above.* and 512 B below.* the prediction\.", both)


def test_areas_are_drawn_in_the_colours_of_the_legend(browser, tmp_path):
    """What the canvas holds, against the colours that the page was given for what is large."""
    path = tmp_path / "memory.html"
    report(trips=12, units=128).save(path)
    browser.get(path.as_uri())
    drawn, known = browser.execute_script(
        """
        const on = charts[0].ctx, box = charts[0].bbox, found = {}, side = R.sides[0];
        const {data} = on.getImageData(box.left, box.top, box.width, box.height);
        for (let i = 0; i < data.length; i += 4) {
          const hex = [...data.slice(i, i + 3)].map((one) => one.toString(16).padStart(2, "0"));
          found["#" + hex.join("")] = (found["#" + hex.join("")] || 0) + 1;
        }
        const large = side.areas.filter((area) => Math.max(...area.bytes) > side.peak / 20);
        return [found, [...new Set(large.map((area) => R.kinds[area.kind].color))]];
        """
    )
    assert len(known) >= 2
    assert all(drawn.get(color, 0) > 50 for color in known), (drawn, known)


def test_a_click_on_a_loop_descends_and_the_path_leads_back(page):
    loop = every(page, "#side-before .lanes button[data-graph='before/loop']")[0]
    page.execute_script("arguments[0].click()", loop)
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before/loop"
    types = {one.get_attribute("data-type") for one in every(page, "#graph g.node")}
    assert {"MatMul", "Tanh"} <= types
    every(page, "#path button")[0].click()
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before"


def test_a_click_on_a_loop_in_the_graph_descends_too(page):
    page.execute_script("open('before')")
    doors = every(page, "#graph g.node.door")
    assert [one.get_attribute("data-name") for one in doors] == ["loop", "gradient"]
    doors[1].click()
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before/gradient"


def test_a_step_net_holds_its_edges_and_what_is_written_in_it(page):
    """Edges go around nodes, on the left of all of them too."""
    page.execute_script(
        """
        const one = R.graphs[0], node = (name) => ({...one.nodes[0], name, title: name, opens: ""});
        const edges = [[0, 1], [2, 3], [0, 4], [3, 5], [4, 5], [0, 6], [5, 6], [6, 7]];
        const nodes = ["If", "Identity", "ReadVariableOp", "MatMul", "Pow", "Mul", "StatelessIf"];
        R.graphs.push({...one, id: "around", nodes: [...nodes, "Assign"].map(node), edges});
        open("around");
        """
    )
    outside = page.execute_script(
        """
        const frame = document.querySelector("#graph svg").getBoundingClientRect();
        return [...document.querySelectorAll("#graph path, #graph rect, #graph text")].filter(
          (one) => { const box = one.getBoundingClientRect();
            return box.left < frame.left || box.right > frame.right
              || box.top < frame.top || box.bottom > frame.bottom; }).map((one) => one.outerHTML);
        """
    )
    assert not outside
    assert len(every(page, "#graph path")) == 8


def test_what_is_left_out_of_a_step_net_is_told_with_its_size(page):
    page.execute_script("open('before')")
    told = every(page, "#left")[0].text
    assert told == ("2 more ops, of at most 16.0 KiB each, are not drawn; edges go through them")
    page.execute_script("Object.assign(R.graphs[0], {left: 1}); open('before')")
    told = every(page, "#left")[0].text
    assert told == "1 more op, of 16.0 KiB, is not drawn; edges go through it"


def test_what_a_node_reads_stands_above_it_and_no_two_overlap(page):
    page.execute_script("open('after/gradient')")
    boxes = page.execute_script(
        "return [...document.querySelectorAll('#graph g.node rect')].map((one) => {"
        " const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )
    edges = page.execute_script("return R.graphs.find((one) => one.id === 'after/gradient').edges")
    assert len(boxes) > 5 and edges
    assert all(boxes[start][3] <= boxes[end][1] + 1 for start, end in edges)
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1]
            assert apart or other[3] <= one[1], (one, other)


def test_saved_recomputed_and_invariant_blobs_have_their_colours_and_say_so(page):
    found = {}
    for graph, decision in (
        ("after/gradient", "saved"),
        ("after/gradient", "recomputed"),
        ("before/loop", "invariant"),
    ):
        page.execute_script(f"open('{graph}')")
        nodes = every(page, f"g.node.decision-{decision}")
        assert nodes
        for node in nodes:
            assert decision in node.text.split("\n")
            assert decision in node.get_attribute("aria-label")
        rects = every(page, f"g.node.decision-{decision} rect")
        (found[decision],) = {one.value_of_css_property("fill") for one in rects}
    assert len(set(found.values())) == 3
    node = every(page, "g.node.decision-invariant")[0]
    assert "the same in every iteration" in point_at(page, node)


def test_before_shows_what_tensorflow_runs_and_after_what_runs_now(page):
    def decisions(graph):
        page.execute_script(f"open('{graph}')")
        nodes = every(page, "#graph g.node")
        return {one.get_attribute("class").rpartition("decision-")[2] for one in nodes}

    assert decisions("before/loop") == {"saved", "invariant", "none"}
    assert "recomputed" in decisions("after/loop")


def test_a_row_holds_what_is_alike_and_the_bars_are_scaled_to_the_largest(page, told):
    rows = [side["rows"] for side in page.execute_script("return R.sides")]
    for side, found in zip((told.before, told.after), rows, strict=True):
        assert sum(row["bytes"] for row in found) == side.peak_bytes
        keys = [(row["title"].partition("×")[2], row["where"], row["decision"]) for row in found]
        assert len(keys) == len(set(keys)) or not any(key[0] for key in keys)
    bars = every(page, "#parts .share canvas")
    widths = [
        float(one.get_attribute("style").partition("width: ")[2].split("%")[0]) for one in bars
    ]
    first_after = len(rows[0])
    assert widths[0] == widths[first_after] == 100 == max(widths)
    first = every(page, "#parts tbody tr")[0]
    assert format_bytes(told.before.parts[0].bytes) in first.text


def test_the_keyboard_reaches_areas_loops_and_nodes(page, told):
    from selenium.webdriver.common.keys import Keys

    over = every(page, "#side-before .u-over")[0]
    page.execute_script("arguments[0].focus()", over)
    press(page, Keys.ARROW_UP)
    assert over.get_attribute("aria-valuetext").startswith(format_bytes(told.before.peak_bytes))
    seen = set()
    for _ in range(len(told.before.areas)):
        seen.add(every(page, "#tip")[0].text.split("\n")[1])
        press(page, Keys.ARROW_UP)
    at_peak = {
        area["title"]
        for area in page.execute_script(
            "const s = R.sides[0], j = s.x.indexOf(s.peakX);"
            "return s.areas.filter((area) => area.bytes[j])"
        )
    }
    assert seen == at_peak
    now = int(over.get_attribute("aria-valuenow"))
    press(page, Keys.ARROW_LEFT)
    assert int(over.get_attribute("aria-valuenow")) == now - 1
    width = "return charts[0].scales.x.max - charts[0].scales.x.min"
    whole = page.execute_script(width)
    press(page, "+")
    assert page.execute_script(width) < whole
    press(page, "0")
    assert page.execute_script(width) == whole
    loop = every(page, "#side-after .lanes button[data-graph='after/gradient']")[0]
    page.execute_script("arguments[0].focus()", loop)
    press(page, Keys.ENTER)
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "after/gradient"
    page.execute_script("document.querySelector('#graph g.node[tabindex=\"0\"]').focus()")
    names = {}
    for key in (Keys.ARROW_LEFT, Keys.ARROW_RIGHT):  # to the first, then through all
        for _ in every(page, "#graph g.node"):
            node = page.switch_to.active_element
            names[node.get_attribute("data-name")] = node.get_attribute("aria-label")
            press(page, key)
    graph = next(one for one in told.graphs if one.id == "after/gradient")
    assert set(names) == {node.name for node in graph.nodes} and all(names.values())
    assert names["e"].startswith("MatMul, float32[64,64]")
    last = page.switch_to.active_element.get_attribute("data-name")
    press(page, Keys.ARROW_UP)
    assert page.switch_to.active_element.get_attribute("data-name") != last
    page.execute_script("open('before'); document.querySelector('#graph g.node.door').focus()")
    press(page, Keys.ENTER)
    assert every(page, "#graph svg")[0].get_attribute("data-id") == "before/loop"


@pytest.mark.parametrize("size", [chromium.DESKTOP, chromium.PHONE], ids=["desktop", "phone"])
def test_every_area_in_sight_has_its_name_in_it_or_in_the_list_below(browser, tmp_path, size):
    path = tmp_path / "memory.html"
    report(segments=True).save(path)
    chromium.shown_as(browser, size, "light")
    browser.get(path.as_uri())
    for number, side in enumerate(("before", "after")):
        areas = browser.execute_script(f"return R.sides[{number}].areas")
        peak = browser.execute_script(f"return momentOfPeak(R.sides[{number}])")
        rows = f"#side-{side} .thin button[data-area]"
        found = shown(browser, f"#side-{side} .thin button[aria-expanded=false]")
        assert len(found) == (len(areas) > 12)
        for more in found:
            assert len(shown(browser, rows)) == 6
            more.click()
            assert more.get_attribute("aria-expanded") == "true"
        listed = [int(one.get_attribute("data-area")) for one in shown(browser, rows)]
        labels = every(browser, f"#side-{side} .layer b[data-label]")
        named = [one.get_attribute("data-label") for one in labels]
        by_id = {area["id"]: area for area in areas}
        assert sorted([*named, *(by_id[one]["title"] for one in listed)]) == sorted(
            area["title"] for area in areas
        )
        sizes = [by_id[one]["bytes"][peak] for one in listed]
        assert listed and sizes == sorted(sizes, reverse=True)
        for button, here in zip(shown(browser, rows), sizes, strict=True):
            assert not here or button.text.endswith(format_bytes(here))
            assert button.size["height"] >= 24 and button.rect["x"] + button.size["width"] < size[0]


def test_an_area_in_the_list_stands_out_tells_of_itself_and_is_gone_to(page):
    area = shown(page, "#side-before .thin button[data-area]")[0]
    number = int(area.get_attribute("data-area"))
    (index,) = page.execute_script(
        "return [R.sides[0].areas.findIndex((one) => one.id === arguments[0])]", number
    )
    title = page.execute_script("return R.sides[0].areas[arguments[0]].title", index)
    page.execute_script("arguments[0].focus()", area)
    assert every(page, "#tip")[0].text.startswith(title)
    assert "here" in every(page, "#tip")[0].text
    page.execute_script("arguments[0].click()", area)
    over = page.switch_to.active_element
    assert over.get_attribute("role") == "slider"
    assert title in over.get_attribute("aria-valuetext")
    peak = page.execute_script("return momentOfPeak(R.sides[0])")
    assert int(over.get_attribute("aria-valuenow")) == peak


def test_an_area_that_gets_room_by_zooming_leaves_the_list(page):
    listed = "#side-before .thin button[data-area]"
    before = {one.get_attribute("data-area") for one in shown(page, listed)}
    page.execute_script(
        "const chart = charts[0], x = R.sides[0].x; chart.setScale('x', {min: x[0], max: x[1]})"
    )
    out_of_sight = page.execute_script(
        "return R.sides[0].areas.filter((area) => !area.bytes.slice(0, 3).some(Boolean))"
        ".map((area) => String(area.id))"
    )
    after = {one.get_attribute("data-area") for one in shown(page, listed)}
    assert out_of_sight and not after & set(out_of_sight)
    assert after != before


def test_two_fingers_zoom_and_one_tells(page):
    chromium.shown_as(page, chromium.PHONE, "light")
    page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        page.refresh()
        over = every(page, "#side-before .u-over")[0]
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
        box = page.execute_script(
            "const b = arguments[0].getBoundingClientRect(); return [b.left, b.bottom, b.width]",
            over,
        )
        left, bottom, width = box
        span = "return charts[0].scales.x.max - charts[0].scales.x.min"
        whole = page.execute_script(span)

        def touch(kind, *shares):
            points = [
                {"x": left + share * width, "y": bottom - 12, "id": number}
                for number, share in enumerate(shares)
            ]
            page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 0.5)
        assert "at most" in every(page, "#tip")[0].text
        touch("touchEnd")
        touch("touchStart", 0.4, 0.6)
        for apart in (0.12, 0.2, 0.3):
            touch("touchMove", 0.5 - apart, 0.5 + apart)
        touch("touchEnd")
        assert page.execute_script(span) < 0.7 * whole
    finally:
        page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_a_low_side_can_be_seen_at_its_own_scale(browser, tmp_path):
    path = tmp_path / "memory.html"
    report(segments=True).save(path)
    browser.get(path.as_uri())
    tops = "return charts.map((one) => one.scales.y.max)"
    high, low = browser.execute_script(tops)
    assert high == low
    assert not every(browser, "#side-before .zoom button[aria-pressed]")
    (button,) = every(browser, "#side-after .zoom button[aria-pressed]")
    button.click()
    assert browser.execute_script(tops)[1] < high / 2
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert browser.execute_script(tops) == [high, high]


@pytest.mark.slow
def test_no_text_stands_on_the_budget(browser, tmp_path):
    """At a side's own scale the budget is where the parts of the run are told."""
    path = tmp_path / "memory.html"
    made = report(segments=True)
    for budget in (made.after.peak_bytes * share // 100 for share in range(90, 116, 2)):
        dataclasses.replace(made, budget=budget).save(path)
        browser.get(path.as_uri())
        every(browser, "#side-after .zoom button[aria-pressed]")[0].click()
        line, found = browser.execute_script(
            """
            const chart = charts[1], top = chart.over.getBoundingClientRect().top;
            return [top + chart.valToPos(R.budget, "y"), [...document.querySelectorAll(
              "#side-after .tag")].map((one) => { const box = one.getBoundingClientRect();
                return [one.textContent, box.left, box.top, box.right, box.bottom]; })];
            """
        )
        texts = {text for text, *_ in found}
        assert {"forward", "gradient"} < texts
        assert any(text.startswith("budget") for text in texts)
        for text, _, top, _, bottom in found:
            assert not top < line < bottom, (budget, text)
        for (one, *first), (other, *second) in itertools.combinations(found, 2):
            apart = first[2] <= second[0] or second[2] <= first[0]
            assert apart or first[3] <= second[1] or second[3] <= first[1], (one, other)


def test_a_text_of_a_loop_is_whole_or_not_there(browser, tmp_path):
    made = report(segments=True)
    axis, (loop, gradient) = made.after.x[-1], made.after.spans[:2]
    runs = [
        LoopSpan(("gradient", "inner"), axis * at / 100, axis * (at + 1) / 100, 8, "a.py:1")
        for at in (20, 24, 28, 32)
    ]
    spans = (dataclasses.replace(loop, end=axis * 0.4), gradient, *runs)
    path = tmp_path / "memory.html"
    after = dataclasses.replace(made.after, spans=spans)
    dataclasses.replace(made, after=after).save(path)
    for size in (chromium.DESKTOP, chromium.PHONE):
        chromium.shown_as(browser, size, "light")
        browser.get(path.as_uri())
        texts, bars = browser.execute_script(
            """
            const box = (one) => { const b = one.getBoundingClientRect();
              return [b.left, b.top, b.right, b.bottom]; };
            const bars = [...document.querySelectorAll("#side-after .lanes .run")];
            const range = (one) => { const made = document.createRange();
              made.selectNodeContents(one); return made; };
            const texts = [...bars, ...document.querySelectorAll("#side-after .lanes .beside")]
              .filter((one) => one.textContent);
            return [texts.map((one) => [one.textContent, one.className, box(range(one)),
              box(one.closest(".window")), box(one)]), bars.map(box)];
            """
        )
        shown = [text for text, *_ in texts]
        assert shown.count("gradient × 150") == 1
        assert sum("inner" in text for text in shown) == 1, shown  # beside the last run
        assert all(re.search(r" × \d+$", text) for text in shown)
        for _, name, text, window, own in texts:
            frame = window if name == "beside" else own
            assert frame[0] <= text[0] and text[2] <= frame[2]
            if name == "beside":
                assert all(
                    bar[2] <= text[0] or text[2] <= bar[0] or bar[3] <= text[1] or text[3] <= bar[1]
                    for bar in bars
                )
        bar = every(browser, "#side-after .lanes .run")[2]
        browser.execute_script("arguments[0].focus()", bar)
        assert "inner" in bar.get_attribute("aria-label")
        assert "8 iterations" in every(browser, "#tip")[0].text


def test_a_short_bar_has_the_loops_name_alone(browser, tmp_path):
    made = report()
    (loop, gradient), axis = made.after.spans, made.after.x[-1]
    spans = (
        dataclasses.replace(loop, end=axis * 0.18),
        dataclasses.replace(gradient, start=axis * 0.18),
    )
    path = tmp_path / "memory.html"
    after = dataclasses.replace(made.after, spans=spans)
    dataclasses.replace(made, after=after).save(path)
    chromium.shown_as(browser, chromium.PHONE, "light")
    browser.get(path.as_uri())
    assert [one.text for one in every(browser, "#side-after .lanes .run")] == [
        "loop",
        "gradient × 150",
    ]
    assert not shown(browser, "#side-after .rest button")


def shown(page, selector):
    return [one for one in every(page, selector) if one.is_displayed()]


@pytest.mark.parametrize("size", [chromium.DESKTOP, chromium.PHONE], ids=["desktop", "phone"])
def test_every_loop_in_sight_is_named_and_tab_stops_there_once(browser, tmp_path, size):
    """Where its bars have no room it stands in a list below, whose buttons do what the bars do."""
    made = report(segments=True)
    axis, (loop, gradient) = made.after.x[-1], made.after.spans[:2]
    narrow = dataclasses.replace(loop, end=axis * 0.02)
    wide = dataclasses.replace(gradient, start=axis * 0.03, end=axis * 0.99)
    runs = [
        LoopSpan(("gradient", "inner"), axis * at / 100, axis * (at + 1) / 100, 8, "a.py:1")
        for at in (20, 22, 24, 98.5)
    ]
    path = tmp_path / "memory.html"
    after = dataclasses.replace(made.after, spans=(narrow, wide, *runs))
    dataclasses.replace(made, after=after).save(path)
    chromium.shown_as(browser, size, "light")
    browser.get(path.as_uri())
    names = ["loop × 150", "gradient × 150", "gradient › inner × 8"]
    buttons = "#side-after :is(.lanes, .rest) button"
    told = [one.text for one in shown(browser, buttons) if one.text]
    assert set(told) == set(names)
    stops = [one for one in shown(browser, buttons) if one.get_attribute("tabindex") != "-1"]
    assert sorted(one.text for one in stops) == sorted(names)
    assert all(one.text in one.get_attribute("aria-label") for one in stops)
    assert all(min(one.size.values()) >= 24 for one in stops)
    (row,) = shown(browser, "#side-after .rest button")
    assert row.text == names[0]
    browser.execute_script("arguments[0].focus()", row)
    (hot,) = every(browser, "#side-after .lanes .hot")
    assert hot.get_attribute("data-graph") == "after/loop"
    assert "150 iterations" in every(browser, "#tip")[0].text
    row.click()
    assert every(browser, "#graph svg")[0].get_attribute("data-id") == "after/loop"


def test_a_notebooks_frame_runs_the_page(browser, told, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{told._repr_html_()}", encoding="utf-8")
    browser.get(path.as_uri())
    browser.switch_to.frame(0)
    try:
        assert every(browser, "h1")[0].text == HOSTILE
        assert len(every(browser, ".u-over")) == 2
    finally:
        browser.switch_to.default_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [chromium.DESKTOP, chromium.PHONE], ids=["desktop", "phone"])
def test_the_page_is_accessible_and_as_wide_as_the_screen(page, told, size, scheme):
    chromium.shown_as(page, size, scheme)
    page.refresh()
    page.execute_script("open('after/gradient')")
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide == size[0]
    page.execute_script(AXE.read_text("utf-8"))
    found = page.execute_async_script(
        "axe.run({runOnly: arguments[0]}).then(arguments[arguments.length - 1])", GUIDELINES
    )
    assert found["testEngine"] == {"name": "axe-core", "version": "4.14.1"}
    assert len(found["passes"]) > 30
    assert not [(one["id"], one["help"]) for one in found["violations"]]
    back = every(page, "body")[0].value_of_css_property("background-color")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 150) == (scheme == "dark")
    assert not [line for line in page.get_log("browser") if line["level"] == "SEVERE"]


def test_any_two_colours_can_be_told_apart_and_text_on_them_be_read():
    """Distances (CIE76) of what is seen with each colour blindness (Machado et al. 2009)."""
    for known in (colors.OF_KIND, colors.OF_DECISION):
        for one, other in itertools.combinations(sorted(set(known.values())), 2):
            for seen in BLINDNESS:
                assert difference(seen, one, other) > 20, (one, other)
        assert all(colors.contrast(colors.ink(one), one) >= 4.5 for one in known.values())
    solid = [kind for kind, hatch in colors.HATCHES.items() if not hatch]
    assert len(set(colors.HATCHES.values())) == len(colors.HATCHES) and len(solid) == 1


BLINDNESS = (
    np.eye(3),
    [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
)
"""Nobody's, protanopia, deuteranopia, tritanopia; on linear sRGB."""


def difference(seen, one, other):
    return np.linalg.norm(lab(seen, one) - lab(seen, other))


def lab(seen, color):
    shares = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = to_xyz @ np.clip(np.array(seen) @ linear, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_libraries_are_those_named():
    """Unmodified: name, version, licence and hash are those of vendor/README.md."""
    vendor = Path(colors.__file__).parent / "vendor"
    rows = re.findall(
        r"\| `(\S+)` \| `(.+?)`, .* \| (\S+) \| MIT, \[text\]\((\S+)\) \| `(\w+)` \|",
        (vendor / "README.md").read_text("utf-8"),
    )
    assert [row[0] for row in rows] == ["uplot.min.js", "uplot.min.css", "dagre.min.js"]
    for file, _, version, licence, digest in rows:
        content = (vendor / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert version.encode() in content or file.endswith(".css")
        assert "Permission is hereby granted, free of charge" in (vendor / licence).read_text(
            "utf-8"
        )
    there = {path.name for path in vendor.iterdir()} - {"README.md"}
    assert there == {name for row in rows for name in (row[0], row[3])}


def test_a_page_holds_the_licences_and_runs_no_other_script():
    text = html(report(HOSTILE))
    assert text.count("Permission is hereby granted, free of charge") == 2
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 10
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_a_page_of_an_unknown_peak_says_so(browser, tmp_path):
    from rnnmem.planning.plan import Plan
    from rnnmem.reports.data import Side
    from rnnmem.reports.report import Report

    side = Side("before", None, unknown=("trip count of while",))
    path = tmp_path / "unknown.html"
    Report("f", side, side, Plan()).save(path)
    browser.get(path.as_uri())
    assert "trip count of while" in every(browser, "#timeline")[0].text


def test_a_step_without_loops_is_told_of_as_one(browser, page, tmp_path):
    assert every(page, "#runs")[0].text.startswith("What runs once an iteration. A node with")
    made = report()
    sides = {side.name: dataclasses.replace(side, spans=()) for side in (made.before, made.after)}
    flat = tuple(
        dataclasses.replace(
            graph, nodes=tuple(dataclasses.replace(node, opens="") for node in graph.nodes)
        )
        for graph in made.graphs
        if not graph.loops
    )
    path = tmp_path / "flat.html"
    dataclasses.replace(made, **sides, graphs=flat).save(path)
    browser.get(path.as_uri())
    assert every(browser, "#runs")[0].text == (
        "The ops of the function, which has no loop. "
        "With the keyboard, arrows go from node to node."
    )


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


def test_where_there_is_one_side_there_is_nothing_to_choose(browser, tmp_path):
    for changed, sides in ((True, ["before", "after"]), (False, [])):
        path = tmp_path / "memory.html"
        report(changed=changed).save(path)
        browser.get(path.as_uri())
        assert [one.text for one in every(browser, "#toggle button")] == sides


def test_each_colour_of_the_legend_stands_once():
    told = _legend([Graph("all", "", (), "after", tuple(map(decided, colors.OF_DECISION)), ())])
    used = [colors.OF_DECISION[decision] for decision, _ in told]
    assert len(used) == len(set(used)) == len(set(colors.OF_DECISION.values()))
    words = "; ".join(what for _, what in told)
    assert all(what in words for what in colors.OF_LEGEND.values())
    assert colors.OF_DECISION[INVARIANT] != colors.OF_DECISION[HOISTED]


def decided(decision):
    return Node("n", "MatMul", "float32", (4,), 16, "", decision)


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

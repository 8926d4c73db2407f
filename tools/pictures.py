"""Makes docs/images: a report's picture and page, and the quick start in terminal and notebook.

    python -m tools.pictures

The report is of the translation model's train step (`python -m models.nmt.benchmark`, 50 tokens).
That step is run, so what is measured differs a little from time to time: each picture holds its
figures as text, too, and a test compares them with the table's. The terminal has 80 columns; the
page is shown on a desktop, in the dark and on a phone. It needs the test extra, a Chromium with its
driver, and for the notebook `pip install nbconvert ipykernel`.
"""

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import rnnmem  # noqa: E402
from models.nmt.workloads import WORKLOADS, make_batch, make_step  # noqa: E402
from tests.reports.browser import DESKTOP, PHONE, chromium, missing, shown_as  # noqa: E402
from tools import first_minutes  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WORKLOAD = "attention-50"
FIGURES = "Description"
"""What a picture's own figures are called in it."""
STEP_NET = "after/while_1"
"""The decoder's forward loop."""


def main() -> None:
    """Writes the files."""
    if missing():
        sys.exit(missing())
    IMAGES.mkdir(exist_ok=True)
    with chromium() as browser:
        shown_as(browser, first_minutes.SIZE, "light")
        for name, page in (
            ("terminal.png", first_minutes.terminal()),
            ("notebook.png", first_minutes.notebook()),
        ):
            _open(browser, page)
            _write(name, _shot(browser, *_box(browser, first_minutes.SHOWN)))
        rnnmem.enable_cpu_memory_stats()
        workload = WORKLOADS[WORKLOAD]
        step = rnnmem.optimize(make_step(workload.config))
        _of_report(rnnmem.report(step, *make_batch(workload)), browser)


def _of_report(report, browser) -> None:
    """The picture of a report, and those of its page."""
    told = report.summary()
    _write("report.png", report.to_png(), told)
    for name, size, scheme in (
        ("page.png", DESKTOP, "light"),
        ("page-dark.png", DESKTOP, "dark"),
        ("page-phone.png", PHONE, "light"),
    ):
        shown_as(browser, size, scheme)
        _open(browser, report.to_html())
        _, top, _, high = _box(browser, "#timeline ~ .legend")
        _write(name, _shot(browser, 0, 0, size[0], top + high + 40), told)
    shown_as(browser, DESKTOP, "light")
    _open(browser, report.to_html())
    browser.execute_script(f"open({STEP_NET!r}); byId('graph').style.maxHeight = 'none'")
    _write("step-net.png", _shot(browser, *_box(browser, "#step-nets")), told)
    print(told)


def _open(browser, page: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write(page)
        file.flush()
        browser.get(Path(file.name).as_uri())


def _box(browser, selector: str) -> list[float]:
    """Left, top, width and height of an element on the whole page."""
    return browser.execute_script(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.left + scrollX, box.top + scrollY, box.width, box.height]",
        selector,
    )


def _shot(browser, x: float, y: float, width: float, height: float) -> bytes:
    """What the page shows in a rectangle, seen or not."""
    clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
    options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"])


def _write(name: str, content: bytes, told: str = "") -> None:
    """Writes a picture; ``told`` are the figures that it shows."""
    # Flat colours and the edges of letters: 256 of them look the same, at a third of the bytes.
    drawn = Image.open(io.BytesIO(content)).convert("RGB")
    image = drawn.quantize(256, dither=Image.Dither.NONE)
    known = PngInfo()
    known.add_text(FIGURES, told)
    image.save(IMAGES / name, optimize=True, pnginfo=known)
    print(f"docs/images/{name}: {(IMAGES / name).stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main()

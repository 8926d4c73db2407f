"""Makes docs/images: the picture of a report, and its page on a desktop, in the dark, on a phone.

    python -m tools.pictures

All are of the translation model's train step (`python -m models.nmt.benchmark`, 50 tokens). It runs
that step, so what is measured differs a little from time to time. It needs the test extra, and a
Chromium with its driver.
"""

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import rnnmem  # noqa: E402
from models.nmt.workloads import WORKLOADS, make_batch, make_step  # noqa: E402
from tests.reports.browser import DESKTOP, PHONE, chromium, missing, shown_as  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WORKLOAD = "attention-50"
STEP_NET = "after/while_1"
"""The decoder's forward loop."""


def main() -> None:
    """Writes the files."""
    if missing():
        sys.exit(missing())
    rnnmem.enable_cpu_memory_stats()
    workload = WORKLOADS[WORKLOAD]
    step = rnnmem.optimize(make_step(workload.config))
    report = rnnmem.report(step, *make_batch(workload))
    IMAGES.mkdir(exist_ok=True)
    _write("report.png", report.to_png())
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "report.html"
        report.save(page)
        for name, size, scheme in (
            ("page.png", DESKTOP, "light"),
            ("page-dark.png", DESKTOP, "dark"),
            ("page-phone.png", PHONE, "light"),
        ):
            shown_as(browser, size, scheme)
            browser.get(page.as_uri())
            _, top, _, high = _box(browser, "#timeline ~ .legend")
            _write(name, _shot(browser, 0, 0, size[0], top + high + 40))
        shown_as(browser, DESKTOP, "light")
        browser.get(page.as_uri())
        browser.execute_script(f"open({STEP_NET!r}); byId('graph').style.maxHeight = 'none'")
        _write("step-net.png", _shot(browser, *_box(browser, "#step-nets")))
    print(report.summary())


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


def _write(name: str, content: bytes) -> None:
    image = Image.open(io.BytesIO(content)).convert("RGB")
    image.save(IMAGES / name, optimize=True)
    print(f"docs/images/{name}: {(IMAGES / name).stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main()

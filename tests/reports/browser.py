"""A headless Chromium that is installed on the system; none is ever downloaded."""

import contextlib
import shutil
import tempfile

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--window-size=1300,1000", "--hide-scrollbars"),
)
DESKTOP, PHONE = (1280, 800), (390, 844)


def missing() -> str:
    """Why there is no browser; empty where there is one."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (it is in the test extra)"
    if not _chromium() or not shutil.which("chromedriver"):
        return "no chromium and chromedriver here (apt-get install chromium chromium-driver)"
    return ""


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def chromium():
    """A driver; the browser ends with the context."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = _chromium()
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def browser():
    """Yields a driver, and ends the browser; a test without one is skipped."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with chromium() as driver:
        yield driver


def shown_as(driver, size, scheme):
    """What is opened next is shown at a size, in a colour scheme: ``light`` or ``dark``."""
    width, height = size
    device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    scheme = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)

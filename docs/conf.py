"""The documents as a site that needs no network: `make docs` builds it, index.html to begin with.

A link that leads nowhere, or a page that stands in no menu, fails the build.
"""

import runpy
from pathlib import Path

STATED = runpy.run_path(str(Path(__file__).resolve().parent.parent / "rnnmem" / "version.py"))

project = "rnnmem"
version = release = STATED["__version__"]
extensions = ["myst_parser"]
myst_heading_anchors = 3  # the anchors that GitHub gives headings, too
html_theme = "furo"
html_title = f"rnnmem {version}"
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_permalinks_icon = "#"

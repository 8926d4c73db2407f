"""Packaging of rnnmem; its version and those it is tested on are stated in rnnmem/version.py."""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
STATED = runpy.run_path(str(HERE / "rnnmem" / "version.py"))
TENSORFLOWS = list(STATED["TESTED"])
PYTHONS = STATED["PYTHONS"]
# Private names of TensorFlow's are used, so what comes after the last one tested is not promised.
MAJOR, MINOR = TENSORFLOWS[-1].split(".")
RANGE = f">={TENSORFLOWS[0]},<{MAJOR}.{int(MINOR) + 1}"

NMT = ["sentencepiece", "sacrebleu"]
REPORT = ["matplotlib", "tensorboard"]
BENCH = ["matplotlib"]
PROVE = ["z3-solver>=4.12"]
PEERS = [*BENCH, "jax", "equinox", "torch>=2.6"]  # what benchmarks/peers compares with
SHELL = ["shtab"]  # prints what makes a shell complete the command
BROWSER = ["selenium>=4.11"]  # drives a Chromium that is there already
DOCS = ["furo", "myst-parser>=4", "sphinx>=8"]  # the site
TEST = [*NMT, *REPORT, *BROWSER, *SHELL, *PROVE, "hypothesis", "mypy>=2.4,<3", "ruff>=0.17,<0.18"]
TEST += ["pytest>=8", "pytest-cov", "pytest-timeout", "pytest-xdist"]
TEST += [*DOCS, "tf_keras"]  # Keras 2, whose models are optimised too
DIST = ["build", "twine"]

PAGE = ["page.html", "page.css", "*.js", "vendor/*"]

setup(
    name="rnnmem",
    version=STATED["__version__"],
    description="Train TensorFlow recurrent networks in less memory, with bit-identical results",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=f">={PYTHONS[0]}",
    # The translation toolkit is run from the repository: nobody may claim the name `models`.
    packages=find_packages(include=["rnnmem", "rnnmem.*"]),
    package_data={"rnnmem": ["py.typed", *(f"reports/{one}" for one in PAGE)]},
    entry_points={"console_scripts": ["rnnmem = rnnmem.cli:main"]},
    install_requires=["absl-py", "ml_dtypes", "numpy", "rich", "scipy"],
    extras_require={
        "tf": [f"tensorflow{RANGE}"],
        "tf-cpu": [f"tensorflow-cpu{RANGE}"],
        "nmt": NMT,
        "report": REPORT,
        "bench": BENCH,
        "shell": SHELL,
        "prove": PROVE,
        "peers": PEERS,
        "test": TEST,
        "dist": DIST,
        "docs": DOCS,
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: {one}" for one in PYTHONS),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)

"""Packaging of rnnmem; the version is stated once, in rnnmem/version.py."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION_FILE = (HERE / "rnnmem" / "version.py").read_text(encoding="utf-8")
VERSION = re.search(r'^__version__ = "([^"]+)"$', VERSION_FILE, re.MULTILINE).group(1)

NMT = ["sentencepiece", "sacrebleu"]
REPORT = ["matplotlib", "tensorboard"]
BENCH = ["matplotlib"]
SHELL = ["shtab"]  # prints what makes a shell complete the command
BROWSER = ["selenium>=4.11"]  # drives a Chromium that is there already
TEST = [*NMT, *REPORT, *BROWSER, *SHELL, "hypothesis", "mypy>=2.4,<3", "ruff>=0.17,<0.18"]
TEST += ["pytest>=8", "pytest-cov", "pytest-timeout", "pytest-xdist"]

setup(
    name="rnnmem",
    version=VERSION,
    description="Train TensorFlow recurrent networks in less memory, with bit-identical results",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["rnnmem", "rnnmem.*", "models", "models.*"]),
    package_data={
        "rnnmem": ["py.typed", "reports/page.html"],
        "models.nmt": ["flagfiles/*.flags"],
    },
    install_requires=["absl-py", "ml_dtypes", "numpy", "rich", "scipy", "tensorflow>=2.16"],
    extras_require={"nmt": NMT, "report": REPORT, "bench": BENCH, "shell": SHELL, "test": TEST},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)

"""TensorFlow's side: trace, import, export, measure. All else plans on Nets and never sees it."""

import platform

import tensorflow as tf

from rnnmem.version import untested
from rnnmem.warn import warn_user

_said = untested(tf.__version__, platform.python_version())
if _said:  # a module is imported once a process, so it is said once
    warn_user(_said)

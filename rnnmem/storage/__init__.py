"""Storage sharing: which blobs of a Net live in one storage, in which order its ops run.

What Caffe2's memonger and Paddle's memory_optimize do, on a Net; no TensorFlow is needed to plan.
"""

from rnnmem.storage.buffers import LEVELS
from rnnmem.storage.estimate import Estimate, estimate
from rnnmem.storage.interference import interference_of_ops
from rnnmem.storage.orders import ORDERS, order
from rnnmem.storage.plan import Storage, StoragePlan, apply_storage_plan, is_shared
from rnnmem.storage.ranges import ALGORITHMS, Assignment, Range, assign, interference, lower_bound
from rnnmem.storage.release import release
from rnnmem.storage.share import (
    Reuse,
    Shared,
    gradient_blobs,
    share_gradients,
    share_parallel,
    share_sequential,
)
from rnnmem.storage.verify import same_producers, verify

__all__ = [
    "ALGORITHMS",
    "LEVELS",
    "ORDERS",
    "Assignment",
    "Estimate",
    "Range",
    "Reuse",
    "Shared",
    "Storage",
    "StoragePlan",
    "apply_storage_plan",
    "assign",
    "estimate",
    "gradient_blobs",
    "interference",
    "interference_of_ops",
    "is_shared",
    "lower_bound",
    "order",
    "release",
    "same_producers",
    "share_gradients",
    "share_parallel",
    "share_sequential",
    "verify",
]

"""The one file that holds private TensorFlow imports; what breaks with a new release breaks here.

Each wrapper says what it is for, so that it can be replaced once a public name exists.
"""

from tensorflow.python.eager import context as _context


def eager_context_is_initialized() -> bool:
    """Whether TensorFlow ran its first op, after which allocator settings are read no more."""
    context = _context.context_safe()
    # A property would initialize the context, so the field itself is read.
    return context is not None and context._initialized

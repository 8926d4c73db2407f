"""The schema of all attributes that rnnmem puts on ops; the verifier believes none of them.

TensorFlow's runtime ignores attributes that begin with an underscore, and its graph optimizer
merges no ops of which they differ.
"""

from __future__ import annotations

GIVEN = "_rnnmem_given"
"""On a loop or branch: ``call:argument`` for each input that is an argument of an inlined call."""

STANDS_FOR = "_rnnmem_stands_for"
"""On an optimization barrier: the blob it hides. It keeps congruent ops apart: merged, as two pops
never are, their readers would be merged too, and a sum may not begin with what it adds twice."""

OWN_SHAPE = "_rnnmem_own_shape"
"""On a BroadcastTo that copies nothing: it gives the value that it reads its shape of."""

RENAME_MAP = "_rnnmem_rename_map"
"""On a loop op and on its gradient op: what stands for each blob."""

IN_PLACE = "_rnnmem_in_place"
"""On an op: its step nets were rewritten as steps by themselves, and are to be verified so."""

ENCODES, DECODES = "_rnnmem_encodes", "_rnnmem_decodes"
"""On the last op of what encodes a pushed blob, and of what decodes it when popped."""

SAVES = "_rnnmem_saves"
"""On a push: the blob of the step net that it saves."""

SEGMENTS = "_rnnmem_segments"
"""On the ops that segments add; its value, one of the five below, says what the op does."""
KEEPS, REFILLS, AGAIN = b"keeps states", b"runs a segment again", b"its loop"
ADVANCES, SAVES_TAIL = b"goes on to the segment", b"saves the last iterations"

LENGTH, GROWTH = "_rnnmem_segment_length", "_rnnmem_segment_growth"
"""On the branches that keep states or replay a segment: its iterations, and how many more the next
one has."""
KEPT = "_rnnmem_segments_kept"
"""On the same: how many states are kept at once at most, where a schedule says so; 0: one of each
segment."""
END = "_rnnmem_segments_end"
"""On the same, and on the branch that saves the iterations behind: where the last segment ends; 0:
with the loop."""
SLOTS = "_rnnmem_slots"
"""On a write to a list of slots: how many there are, so how long the list gets at most."""

OWN_KERNEL = "_rnnmem_own_kernel"
"""On a convolution's gradient: TensorFlow's own kernel runs it here, no library's."""
PACKS = "_rnnmem_packs"
"""On a product of matrices: TensorFlow's own kernel runs it, which lays out each of a batch."""
PRIMITIVE = "_rnnmem_primitive"
"""On a softmax or a transposition: it is a primitive of oneDNN, which takes long to start."""
ON_GPU = "_rnnmem_on_gpu"
"""On a softmax: a GPU's kernel runs it."""

TRIPS = "_rnnmem_trips"
"""On a loop of a Net that is only looked at: how often it runs, where all around it tells."""

CHUNKS = "_rnnmem_chunks"
"""On a loop over chunks of rows: how many rows of the source a chunk has."""
SOURCE = "_rnnmem_source"
"""On the same, where it is known how many rows there are: which input has them."""
LEAD = "_rnnmem_lead"
"""On the same, where rows are tokens: the sizes that together count them, e.g. ``16,35``."""
FLAT = "_rnnmem_flat"
"""On the same, where all read logits of several axes as rows of tokens: that view of them."""
PART = "_rnnmem_rows"
"""On what cuts a chunk out of a blob: how many rows it has at most."""
OWNED = "_rnnmem_owned"
"""On the ops that make a buffer which such a loop writes into: their own names, so that TensorFlow
merges none with another op and nobody else reads the buffer."""
WHOLE = "_rnnmem_whole"
"""On an op of such a loop's body: ``input:blob`` of numbers that stand there for the whole."""

REQUEST = "_rnnmem_request"
"""On an Identity that nobody reads: what the user asks of the blob that it reads."""

ITEMS = "_rnnmem_items"
"""On a loop that adds up products of a batch one by one: which of the sums it makes, from 0."""

SIZES = "rnnmem/sizes"
"""Name of what asks a factor of such products for its shape; it is asked of no other blob."""

COUNTS = "_rnnmem_counts"
"""On a gradient loop: ``argument, blob`` in lines, for each argument that holds what the blob of
the forward step net was, a whole number that is in no list."""

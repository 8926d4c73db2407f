"""The form in which an accumulator keeps a blob."""

from __future__ import annotations

import dataclasses

SAVED = "saved"
"""The decision of a blob that an accumulator keeps."""
BITS, BFLOAT16, OFFLOAD = "bits", "bfloat16", "offload"
SAVED_AS = {
    (): SAVED,
    (BITS,): "saved as bits",
    (BFLOAT16,): "saved as bfloat16",
    (OFFLOAD,): "offloaded",
    (BITS, OFFLOAD): "saved as bits, offloaded",
    (BFLOAT16, OFFLOAD): "saved as bfloat16, offloaded",
}
"""Techniques by which an accumulator keeps a blob, in the order applied -> the blob's decision."""


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The form in which an accumulator keeps a blob.

    Attributes:
      blob: the saved blob of the forward step net.
      techniques: ``bits`` (of a bool; of a number: whether it is above 0), ``bfloat16``,
        ``offload``, in the order applied.
      bytes: that the device keeps per iteration; unknown sizes are guessed.
      seconds: estimated time per iteration of encoding, keeping and decoding.
    """

    blob: str
    techniques: tuple[str, ...]
    bytes: int = 0
    seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        return f"{self.blob}: {SAVED_AS[self.techniques]}"

    def check(self) -> None:
        """Refuses a form that there is not.

        Raises:
          TypeError: names it.
        """
        if self.techniques not in SAVED_AS or not self.techniques:
            named = ", ".join(map(repr, self.techniques)) or "no means"
            raise TypeError(f"no accumulator is kept by {named}")

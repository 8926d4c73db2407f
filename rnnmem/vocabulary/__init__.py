"""The projection onto a vocabulary and its softmax loss, by chunks of tokens."""

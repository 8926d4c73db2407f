"""A projection with its softmax loss by chunks of rows."""

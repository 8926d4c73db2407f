"""Lists that are made again when the gradient loop starts, instead of held."""

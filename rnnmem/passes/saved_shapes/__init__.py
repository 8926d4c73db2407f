"""Of what a gradient loop reads only the shape of, the shape is saved."""

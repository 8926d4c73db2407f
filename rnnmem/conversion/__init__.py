"""Changes the dtype or the device of what holds variables, in place and tensor by tensor."""

"""The executor and the allocator, simulated: which bytes are held when."""

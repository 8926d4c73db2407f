"""The techniques that save memory, a folder each: what is selected, and how it is applied."""

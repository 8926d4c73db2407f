"""Which blobs of an iteration are saved and which are computed again."""

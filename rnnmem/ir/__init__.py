"""The Net: its nouns, the table of op types, text, editing and inlining."""

"""The nouns and the facts: Nets, what their op types mean, and what can be read off them."""

"""Batched matrix products of which only the sum is read are added up item by item."""

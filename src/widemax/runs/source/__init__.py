"""The data of a run: read and split as its configuration says, and other data like them."""

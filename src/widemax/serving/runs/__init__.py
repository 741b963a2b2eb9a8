"""The runs that are served: a checkpoint each, and newer ones that take their place."""

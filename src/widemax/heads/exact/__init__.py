"""The exact softmax over all classes, and the best of them: tile by tile and block by block."""

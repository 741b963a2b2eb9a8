"""What a run becomes for other tools."""

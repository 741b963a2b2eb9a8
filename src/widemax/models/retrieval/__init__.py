"""Models of users: the next item from a history."""

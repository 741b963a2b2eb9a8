"""What follows a history or a text, as the model of a run answers it."""

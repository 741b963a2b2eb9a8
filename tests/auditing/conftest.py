"""What is no test here: a plug-in, which declares its methods wherever it is imported."""

collect_ignore = ["wrong_objectives.py"]

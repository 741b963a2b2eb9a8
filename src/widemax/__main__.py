"""``python -m widemax`` is the program ``widemax``."""

from widemax.cli.program import program

if __name__ == "__main__":
    program()

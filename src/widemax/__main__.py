"""``python -m widemax`` is the program ``widemax``."""

from widemax.cli import main

if __name__ == "__main__":
    main()

"""How good a run is: validated, tested on what was held out, and audited."""

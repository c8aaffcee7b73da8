"""How often intervals hold, and how wide they are: fits of random motions with errors drawn from the error model.

Each file is one kind of motion: `random_case` draws it, `fitted` fits it as `identify` does after tracking.
"""

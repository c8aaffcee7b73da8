"""How often intervals hold, and how wide they are: fits of random motions with errors drawn from the error model.

Each kind of motion is one file. Its function `case` draws a motion and fits it as `identify` does after tracking.
"""

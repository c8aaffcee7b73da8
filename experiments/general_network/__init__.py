"""A trial of one network for all meshes: it compares an image with a drawing of the mesh at a pose that may be wrong.

`python -m experiments.general_network.train --out DIR` trains it and writes `score.json`. No command of vid2phys uses
it: see decision 051.
"""

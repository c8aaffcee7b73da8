"""The error model of a trained network and of each cue, measured on appearances held out from training."""

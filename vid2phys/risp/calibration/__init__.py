"""The error model: what readings are worth, on looks held out from training."""

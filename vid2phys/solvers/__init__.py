"""From observations to estimates: initial values, smoothing, shooting, intervals."""

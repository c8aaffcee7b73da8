"""Track articulated and modal bodies on a known base (hand, rod, arm): detect, fit, refine configurations."""

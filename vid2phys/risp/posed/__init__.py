"""Bodies on a known base (hand, rod, arms): postures instead of poses."""

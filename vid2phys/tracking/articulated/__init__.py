"""Bodies on a known base (hand, rod, arm): configurations instead of poses."""

"""What shows and judges a run: overlay video, plots, report, alignment with motion capture."""

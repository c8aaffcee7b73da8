"""Show and judge a run: overlay video, plots, report, model card, alignment with motion capture."""

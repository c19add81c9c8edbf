"""Programs that feed or are other software; they run in ``.venv-bench``, which has nothing of ours."""

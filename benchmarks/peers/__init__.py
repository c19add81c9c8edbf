"""Programs that run in ``.venv-bench``, with other software and without ours."""

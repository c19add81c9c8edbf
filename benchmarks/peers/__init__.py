"""Programs that run in ``.venv-bench``, beside other software and without ours."""

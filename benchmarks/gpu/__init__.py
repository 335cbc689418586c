"""Parts of `gpu_session.py`: `there` and `peer` run on the machine with the GPU, where heron_asp is not installed."""

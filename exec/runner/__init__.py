"""The Python side of run_python. ntr-init embeds these modules (cmake/embed.cmake) and runs boot.py with them."""

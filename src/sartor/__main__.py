"""``python -m sartor``."""

from sartor.cli import main

main()

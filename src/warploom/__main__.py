"""`python -m warploom` is the `warploom` command."""

from .cli import main

if __name__ == "__main__":
    main()

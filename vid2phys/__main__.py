"""`python -m vid2phys`."""

from vid2phys.cli import main

if __name__ == "__main__":
    main()

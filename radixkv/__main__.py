"""`python -m radixkv` is the same as `radixkv`."""

from radixkv.cli import main

if __name__ == "__main__":
    main()

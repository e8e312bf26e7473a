"""Tree-aware decode: what requests share is read once. The backend is in `tree.backend`."""

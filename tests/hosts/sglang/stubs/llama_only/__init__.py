"""SGLANG_EXTERNAL_MODEL_PACKAGE: the one model that is served here, for a start in half the time."""

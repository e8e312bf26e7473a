"""SGLANG_EXTERNAL_MODEL_PACKAGE: the one model that is served here; to import all takes long."""

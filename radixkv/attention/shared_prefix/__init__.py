"""Decode that reads once what requests share."""

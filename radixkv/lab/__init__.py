"""The lab: what a prefix cache would save on a log of requests, and why requests miss.

`requests.py` says what a request of a log is and in which order they come; every analysis takes an
iterable of them.
"""

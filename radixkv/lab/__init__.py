"""The lab: what a prefix cache would save on a log of requests, and why requests miss.

logs    reads logs of many formats into requests of token ids
replay  puts requests through caches: real ones, exact curves, a clairvoyant reference
report  names the causes of misses and writes them down with all the rest
"""

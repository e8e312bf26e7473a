"""What a log shows: causes of misses, findings, and a page with all of it."""

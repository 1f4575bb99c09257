"""The search for a better config: which fields are tried, which values next, and what mattered."""

"""Arrays on disk, loading, preprocessing, metrics, the error between outputs."""
